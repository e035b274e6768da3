"""GAT, GIN and GraphSAGE with one more network per fold of the labels, which also choose how long all are trained."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn import functional as F

from calirare._util.errors import InputError
from calirare._util.torch_state import DrawnFrom
from calirare.graph import Graph, check_nodes
from calirare.models.module_fit import pyg_inputs
from calirare.models.pyg import GatTraining, GinTraining, Near, PygTraining, SageTraining, Steps, everywhere, near
from calirare.models.pyg_networks import PreparedNetwork
from calirare.training import FoldFitted, State, class_weights, cross_entropy, fold_of, prefixed, unprefixed

PYG: dict[str, type[PygTraining]] = {"gat": GatTraining, "gin": GinTraining, "sage": SageTraining}
EVERY = 10  # epochs between two looks at the labels that each network has not seen
PATIENCE = 10  # looks without a lower loss after which no more are taken
MOST_EPOCHS = 500
Epochs = Callable[[int, int], None]  # done, of how many at most


@dataclass(frozen=True, eq=False)
class PygFit(FoldFitted):
    """A network of PyTorch Geometric's layers on all labels, and one without each fold, trained for as many epochs.

    Attributes:
        training: how, with the epochs that were taken.
        width: number of features.
        network: on all labels, in evaluation mode.
        without: without each fold, K of them.
        nodes: the labelled nodes, int64 [m].
        targets: their classes, int64 [m].
        sample_weights: weight of each one's loss, [m].
        fold: of each label, int64 [m].
        own_logits: each label's logits by the network without its fold, float64 [m, k].
        in_sample: each label's logits by the network on all, float64 [m, k].
        mean_squares: of the gradient of each parameter of the network on all, as Adam held them at the end, float32
            [p], parameters one after the other; None: of a run of an earlier version.
    """

    training: PygTraining
    width: int
    network: PreparedNetwork
    without: tuple[PreparedNetwork, ...]
    nodes: Tensor
    targets: Tensor
    sample_weights: Tensor
    fold: Tensor
    own_logits: Tensor
    in_sample: Tensor
    mean_squares: Tensor | None = None

    @property
    def name(self) -> str:
        """Such as "gat"."""
        return name_of(self.training)

    def evaluation_field(self, graph: Graph | None, nodes: Tensor | None = None) -> PygField:
        """See `Fitted.evaluation_field`."""
        if graph is None:
            raise ValueError(f"graph must be given with {self.name}, got None")
        x, edges = pyg_inputs(graph)
        if nodes is None:
            every = torch.arange(graph.n_nodes, device=x.device)
            return PygField(every, everywhere(self.network, x, edges, every))
        check_nodes("evaluation_field", nodes, graph.n_nodes)
        return PygField(nodes, near(self.network, x, edges, nodes))

    def logits_at(self, field: PygField) -> Tensor:
        """See `Fitted.logits_at`; float64."""
        return _said(self.network, field.near)

    def logits_at_labels(self) -> Tensor:
        """See `Fitted.logits_at_labels`."""
        return self.in_sample

    def logits_without_folds(self, field: PygField) -> Tensor:
        """See `FoldFitted.logits_without_folds`."""
        return torch.stack([_said(model, field.near) for model in self.without])

    def state(self) -> State:
        """See `Fitted.state`."""
        out = {name: getattr(self, name) for name in TENSORS}
        if self.mean_squares is not None:
            out["mean_squares"] = self.mean_squares
        for i, model in enumerate((self.network, *self.without)):
            out |= prefixed(f"network.{i}", {name: value.detach() for name, value in model.state_dict().items()})
        return out, {"kind": self.name, "training": dataclasses.asdict(self.training), "width": self.width}

    @classmethod
    def from_state(cls, tensors: dict[str, Tensor], facts: dict[str, Any]) -> Self:
        """Returns what `state` told.

        Raises:
            LookupError: something is missing.
            InputError: PyTorch Geometric is not installed.
        """
        need_pyg(facts["kind"])
        training = PYG[facts["kind"]](**facts["training"])
        k, models = tensors["own_logits"].shape[1], list[PreparedNetwork]()
        for i in range(int(tensors["fold"].max()) + 2):
            with torch.device("meta"):  # sizes that a damaged file tells take no memory
                model = training.network(int(facts["width"]), k)
            model.load_state_dict(unprefixed(f"network.{i}", tensors), assign=True)
            models.append(model.eval())
        parts = {name: tensors[name] for name in TENSORS}
        held = tensors.get("mean_squares")
        return cls(training, int(facts["width"]), models[0], tuple(models[1:]), **parts, mean_squares=held)


TENSORS = ("nodes", "targets", "sample_weights", "fold", "own_logits", "in_sample")


@dataclass(frozen=True, eq=False)
class PygField:
    """Nodes with what a network reads around them.

    Attributes:
        nodes: int64 [n].
        near: what is read.
    """

    nodes: Tensor
    near: Near


@dataclass(frozen=True)
class PygDetector:
    """How a network of PyTorch Geometric's layers is trained with its folds.

    Attributes:
        training: how each network is; its epochs are all taken where `choose` is False.
        choose: whether the networks without each fold choose the epochs, at most `MOST_EPOCHS`, by the mean loss of
            the labels they have not seen. No label is held out of the network on all labels.
        folds: K, at most the number of labels.
    """

    training: PygTraining
    choose: bool = True
    folds: int = 5

    @property
    def seed(self) -> int:
        """Of weights, dropout and folds."""
        return self.training.seed

    def fit(
        self, graph: Graph, nodes: Tensor, *, sample_weights: Tensor | None = None, progress: Epochs | None = None
    ) -> PygFit:
        """Trains on labelled nodes of a graph.

        Args:
            graph: the graph with labels.
            nodes: distinct labelled nodes, int64 [m].
            sample_weights: w_i [m]; None: `class_weights` of the nodes' classes.
            progress: called with the epochs done by the folds, and how many there are at most.

        Raises:
            ValueError: a node has no label.
            InputError: PyTorch Geometric is not installed, or there is one label alone.
        """
        need_pyg(name_of(self.training))
        if graph.y is None or bool((graph.y[nodes] < 0).any()):
            raise ValueError(f"fit: nodes must be labelled, but one of graph {graph.name!r} has no label")
        targets = graph.y[nodes]
        if targets.numel() < 2:
            raise InputError(f"{name_of(self.training)}: two labels are needed at least, got 1: label more nodes")
        weights = class_weights(targets, graph.n_classes)[targets] if sample_weights is None else sample_weights
        weights = weights.to(torch.float32)
        fold = fold_of(targets, min(self.folds, targets.numel()), self.seed)
        every = Together(self.training, graph, nodes, weights, fold)
        epochs = every.choose(progress) if self.choose else every.take(self.training.epochs, progress)
        return every.fitted(epochs)


class Together:
    """The networks without each fold, a few steps at a time, and the one on all labels after them."""

    def __init__(self, training: PygTraining, graph: Graph, nodes: Tensor, weights: Tensor, fold: Tensor) -> None:
        assert graph.y is not None
        self.training, self.nodes, self.weights, self.fold = training, nodes, weights, fold
        self.targets, self.n_classes = graph.y[nodes], graph.n_classes
        self.x, self.edges = pyg_inputs(graph)
        self.steps = [self._start(fold != k) for k in range(int(fold.max()) + 1)]
        some = self.steps[0].model
        self.labels = (everywhere if training.whole_graph else near)(some, self.x, self.edges, nodes)
        self.done = 0

    def choose(self, progress: Epochs | None) -> int:
        """Returns the epochs of the lowest loss of the labels by the networks that have not seen them."""
        best, kept, waited = (float("inf"), 0), list[dict[str, Tensor]](), 0
        while self.done < MOST_EPOCHS and waited < PATIENCE:
            self.take(self.done + EVERY)
            losses = F.cross_entropy(self.own_logits(), self.targets, reduction="none")
            loss = float((self.weights.double() * losses).mean().nan_to_num(nan=torch.inf))
            waited += 1
            if loss < best[0]:
                best, waited = (loss, self.done), 0
                kept = [copy.deepcopy(each.model.state_dict()) for each in self.steps]
            if progress is not None:
                progress(self.done, MOST_EPOCHS)
        if not kept:
            raise InputError(
                f"{name_of(self.training)}: training ran away, no held-out loss is finite: lower the learning rate or "
                "scale the features"
            )
        for each, state in zip(self.steps, kept, strict=True):
            each.model.load_state_dict(state)
        return best[1]

    def take(self, epochs: int, progress: Epochs | None = None) -> int:
        """Takes the folds' networks up to some epochs, which it returns."""
        for each in self.steps:
            self._more(each, self.done, epochs)
        self.done = epochs
        if progress is not None:
            progress(epochs, epochs)
        return epochs

    def own_logits(self) -> Tensor:
        """Returns each label's logits by the network without its fold, float64 [m, k]."""
        said = torch.stack([_said(each.model, self.labels) for each in self.steps])
        return said[self.fold, torch.arange(self.fold.numel(), device=self.fold.device)]

    def fitted(self, epochs: int) -> PygFit:
        """Returns them with a network on all labels, trained for as many epochs."""
        every = self._start(torch.ones_like(self.fold, dtype=torch.bool))
        self._more(every, 0, epochs)
        without, own = tuple(each.model.eval() for each in self.steps), self.own_logits()
        training = dataclasses.replace(self.training, epochs=epochs)
        parts = (self.nodes, self.targets, self.weights, self.fold, own, _said(every.model, self.labels))
        return PygFit(training, self.x.shape[1], every.model.eval(), without, *parts, every.mean_squares())

    def _start(self, kept: Tensor) -> Steps:
        """Returns a network before its first step on some of the labels, bool [m]; every one starts the same."""
        targets, weights = self.targets[kept], self.weights[kept]
        with DrawnFrom(torch.Generator().manual_seed(self.training.seed)):
            model = self.training.network(self.x.shape[1], self.n_classes).to(self.x.device)
        loss = _loss(targets, weights)
        return Steps(model, self.x, self.edges, self.nodes[kept], loss, self.training)

    def _more(self, each: Steps, done: int, epochs: int) -> None:
        """Takes a network from `done` to `epochs`; what dropout draws depends on the seed and the epoch alone."""
        for epoch in range(done, epochs, EVERY):
            seed = (self.training.seed * 1_000_003 + epoch + 1) % 2**63
            each.take(min(EVERY, epochs - epoch), torch.Generator().manual_seed(seed))


def _loss(targets: Tensor, weights: Tensor) -> Callable[[Tensor], Tensor]:
    return lambda logits: cross_entropy(logits, targets, weights)


def _said(model: PreparedNetwork, at: Near) -> Tensor:
    """Returns logits without dropout, float64 [n, k]."""
    model.eval()
    with torch.no_grad():
        return at.logits(model).double()


def name_of(training: PygTraining) -> str:
    """Returns the name of a kind of network, such as "gat"."""
    return next(name for name, kind in PYG.items() if type(training) is kind)


def need_pyg(model: str) -> None:
    """Raises an InputError where PyTorch Geometric is not installed."""
    if find_spec("torch_geometric") is None:
        raise InputError(
            f"model {model} needs torch_geometric, which is not installed: pip install torch_geometric, or take "
            "--model auto"
        )
