"""What training ends with: any trained detector, and a trained network with the derivatives leave-one-out needs."""

from __future__ import annotations

import abc
import copy
import dataclasses
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Protocol, Self, cast, get_type_hints
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from calirare.curvature import Linearisation
from calirare.graph import Graph, check_nodes

Progress = Callable[[int, int], None]  # done, of how many
State = tuple[dict[str, Tensor], dict[str, Any]]  # tensors by name, facts as JSON holds them
REMEMBERED = 20_000_000  # numbers of the last evaluation of a detector with folds that are kept, at most


class Fitted(abc.ABC):
    """A trained detector with the labels it was trained on: what calibration, intervals and reports ask of any.

    Attributes:
        nodes: the labelled nodes, int64 [m].
        targets: classes of the labelled nodes, int64 [m].
        sample_weights: weight of each one's loss, [m].
        columns: what it reads of a node (`models.HopColumns`), of an average what its first member of columns reads;
            None where it reads no columns. As a dataclass's field it is a `field()`, or None would be its default.
        kinds: every kind of detector by its class's name.
        in_files: whether a file can hold this kind.
    """

    nodes: Tensor
    targets: Tensor
    sample_weights: Tensor
    columns: Any = None
    kinds: ClassVar[dict[str, type[Fitted]]] = {}
    in_files: ClassVar[bool] = True

    def __init_subclass__(cls, **options: Any) -> None:
        """Enters a kind of detector under its name, by which a file says what it holds."""
        super().__init_subclass__(**options)
        Fitted.kinds[cls.__name__] = cls

    @property
    def needs_graph(self) -> bool:
        """Whether a graph must be given to evaluate it; else it knows its inputs."""
        return True

    @property
    def scores_graphs(self) -> bool:
        """Whether it can score nodes of other graphs than its own."""
        return True

    @property
    def needs_check(self) -> bool:
        """Whether nobody compared its leave-one-out logits with held-out ones: a network that was trained elsewhere."""
        return False

    @property
    def closed_form(self) -> FittedNetwork | None:
        """The detector where it is one network, whose labels are left out in closed form; None of others."""
        return None

    @property
    def folded(self) -> FoldFitted | None:
        """The detector where models without each fold leave its labels out; None of others."""
        return None

    def reading(self, columns: Any) -> Self:
        """Returns the detector with others in the place of equal `columns`, so that several share them."""
        del columns
        return self

    def logits_of_columns(self, columns: Tensor) -> Tensor:
        """Returns the logits of rows of columns, float32 [n, d] -> [n, k], of a detector that reads `columns`."""
        raise NotImplementedError(f"a {type(self).__name__} reads no columns")

    @property
    def epochs(self) -> int:
        """Epochs trained; 0 where it has none."""
        return 0

    @property
    def chosen(self) -> dict[str, Any]:
        """The settings of its training that labels may choose, by name."""
        return {}

    @property
    def n_classes(self) -> int:
        """Number of classes, k."""
        return self.label_logits.shape[1]

    @property
    def label_logits(self) -> Tensor:
        """The logits of the labelled nodes, [m, k], made once."""
        return self.logits_at_labels()

    @abc.abstractmethod
    def logits_at_labels(self) -> Tensor:
        """Returns the logits of the labelled nodes, [m, k], without gradient."""

    def parts_of(self, graph: Graph | None, nodes: Tensor | None = None) -> list[Tensor | None]:
        """Returns the nodes that are asked for (None: all) in parts that are best evaluated one after the other."""
        del graph
        return [nodes]

    def evaluate_part(self, graph: Graph | None, nodes: Tensor | None, *, folds: bool) -> tuple[Tensor, ...]:
        """Returns the logits of nodes that are evaluated together (None: all), [n, k], without gradient.

        With `folds` a detector that has folds returns those by each fold's model too, [K, n, k].
        """
        raise NotImplementedError(f"a {type(self).__name__} is not evaluated in parts")

    def evaluate(
        self, graph: Graph | None, nodes: Tensor | None = None, *, folds: bool = False, progress: Progress | None = None
    ) -> tuple[Tensor, ...]:
        """Returns what `evaluate_part` returns, of all parts; arguments as of `logits_of`."""
        if graph is None and self.needs_graph:
            raise ValueError(f"graph must be given with a {type(self).__name__}, got None")
        if graph is not None and nodes is not None:
            check_nodes("logits_of", nodes, graph.n_nodes)
        parts, found = self.parts_of(graph, nodes), list[tuple[Tensor, ...]]()
        for part in parts:
            found.append(self.evaluate_part(graph, part, folds=folds))
            if progress is not None and len(parts) > 1:
                progress(len(found), len(parts))
        return tuple(joined(list(each)) for each in zip(*found, strict=True))

    def logits_of(
        self, graph: Graph | None, nodes: Tensor | None = None, *, progress: Progress | None = None
    ) -> Tensor:
        """Returns the logits of some nodes of a graph, or of all, [n, k], without gradient.

        Args:
            graph: the graph; None only where the detector knows its inputs.
            nodes: int64 [n]; None: all.
            progress: called with the number of parts done, and of all, where there are several.

        Raises:
            ValueError: there is no graph, or no such node.
        """
        return self.evaluate(graph, nodes, progress=progress)[0]

    def state(self) -> State:
        """Returns all that `from_state` makes it of again: tensors by name, and facts as JSON holds them.

        Raises:
            NotImplementedError: it cannot be written as tensors, as a module of the user's own.
        """
        tensors, facts = dict[str, Tensor](), dict[str, Any]()
        for name in _stored(type(self)):
            value = getattr(self, name)
            if isinstance(value, Tensor):
                tensors[name] = value.contiguous()
            elif hasattr(value, "state"):
                own, facts[name] = value.state()
                tensors |= prefixed(name, own)
                if isinstance(value, Fitted):
                    facts[name] = {"kind": type(value).__name__, "fit": facts[name]}
            else:
                facts[name] = value
        return tensors, facts

    @classmethod
    def from_state(cls, tensors: dict[str, Tensor], facts: dict[str, Any]) -> Self:
        """Returns what `state` was taken from.

        Raises:
            LookupError: something is missing, or no file holds this kind.
        """
        made, kinds = dict[str, Any](), get_type_hints(cls)
        for name in _stored(cls):
            own = unprefixed(name, tensors)
            if isinstance(kinds[name], type) and issubclass(kinds[name], Fitted):
                made[name] = cls.kinds[facts[name]["kind"]].from_state(own, facts[name]["fit"])
            elif hasattr(kinds[name], "from_state"):
                made[name] = kinds[name].from_state(own, facts[name])
            else:
                made[name] = tensors[name] if kinds[name] is Tensor else kinds[name](facts[name])
        return cls(**made)

    def on_cpu(self) -> Fitted:
        """Returns the detector on the CPU, without what it can work out again; where no file holds it, itself."""
        if self.nodes.device.type == "cpu":
            return self
        try:
            tensors, facts = self.state()
        except NotImplementedError:
            return self
        return self.from_state({name: tensor.cpu() for name, tensor in tensors.items()}, facts)


