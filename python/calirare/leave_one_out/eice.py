"""Algorithm 2 of the paper: CaliRare training with the loss (1 - lambda) L_CE + lambda L_EICE (Eq. 11)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

from calirare._util.torch_state import threads_for
from calirare.curvature import GcnLinearisation, Kernels, gram, inputs_gram
from calirare.graph import Graph, Propagation
from calirare.leave_one_out.alo import alo_change
from calirare.leave_one_out.directions import change_of_logits, fits, pre_activation
from calirare.leave_one_out.formula import loo_coefficients, own_change
from calirare.leave_one_out.result import LooResult
from calirare.models import GcnFit, GcnTraining, cross_entropy, step_work
from calirare_ext import PATHS, Csr, GradientPath, ReceptiveField, eice_term, gcn_forward

PAPER_COVERAGE = 0.9  # section 4.2
Nodes = Literal["train", "val", "all"]


@dataclass(frozen=True)
class EiceSettings:
    """The regulariser; weight and coverage are the paper's (section 4.2).

    Attributes:
        weight: lambda, in [0, 1].
        coverage: alpha, in (0, 1); None: the intervals', or .9.
        nodes: whose EICE is minimised: "train", "val" or "all". No label of them is used.
        refresh: epochs between leave-one-out models, >= 1.
        start: epoch from which the term counts: the leave-one-out of a random network says nothing.
        paths: what the gradient goes through, see `calirare_ext.eice_term`.
        damping: of the leave-one-out step; None: the weight decay.
    """

    weight: float = 0.1
    coverage: float | None = None
    nodes: Nodes = "val"
    refresh: int = 10
    start: int = 50
    paths: tuple[GradientPath, ...] = PATHS
    damping: float | None = None

    def __post_init__(self) -> None:
        """Checks ranges.

        Raises:
            ValueError: a setting is out of range.
        """
        if not 0 <= self.weight <= 1:
            raise ValueError(f"EiceSettings: weight must be in [0, 1], got {self.weight}")
        if self.coverage is not None and not 0 < self.coverage < 1:
            raise ValueError(f"EiceSettings: coverage must be in (0, 1), got {self.coverage}")
        if self.nodes not in ("train", "val", "all"):
            raise ValueError(f"EiceSettings: nodes must be train, val or all, got {self.nodes!r}")
        if self.refresh < 1:
            raise ValueError(f"EiceSettings: refresh must be at least 1, got {self.refresh}")
        if self.start < 0:
            raise ValueError(f"EiceSettings: start must not be negative, got {self.start}")
        if not self.paths:
            raise ValueError("EiceSettings: paths must name at least one, got none: the term would be a constant")
        if self.damping is not None and not 0 < self.damping < math.inf:
            raise ValueError(f"EiceSettings: damping must be positive and finite, got {self.damping}")


class EiceRegulariser:
    """L_EICE of a network on some nodes; leave-one-out changes are refreshed on demand and constant in between.

    Args:
        both: the labelled nodes, and those the term is the mean of.
        trained: the labelled nodes and the network.
        settings: the regulariser's settings.
    """

    def __init__(self, both: JointField, trained: GcnFit, settings: EiceSettings) -> None:
        self.both, self.trained, self.settings = both, trained, settings
        self.result: LooResult | None = None

    def refresh(self, first: Tensor | None = None) -> None:
        """Computes the leave-one-out changes at the network's present parameters (Algorithm 2, line 3).

        Args:
            first: the first layer's output at the rows of `both.field`, where it is known; None: computed.
        """
        damping = self.trained.weight_decay if self.settings.damping is None else self.settings.damping
        known = None if first is None else first.detach()
        linearised = self.trained.linearise(None if known is None else known.index_select(0, self.both.rows))
        self.result = joint_change(linearised, self.both, damping, known)

    def __call__(self, first: Tensor | None = None) -> Tensor:
        """Returns L_EICE at the network's present parameters, differentiable; without dropout.

        Args:
            first: as in `refresh`.
        """
        if self.result is None:
            self.refresh(first)
        assert self.result is not None
        logits = gcn_forward(self.both.field, self.trained.model.layers(), first=first)
        return eice_term(
            logits.index_select(0, self.both.evaluated),
            self.result.change,
            logits[: self.trained.targets.numel()],
            self.result.own,
            self.trained.targets,
            coverage=PAPER_COVERAGE if self.settings.coverage is None else self.settings.coverage,
            paths=self.settings.paths,
        )


class GradientSteps:
    """The gradient steps of Algorithm 2.

    Args:
        trained: the network, changed in place, and its labels.
        regulariser: L_EICE.
        settings: network and optimiser.
    """

    def __init__(self, trained: GcnFit, regulariser: EiceRegulariser, settings: GcnTraining) -> None:
        self.trained, self.regulariser = trained, regulariser
        self.parameters = list(trained.model.parameters())
        self.optimiser = settings.optimiser(trained.model)
        self.generator = torch.Generator(trained.targets.device).manual_seed(settings.seed)

    def __call__(self, *, counts: bool, refresh: bool) -> Tensor:
        """Takes one step; returns the loss before it.

        Args:
            counts: whether L_EICE is part of the loss.
            refresh: whether the leave-one-out changes are computed again first.
        """
        trained, weight = self.trained, self.regulariser.settings.weight
        layers = trained.model.layers()
        # Before dropout acts, and the same in every pass of the step.
        both, of_all = self.regulariser.both, None
        if counts or refresh:
            of_all = pre_activation(layers, both.field.features)
            first = of_all.index_select(0, both.rows)
        else:
            first = pre_activation(layers, trained.field.features)
        if refresh:
            self.regulariser.refresh(of_all)
        logits = gcn_forward(trained.field, layers, trained.model.dropping(self.generator), first=first)
        loss = cross_entropy(logits, trained.targets, trained.sample_weights)
        if counts:
            loss = (1 - weight) * loss + weight * self.regulariser(of_all)
        self.optimiser.step(torch.autograd.grad(loss, self.parameters))
        return loss.detach()


def train_calirare(
    graph: Graph,
    settings: GcnTraining,
    eice: EiceSettings | None = None,
    *,
    nodes: Tensor | None = None,
    sample_weights: Tensor | None = None,
    progress: Callable[[int], None] | None = None,
) -> GcnFit:
    """Trains a network with (1 - lambda) L_CE + lambda L_EICE (paper, Algorithm 2).

    The gradient of L_EICE is a true one. In the authors' code the term is a constant: its weight changes nothing.

    Args:
        graph: a graph with labels and a split.
        settings: network and optimiser.
        eice: the regulariser; None: the paper's weight .1 and coverage .9.
        nodes: labelled nodes to train on, int64 [m]; None: the split's training nodes.
        sample_weights: w_i [m]; None: cost-sensitive, see `class_weights`.
        progress: called with the number of epochs done after each.

    Returns:
        The trained network.

    Raises:
        ValueError: the graph has no labels or no split, a node has no label, or the regulariser has no node.
    """
    eice = eice or EiceSettings()
    if graph.y is None or graph.split is None:
        raise ValueError(f"train_calirare: graph {graph.name!r} must have labels and a split")
    nodes = graph.split.train if nodes is None else nodes
    trained = settings.start(graph, nodes, sample_weights)
    both = joint_field(trained.model.propagation(graph), trained.field, _regularised(graph, nodes, eice))
    regulariser = EiceRegulariser(both, trained, eice)
    return replace(trained, losses=_train(trained, regulariser, settings, progress))


def _regularised(graph: Graph, nodes: Tensor, eice: EiceSettings) -> Tensor:
    assert graph.split is not None
    every = torch.arange(graph.n_nodes, device=graph.device)
    where = {"train": nodes, "val": graph.split.val, "all": every}[eice.nodes]
    if where.numel() == 0:
        raise ValueError(
            f"train_calirare: nodes of the regulariser must not be empty, but the split has no {eice.nodes} node"
        )
    return where


def _train(
    trained: GcnFit,
    regulariser: EiceRegulariser,
    settings: GcnTraining,
    progress: Callable[[int], None] | None,
) -> tuple[float, ...]:
    """Takes the gradient steps; returns the losses."""
    eice, model = regulariser.settings, trained.model
    step = GradientSteps(trained, regulariser, settings)
    losses: list[float] = []
    with threads_for(step_work(regulariser.both.field, model.hidden)):
        for epoch in range(1, settings.epochs + 1):
            counts = eice.weight > 0 and epoch > eice.start
            model.train()
            losses.append(float(step(counts=counts, refresh=counts and (epoch - eice.start - 1) % eice.refresh == 0)))
            if progress is not None:
                progress(epoch)
    model.eval()
    return tuple(losses)


@dataclass(frozen=True, eq=False)
class JointField:
    """One receptive field of the labelled nodes and of the nodes to be evaluated.

    Attributes:
        own: of the labelled nodes alone.
        field: of all of them, each once, the labelled nodes first.
        evaluated: where the nodes to be evaluated stand, int64 [n].
        rows: where the rows of the labelled nodes' own field stand among its rows, int64.
    """

    own: ReceptiveField
    field: ReceptiveField
    evaluated: Tensor
    rows: Tensor

    @cached_property
    def products(self) -> Tensor | None:
        """Products of the first layer's inputs (`gram.inputs_gram`), which stay the same while a network is trained.

        With sparse inputs and two layers they are most of the work. None where they are large or would not help.
        """
        mine, every = self.own.inputs, self.field.inputs
        if self.own.n_layers != 2 or not isinstance(mine, Csr) or not isinstance(every, Csr):
            return None
        return inputs_gram(mine, every)


def joint_field(graph: Propagation, own: ReceptiveField, evaluated: Tensor) -> JointField:
    """Returns the field of a network's labelled nodes and of others.

    Args:
        graph: what a graph convolution reads of the graph.
        own: receptive field of the labelled nodes.
        evaluated: the nodes to be evaluated, int64 [n], distinct.
    """
    others = evaluated[~torch.isin(evaluated, own.nodes)]
    field = graph.field(torch.cat([own.nodes, others]), own.n_layers)
    return JointField(own, field, _places(field.nodes, evaluated), _places(field.rows[0], own.rows[0]))


def joint_change(
    linearised: GcnLinearisation, both: JointField, damping: float, first: Tensor | None = None
) -> LooResult:
    """Returns what `alo` returns for the nodes to be evaluated, the fastest way there is.

    Where the products of the inputs are known, from one kernel that holds the labelled nodes' own; otherwise, with two
    layers and two classes, from the messages.

    Args:
        linearised: the network at the labelled nodes.
        both: the nodes.
        damping: mu > 0.
        first: the first layer's output at the rows of `both.field` [r, h], where it is known; None: computed.
    """
    if both.products is not None:
        kernel = gram(linearised, both.field, products=both.products, first=first)
        size = linearised.n_nodes * (linearised.n_classes - 1)
        own = kernel[: linearised.n_nodes].reshape(size, size)
        alpha, leverage = loo_coefficients(linearised, own, damping)
        evaluated = Kernels(own, kernel[both.evaluated])
        change = linearised.change_of(both.field, evaluated, alpha)
        return LooResult(change, own_change(linearised, own, alpha).to(linearised.logits.dtype), leverage, damping)
    every = (change_of_logits if fits(linearised) else alo_change)(linearised, both.field, damping)
    return LooResult(every.change[both.evaluated], every.own, every.leverage, damping)


def _places(nodes: Tensor, wanted: Tensor) -> Tensor:
    """Returns where each wanted node stands in `nodes`, which has it."""
    order = torch.argsort(nodes)
    return order[torch.searchsorted(nodes[order], wanted)]
