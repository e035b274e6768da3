"""Cost-sensitive training of a graph convolutional network on the receptive field of its labelled nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, get_args

import torch
from torch import Tensor

from calirare._util.torch_state import plain_torch, threads_for
from calirare.graph import Graph, Order, check_graph
from calirare.models.convergence import Adam, Convergence
from calirare.models.crossfit import cross_entropy
from calirare.models.gcn import GCN, Dropout, ManyGcns
from calirare.models.gcn_fit import GcnFit, of_network, step_work
from calirare.models.row_space import RowSpace

EpochEnd = Callable[[int, GcnFit], bool | None]
TOGETHER = 32_000_000  # numbers of a pass of networks that are trained side by side


@dataclass(frozen=True)
class GcnTraining:
    """How a GCN is trained; the defaults are Kipf & Welling's (2017), which the paper's section 4.2 takes over.

    Attributes:
        epochs: gradient steps, each on all labelled nodes.
        learning_rate: of Adam.
        weight_decay: mu of the penalty mu / 2 |theta|^2 on all weights and biases.
        hidden: width of the hidden layers.
        n_layers: number of layers.
        hops: how often features are propagated before the first weights, see `calirare.graph.propagation`.
        dropout: probability of dropping a hidden unit.
        order: of the products with sparse features, see `calirare.graph.propagation`; "propagated" trains as before
            there was a choice, dropout's draws included: published numbers to the bit.
        seed: of the weights and the dropout.

    Raises:
        ValueError: a setting is out of range.
    """

    epochs: int = 200
    learning_rate: float = 0.01
    weight_decay: float = 5e-4
    hidden: int = 16
    n_layers: int = 2
    hops: int = 1
    dropout: float = 0.5
    order: Order = "auto"
    seed: int = 0

    low_hops: ClassVar[int] = 1

    def __post_init__(self) -> None:
        """Checks ranges."""
        for name, low in (("epochs", 1), ("hidden", 1), ("n_layers", 1), ("hops", self.low_hops)):
            if getattr(self, name) < low:
                raise ValueError(f"GcnTraining: {name} must be at least {low}, got {getattr(self, name)}")
        if not self.learning_rate > 0:
            raise ValueError(f"GcnTraining: learning_rate must be positive, got {self.learning_rate}")
        if not self.weight_decay > 0:
            raise ValueError(f"GcnTraining: weight_decay must be positive, got {self.weight_decay}")
        if self.order not in get_args(Order):
            raise ValueError(f"GcnTraining: order must be one of {', '.join(get_args(Order))}, got {self.order!r}")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"GcnTraining: dropout must be in [0, 1), got {self.dropout}")

    def network(self, n_features: int, n_classes: int) -> GCN:
        """Returns the network before its first step, on the CPU; one on columns propagates nothing."""
        return GCN(
            n_features,
            n_classes,
            hidden=self.hidden,
            n_layers=self.n_layers,
            dropout=self.dropout,
            hops=self.hops if self.low_hops else 0,
            order=self.order,
            generator=torch.Generator().manual_seed(self.seed),
        )

    def start(self, graph: Graph, nodes: Tensor, sample_weights: Tensor | None = None) -> GcnFit:
        """Returns the network before its first step with labelled nodes of a graph, see `of_network`."""
        model = self.network(graph.n_features, graph.n_classes).to(graph.device)
        return of_network(model, graph, nodes, self.weight_decay, sample_weights)

    def optimiser(self, model: GCN) -> Adam:
        """Returns what takes the steps."""
        return Adam(list(model.parameters()), learning_rate=self.learning_rate, weight_decay=self.weight_decay)

    def fit(
        self,
        graph: Graph,
        nodes: Tensor,
        *,
        sample_weights: Tensor | None = None,
        every: int = 0,
        at_checkpoint: EpochEnd | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> GcnFit:
        """Trains a network on the given labelled nodes with Adam.

        A step touches only the receptive field of these nodes, which is exact. The same settings give the same network.

        Args:
            graph: the graph with labels.
            nodes: distinct labelled nodes, int64 [m].
            sample_weights: w_i [m]; None: `class_weights` of the nodes' classes.
            every: epochs between checkpoints; 0: none.
            at_checkpoint: called with the number of epochs done and the network so far; True ends training.
            progress: called with the number of epochs done after each.

        Returns:
            The trained network.

        Raises:
            ValueError: a node has no label.
        """
        start = self.start(graph, nodes, sample_weights)

        def ends(epoch: int, so_far: Callable[[], GcnFit]) -> bool:
            """Calls what is due after an epoch, and returns whether training ends."""
            if progress is not None:
                progress(epoch)
            due = at_checkpoint is not None and every > 0 and epoch % every == 0
            return due and bool(at_checkpoint(epoch, so_far()))  # type: ignore[misc]  # there where due

        if self.order == "propagated":
            return self._by_differentiation(start, ends)
        space = RowSpace.of(start)
        theta, weights = space.fitted.theta[None].clone(), start.sample_weights[None]
        losses = list[Tensor]()

        def so_far() -> GcnFit:
            start.move_to(space.lifted(theta[0]))
            return replace(start, losses=tuple(torch.cat(losses).tolist()) if losses else ())

        start.model.eval()
        for epoch, loss in enumerate(self._steps(space.fitted, theta, weights), 1):
            losses.append(loss)
            if ends(epoch, so_far):
                break
        return so_far()

    def _steps(self, start: GcnFit, parameters: Tensor, sample_weights: Tensor) -> Iterator[Tensor]:
        """Takes every step of networks side by side, in place on `parameters` [b, p]; yields their losses [b]."""
        networks = ManyGcns(start.field, start.shapes, products=self.epochs)
        optimiser = Adam([parameters], learning_rate=self.learning_rate, weight_decay=self.weight_decay, fused=True)
        dropout = Dropout(self.dropout, self.seed)
        work = parameters.shape[0] * step_work(start.field, self.hidden)
        weights, gradient = sample_weights / max(start.targets.numel(), 1), torch.empty_like(parameters)
        for _ in range(self.epochs):
            with threads_for(work):
                loss, _ = networks.loss(parameters, start.targets, weights, dropout, into=gradient)
                optimiser.step([gradient])
            yield loss

    @property
    def folds_together(self) -> bool:
        """Whether `without_folds` serves; with order "propagated" every fold is trained as published numbers were."""
        return self.order != "propagated"

    def without_folds(
        self,
        graph: Graph,
        nodes: Tensor,
        fold: Tensor,
        sample_weights: Tensor,
        *,
        progress: Callable[[int], None] | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Trains a network without each fold of the labels, side by side: one pass over the graph serves all of them.

        Each is what `fit` makes of the other folds' nodes, but for rounding and for what dropout draws.

        Args:
            graph: the graph with labels.
            nodes: distinct labelled nodes, int64 [m].
            fold: of each, int64 [m], 0 to K - 1, none empty; -1: left out of no network.
            sample_weights: w_i, [m].
            progress: called with the number of folds done, as if one were trained after the other.

        Returns:
            Parameters [K, p], and each node's logits from the network without its fold, [m, k]; NaN for fold -1.
        """
        space, n_folds = RowSpace.of(self.start(graph, nodes, sample_weights)), int(fold.max()) + 1
        start = space.fitted
        start.model.eval()
        kept = fold != torch.arange(n_folds, device=fold.device)[:, None]  # [K, m]
        weights = kept * start.sample_weights * (nodes.numel() / kept.sum(1, keepdim=True)).to(start.sample_weights)
        networks, parts, done = ManyGcns(start.field, start.shapes), list[Tensor](), 0
        together = max(1, TOGETHER // max(networks.numbers_of_a_model() + start.theta.numel(), 1))
        out = start.theta.new_full((nodes.numel(), start.model.n_classes), torch.nan)
        for some in torch.arange(n_folds, device=fold.device).split(together):
            theta = start.theta.expand(some.numel(), -1).clone()
            for epoch, _ in enumerate(self._steps(start, theta, weights[some]), 1):
                for _ in range(done, int(some[0]) + some.numel() * epoch // self.epochs):
                    done += 1
                    if progress is not None:
                        progress(done)
            parts.append(space.lifted(theta))
            with torch.no_grad():
                logits = networks.logits(theta)
            mine = torch.isin(fold, some)
            out[mine] = logits[mine, fold[mine] - some[0]]
        return torch.cat(parts), out

    def _by_differentiation(self, start: GcnFit, ends: Callable[[int, Callable[[], GcnFit]], bool]) -> GcnFit:
        """Returns the trained network, every bit as published numbers were made."""
        model, losses = start.model, list[Tensor]()

        def so_far() -> GcnFit:
            model.eval()
            return replace(start, losses=tuple(torch.stack(losses).tolist()) if losses else ())

        parameters, optimiser = list(model.parameters()), self.optimiser(model)
        generator = torch.Generator(start.targets.device).manual_seed(self.seed)
        with threads_for(step_work(start.field, self.hidden)):
            for epoch in range(1, self.epochs + 1):
                model.train()
                loss = cross_entropy(model(start.field, generator=generator), start.targets, start.sample_weights)
                optimiser.step(torch.autograd.grad(loss, parameters))
                losses.append(loss.detach())  # read at the end: no wait per step on a GPU
                if ends(epoch, so_far):
                    break
        return so_far()

    def fit_to_convergence(
        self,
        graph: Graph,
        nodes: Tensor,
        *,
        sample_weights: Tensor | None = None,
        tolerance: float = 1e-6,
        max_steps: int = 3000,
        near: GcnFit | None = None,
    ) -> tuple[GcnFit, Convergence]:
        """Returns a network in float64, trained by L-BFGS from its random start to a stationary point.

        Args:
            graph: the graph with labels.
            nodes: distinct labelled nodes, int64 [m].
            sample_weights: w_i [m]; None: `class_weights` of the nodes' classes.
            tolerance: on the gradient's norm.
            max_steps: see `training.minimise`.
            near: a network to start from where its parameters have the same shapes, as with another weight decay.

        Returns:
            The network, and how it got there; epochs, learning rate and dropout play no part.
        """
        start = replace(self, dropout=0.0).start(graph, nodes, sample_weights)
        start.model.eval()
        out = start.as_dtype(graph, torch.float64)
        if near is not None and near.shapes == out.shapes:
            out.move_to(near.theta)
        return out, RowSpace.of(out).minimise(tolerance, max_steps)


@plain_torch()
def fit(graph: Graph, nodes: Tensor | None = None, training: GcnTraining | None = None) -> GcnFit:
    """Trains a GCN: short for `GcnTraining(...).fit(graph, nodes)`.

    Args:
        graph: the graph with labels.
        nodes: distinct labelled nodes, int64 [m]; None: the split's training nodes.
        training: how; None: the defaults.

    Returns:
        The trained network.

    Raises:
        TypeError: the graph is something else, such as a PyTorch Geometric `Data`.
        ValueError: a node has no label, or there is no split to take the nodes from.
    """
    check_graph("fit", graph)
    if nodes is None:
        if graph.split is None:
            raise ValueError(f"fit: nodes must be given, graph {graph.name!r} has no split to take them from")
        nodes = graph.split.train
    return (training or GcnTraining()).fit(graph, nodes)