class FoldFitted(Fitted):
    """A detector with one more model per fold of its labels, each trained without that fold (CV+).

    Every label has an honest prediction, by the model that has not seen it, and every node one score per fold: what
    closed-form leave-one-out gives of a network, for anything that can be trained.

    Attributes:
        fold: of each label, int64 [m], 0 to K - 1, each used.
        own_logits: of each label by the model without its fold, float64 [m, k].
    """

    fold: Tensor
    own_logits: Tensor

    @property
    def folded(self) -> Self:
        """See `Fitted.folded`."""
        return self

    def judged_by_folds(self, graph: Graph) -> FoldFitted:
        """Returns the detector with `own_logits` by models that have not seen a label's fold at all.

        Leave-one-out in closed form is a step away from a network that has seen the label. Where labels are wrong, a
        network that learnt them by heart is not left behind by one step, and what remains hides just those.

        Args:
            graph: the run's own, as the detector takes it.
        """
        del graph
        return self

    def all_logits_of(self, graph: Graph | None, nodes: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Returns the logits of some nodes, or of all, [n, k], and those by each fold's model, [K, n, k].

        The last logits are kept for one more call with the same nodes (intervals and ranges need the same ones).
        """
        last = _LAST.pop(self, None)
        if last is not None and last[0] is graph and last[1] is nodes:
            return last[2]
        own, without = self.evaluate(graph, nodes, folds=True)
        if without.numel() <= REMEMBERED:
            _LAST[self] = graph, nodes, (own, without)
        return own, without


# Outside of the detectors, so that no copy and no pickle of one holds a graph.
_LAST: WeakKeyDictionary[FoldFitted, tuple[Graph | None, Tensor | None, tuple[Tensor, Tensor]]] = WeakKeyDictionary()


class Wrapper(FoldFitted):
    """A detector with folds that is made of another one, `inner`, and has its labels."""

    @property
    @abc.abstractmethod
    def inner(self) -> Fitted:
        """The other one."""

    @property
    def nodes(self) -> Tensor:  # type: ignore[override]  # the other's own
        """The labelled nodes, int64 [m]."""
        return self.inner.nodes

    @property
    def targets(self) -> Tensor:  # type: ignore[override]
        """Their classes, int64 [m]."""
        return self.inner.targets

    @property
    def sample_weights(self) -> Tensor:  # type: ignore[override]
        """Weight of each one's loss, [m]."""
        return self.inner.sample_weights

    @property
    def columns(self) -> Any:
        """See `Fitted`."""
        return self.inner.columns


class FittedNetwork(Fitted):
    """A trained network with the labels it was trained on.

    Attributes:
        model: the network, in evaluation mode.
        nodes: the labelled nodes, int64 [m].
        targets: classes of the labelled nodes, int64 [m].
        sample_weights: weight of each one's loss, [m].
        weight_decay: mu of the penalty mu / 2 |theta|^2 on all parameters that require a gradient.
    """

    model: nn.Module
    weight_decay: float
    unseen: Any = None  # labelled nodes that it was not trained on and their classes, where it knows some
    second_moments: Any = None  # of the gradient, where its optimiser's state was kept

    @property
    def closed_form(self) -> Self:
        """See `Fitted.closed_form`."""
        return self

    @abc.abstractmethod
    def evaluation_field(self, graph: Graph | None, nodes: Tensor | None = None) -> Any:
        """Returns where it is to be evaluated: at some nodes of a graph, int64 [n], or at all."""

    def scoring_field(self, graph: Graph | None, nodes: Tensor | None = None) -> Any:
        """Returns an evaluation field for logits only, which may be made with less."""
        return self.evaluation_field(graph, nodes)

    @abc.abstractmethod
    def logits_at(self, field: Any) -> Tensor:
        """Returns the logits of an evaluation field's nodes, [n_v, k], without gradient."""

    def evaluate_part(self, graph: Graph | None, nodes: Tensor | None, *, folds: bool) -> tuple[Tensor, ...]:
        """See `Fitted.evaluate_part`."""
        del folds
        return (self.logits_at(self.scoring_field(graph, nodes)),)

    def parameters(self) -> list[nn.Parameter]:
        """Returns the parameters that take part, in the order of `theta`."""
        return [p for p in self.model.parameters() if p.requires_grad]

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """Names of the parameters that take part, in the order of `theta`."""
        names = {id(parameter): name for name, parameter in self.model.named_parameters()}
        return tuple(names[id(parameter)] for parameter in self.parameters())

    @property
    def label_logits(self) -> Tensor:
        """The logits of the labelled nodes, [m, k], made once."""
        return self.linearisation.logits

    @abc.abstractmethod
    def linearise(self) -> Linearisation:
        """Returns the network linearised at its present parameters, recomputed."""

    @property
    def linearisation(self) -> Linearisation:
        """The same, made once and kept until a parameter changes."""
        versions = [(p.data_ptr(), p._version) for p in self.model.parameters()]
        kept = self.__dict__.get("_linearised")
        if kept is None or kept[0] != versions:
            kept = (versions, self.linearise())
            self.__dict__["_linearised"] = kept
        return kept[1]

    def __getstate__(self) -> dict[str, Any]:
        """Leaves what can be recomputed out of copies and files."""
        return {name: value for name, value in self.__dict__.items() if name != "_linearised"}

    @property
    def theta(self) -> Tensor:
        """The parameters that take part, as one vector [p]."""
        return flat(p.detach() for p in self.parameters())

    def move_to(self, theta: Tensor) -> None:
        """Writes parameters [p] into the model."""
        parameters = self.parameters()
        with torch.no_grad():
            for parameter, part in zip(parameters, theta.split([p.numel() for p in parameters]), strict=True):
                parameter.copy_(part.view_as(parameter))

    @abc.abstractmethod
    def objective(self, theta: Tensor) -> tuple[float, Tensor]:
        """Returns sum_i w_i l_i / m + mu / 2 |theta|^2 and its gradient [p]; may write theta into the model."""

    @abc.abstractmethod
    def linearised_at(self, theta: Tensor) -> Linearisation:
        """Returns the network linearised at other parameters [p]; may write them into the model."""

    @abc.abstractmethod
    def gradient_norm(self) -> float:
        """Returns |grad| of the penalised loss without dropout; 0 at a stationary point."""

    def copy(self, *, sample_weights: Tensor | None = None) -> Self:
        """Returns a copy with a model of its own, and other weights where they are given."""
        weights, network = self.sample_weights if sample_weights is None else sample_weights, cast(Any, self)
        return cast(Self, dataclasses.replace(network, model=copy.deepcopy(self.model), sample_weights=weights))

    @abc.abstractmethod
    def as_dtype(self, graph: Graph | None, dtype: torch.dtype) -> Self:
        """Returns a copy in another floating-point type, on the same labelled nodes of the graph."""


def _stored(kind: type[Fitted]) -> list[str]:
    """Returns the names of a detector's attributes that a file holds."""
    if not dataclasses.is_dataclass(kind) or not kind.in_files:
        raise NotImplementedError(f"{kind.__name__} cannot be written to a file")
    return [each.name for each in dataclasses.fields(kind) if not each.name.startswith("_")]


class Detector(Protocol):
    """How a kind of detector is trained: its settings, and `fit`."""

    @property
    def seed(self) -> int:
        """Seed of all random numbers of the detector."""
        ...

    def fit(self, graph: Graph, nodes: Tensor, *, sample_weights: Tensor | None = None) -> Fitted:
        """Trains on labelled nodes of a graph, int64 [m]; `sample_weights` [m], None: by class share."""
        ...


@contextmanager
def evaluating(model: object) -> Iterator[None]:
    """Keeps a module in evaluation mode, and gives every part its own mode back; anything else is left alone."""
    modes = {part: part.training for part in model.modules()} if isinstance(model, nn.Module) else {}
    for part in modes:
        part.training = False
    try:
        yield
    finally:
        for part, training in modes.items():
            part.training = training


def prefixed(name: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Returns tensors under names that begin with `name` and a dot."""
    return {f"{name}.{key}": value for key, value in tensors.items()}


def unprefixed(name: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Returns the tensors whose names begin so, without it."""
    return {key.removeprefix(f"{name}."): value for key, value in tensors.items() if key.startswith(f"{name}.")}


def joined(parts: list[Tensor]) -> Tensor:
    """Returns logits of parts of some nodes, [.., n_i, k], as those of all of them."""
    return parts[0] if len(parts) == 1 else torch.cat(parts, -2)


def flat(tensors: Iterable[Tensor]) -> Tensor:
    """Returns tensors as one vector."""
    return torch.cat([tensor.flatten() for tensor in tensors])
