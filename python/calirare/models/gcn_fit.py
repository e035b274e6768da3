"""Cost-sensitive training of a graph convolutional network on the receptive field of its labelled nodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, overload

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from calirare._util.threads import threads_for
from calirare.graph.convolution import propagation
from calirare.graph.graph import Graph
from calirare.graph.labelled import check_nodes, check_training_labels
from calirare.models.gcn import GCN
from calirare.models.module_fit import ModuleFit, evaluating, pyg_inputs
from calirare.training.adam import Adam
from calirare_ext import Csr, GcnTape, ReceptiveField, record


@dataclass(frozen=True)
class TrainingSettings:
    """How a network is trained; the defaults are Kipf & Welling's (2017), which the paper's section 4.2 takes over.

    Attributes:
        epochs: gradient steps, each on all labelled nodes.
        learning_rate: of Adam.
        weight_decay: mu of the penalty mu / 2 |theta|^2 on all weights and biases.
        hidden: width of the hidden layers.
        n_layers: number of layers.
        hops: how often features are propagated before the first weights, see `calirare.graph.propagation`.
        dropout: probability of dropping a hidden unit.
        seed: of the weights and the dropout.
    """

    epochs: int = 200
    learning_rate: float = 0.01
    weight_decay: float = 5e-4
    hidden: int = 16
    n_layers: int = 2
    hops: int = 1
    dropout: float = 0.5
    seed: int = 0

    def __post_init__(self) -> None:
        """Checks ranges.

        Raises:
            ValueError: a setting is out of range.
        """
        for name, low in (("epochs", 1), ("hidden", 1), ("n_layers", 1), ("hops", 1)):
            if getattr(self, name) < low:
                raise ValueError(f"TrainingSettings: {name} must be at least {low}, got {getattr(self, name)}")
        if not self.learning_rate > 0:
            raise ValueError(f"TrainingSettings: learning_rate must be positive, got {self.learning_rate}")
        if not self.weight_decay > 0:
            raise ValueError(f"TrainingSettings: weight_decay must be positive, got {self.weight_decay}")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"TrainingSettings: dropout must be in [0, 1), got {self.dropout}")


@dataclass(frozen=True, eq=False)
class Fit:
    """A trained network with the labels it was trained on.

    Attributes:
        model: the network, in evaluation mode.
        field: receptive field of the labelled nodes.
        targets: their classes, int64 [m].
        sample_weights: weight of each one's loss, [m], mean 1.
        weight_decay: mu of the penalty.
        losses: training loss of each epoch (with dropout, without penalty).
    """

    model: GCN
    field: ReceptiveField
    targets: Tensor
    sample_weights: Tensor
    weight_decay: float
    losses: tuple[float, ...]

    @property
    def nodes(self) -> Tensor:
        """The labelled nodes, int64 [m]."""
        return self.field.nodes

    def __post_init__(self) -> None:
        """Checks labels, weights and weight decay."""
        check_training_labels("Fit", self.nodes.numel(), self.targets, self.sample_weights, self.weight_decay)

    def tape(self, first: Tensor | None = None) -> GcnTape:
        """Returns the forward and backward pass at the labelled nodes; `first` as in `calirare_ext.record`."""
        with threads_for(_step_work(self.field, self.model.hidden)):
            return record(self.field, self.model.layers(), self.targets, self.sample_weights, first=first)

    def gradient_norm(self) -> float:
        """Returns |grad| of the penalised loss without dropout; 0 at a stationary point."""
        parameters = list(self.model.parameters())
        with torch.enable_grad(), evaluating(self.model):
            loss = penalised_loss(self.model, self.field, self.targets, self.sample_weights, self.weight_decay)
            gradients = torch.autograd.grad(loss, parameters)
        return float(torch.cat([gradient.flatten() for gradient in gradients]).norm())


@overload
def fit_of(model: GCN, graph: Graph, labelled: Tensor | None = None, *, weight_decay: float = 5e-4) -> Fit: ...


@overload
def fit_of(
    model: nn.Module,
    graph: Graph,
    labelled: Tensor | None = None,
    *,
    weight_decay: float = 5e-4,
    inputs: tuple[Any, ...] | None = None,
) -> Fit | ModuleFit: ...


def fit_of(
    model: nn.Module,
    graph: Graph,
    labelled: Tensor | None = None,
    *,
    weight_decay: float = 5e-4,
    inputs: tuple[Any, ...] | None = None,
) -> Fit | ModuleFit:
    """Returns a network that was trained elsewhere together with the labels it was trained on.

    Args:
        model: the network: our `GCN`, or any torch module with a forward of PyTorch Geometric's kind, model(x,
            edge_index) -> logits [n, k]. It is put into evaluation mode.
        graph: the graph it was trained on, with labels.
        labelled: the nodes it was trained on, int64 [m]; None: the split's training nodes.
        weight_decay: mu of its training, on all parameters that require a gradient.
        inputs: what another module than ours is called with; None: `pyg_inputs(graph)`, x scaled as the graph wants
            and edge_index.

    Returns:
        What `calirare.jackknife` and the leave-one-out methods take.

    Raises:
        ValueError: the graph has no labels, a node has none, there is no split to take the nodes from, or the module
            does not return logits.
    """
    if labelled is None:
        if graph.split is None:
            raise ValueError(f"fit_of: labelled must be given, graph {graph.name!r} has no split to take it from")
        labelled = graph.split.train
    check_nodes("fit_of", labelled, graph.n_nodes, "labelled")
    if graph.y is None or bool((graph.y[labelled] < 0).any()):
        raise ValueError(f"fit_of: labelled must be labelled nodes, but one of graph {graph.name!r} has no label")
    targets = graph.y[labelled]
    if isinstance(model, GCN) and (type(model) is not GCN or not all(p.requires_grad for p in model.parameters())):
        raise ValueError(
            "fit_of: model must be a plain GCN whose parameters all require a gradient, or another torch module, got a "
            f"{type(model).__name__} that is derived or has frozen parameters: wrap it in a module with model(x, "
            "edge_index)"
        )
    if not isinstance(model, GCN):
        weights = class_weights(targets, graph.n_classes)[targets].float()
        inputs = pyg_inputs(graph) if inputs is None else inputs
        trained = ModuleFit(model.eval(), inputs, labelled, targets, weights, weight_decay)
        if trained.logits().shape[0] != graph.n_nodes:
            got = trained.logits().shape[0]
            raise ValueError(f"fit_of: model must return logits of all {graph.n_nodes} nodes, got {got} rows")
        return trained
    if inputs is not None:
        raise ValueError("fit_of: inputs must be None with a GCN, which reads the graph")
    first = model.weights[0]
    weights = class_weights(targets, model.n_classes)[targets].to(first)
    field = propagation(graph, model.hops).to(first.dtype).field(labelled, model.n_layers)
    return Fit(model.eval(), field, targets, weights, weight_decay, ())


def class_weights(targets: Tensor, n_classes: int) -> Tensor:
    """Returns the weight of each class, inverse to its share (paper, section 4.2), mean 1 over the samples: [k].

    A class without a sample gets weight 0.
    """
    counts = torch.bincount(targets, minlength=n_classes).double()
    present = counts > 0
    weights = torch.zeros_like(counts)
    weights[present] = targets.numel() / (int(present.sum()) * counts[present])
    return weights


Loss = Callable[[Tensor, Tensor, Tensor], Tensor]  # of logits [m, k], targets [m], sample weights [m]


def cross_entropy(logits: Tensor, targets: Tensor, sample_weights: Tensor) -> Tensor:
    """Returns sum_i w_i l_i / m (paper, Eq. 12, cost-sensitive)."""
    return (sample_weights * F.cross_entropy(logits, targets, reduction="none")).mean()


def penalised_loss(
    model: GCN, field: ReceptiveField, targets: Tensor, sample_weights: Tensor, weight_decay: float
) -> Tensor:
    """Returns the objective whose minimum the leave-one-out formulas are about: loss + mu / 2 |theta|^2."""
    penalty = torch.stack([parameter.square().sum() for parameter in model.parameters()]).sum()
    return cross_entropy(model(field), targets, sample_weights) + weight_decay / 2 * penalty


EpochEnd = Callable[[int, Fit], bool | None]


def fit(
    graph: Graph,
    nodes: Tensor,
    settings: TrainingSettings,
    *,
    sample_weights: Tensor | None = None,
    every: int = 0,
    at_checkpoint: EpochEnd | None = None,
    progress: Callable[[int], None] | None = None,
) -> Fit:
    """Trains a network on the given labelled nodes with Adam.

    A step touches only the receptive field of these nodes, which is exact. The same settings give the same network.

    Args:
        graph: the graph with labels.
        nodes: distinct labelled nodes, int64 [m].
        settings: how to train.
        sample_weights: w_i [m]; None: `class_weights` of the nodes' classes.
        every: epochs between checkpoints; 0: none.
        at_checkpoint: called with the number of epochs done and the network so far; True ends training.
        progress: called with the number of epochs done after each.

    Returns:
        The trained network.

    Raises:
        ValueError: a node has no label.
    """
    check_nodes("fit", nodes, graph.n_nodes)
    if nodes.numel() == 0:
        raise ValueError("fit: nodes must name at least one labelled node, got none")
    if graph.y is None or bool((graph.y[nodes] < 0).any()):
        raise ValueError(f"fit: nodes must be labelled, but one of graph {graph.name!r} has no label")
    targets = graph.y[nodes]
    model = GCN(
        graph.n_features,
        graph.n_classes,
        hidden=settings.hidden,
        n_layers=settings.n_layers,
        dropout=settings.dropout,
        hops=settings.hops,
        generator=torch.Generator().manual_seed(settings.seed),
    ).to(graph.device)
    field = propagation(graph, settings.hops).field(nodes, settings.n_layers)
    if sample_weights is None:
        sample_weights = class_weights(targets, graph.n_classes)[targets]
    weights = sample_weights.to(model.weights[0])
    losses: list[Tensor] = []

    def so_far() -> Fit:
        values = torch.stack(losses).tolist() if losses else []
        return Fit(model, field, targets, weights, settings.weight_decay, tuple(values))

    parameters = list(model.parameters())
    optimiser = Adam(parameters, learning_rate=settings.learning_rate, weight_decay=settings.weight_decay)
    generator = torch.Generator(graph.device).manual_seed(settings.seed)
    with threads_for(_step_work(field, settings.hidden)):
        for epoch in range(1, settings.epochs + 1):
            model.train()
            loss = cross_entropy(model(field, generator=generator), targets, weights)
            optimiser.step(torch.autograd.grad(loss, parameters))
            losses.append(loss.detach())  # read at the end: no wait per step on a GPU
            if progress is not None:
                progress(epoch)
            if at_checkpoint is not None and every and epoch % every == 0:
                model.eval()
                if at_checkpoint(epoch, so_far()):
                    break
    model.eval()
    return so_far()


def _step_work(field: ReceptiveField, hidden: int) -> int:
    """Returns the multiply-adds of one forward pass, about."""
    inputs = field.inputs.nnz if isinstance(field.inputs, Csr) else field.inputs.numel()
    return max(hidden, 1) * (inputs + sum(block.nnz for block in field.blocks))
