"""What training ends with: any trained detector, and a trained network with the derivatives leave-one-out needs."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Protocol, Self

import torch
from torch import Tensor, nn

from calirare.curvature import Linearisation
from calirare.graph import Graph

Progress = Callable[[int, int], None]  # done, of how many
State = tuple[dict[str, Tensor], dict[str, Any]]  # tensors by name, facts as JSON holds them


class Fitted(abc.ABC):
    """A trained detector with the labels it was trained on: what calibration, intervals and reports ask of any.

    Attributes:
        nodes: the labelled nodes, int64 [m].
        targets: classes of the labelled nodes, int64 [m].
        sample_weights: weight of each one's loss, [m].
        columns: what it reads of a node (`models.HopColumns`), of an average what its first member of columns reads;
            None where it reads no columns. As a dataclass's field it is a `field()`, or None would be its default.
        kinds: every kind of detector by its class's name.
    """

    nodes: Tensor
    targets: Tensor
    sample_weights: Tensor
    columns: Any = None
    kinds: ClassVar[dict[str, type[Fitted]]] = {}

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
    def evaluation_field(self, graph: Graph | None, nodes: Tensor | None = None) -> Any:
        """Returns where it is to be evaluated: at some nodes of a graph, int64 [n], or at all."""

    @abc.abstractmethod
    def logits_at(self, field: Any) -> Tensor:
        """Returns the logits of an evaluation field's nodes, [n_v, k], without gradient."""

    @abc.abstractmethod
    def logits_at_labels(self) -> Tensor:
        """Returns the logits of the labelled nodes, [m, k], without gradient."""

    def parts_of(self, graph: Graph | None, nodes: Tensor | None = None) -> list[Tensor | None]:
        """Returns the nodes that are asked for (None: all) in parts that are best evaluated one after the other."""
        del graph
        return [nodes]

    def scoring_field(self, graph: Graph | None, nodes: Tensor | None = None) -> Any:
        """Returns an evaluation field for logits alone, which may be made with less."""
        return self.evaluation_field(graph, nodes)

    def logits_of(
        self, graph: Graph | None, nodes: Tensor | None = None, *, progress: Progress | None = None
    ) -> Tensor:
        """Returns the logits of some nodes of a graph, or of all, [n, k], without gradient.

        Args:
            graph: the graph; None only where the detector knows its inputs.
            nodes: int64 [n]; None: all.
            progress: called with the number of parts done, and of all, where there are several.
        """
        parts, out = self.parts_of(graph, nodes), list[Tensor]()
        for part in parts:
            out.append(self.logits_at(self.scoring_field(graph, part)))
            if progress is not None and len(parts) > 1:
                progress(len(out), len(parts))
        return joined(out)

    def state(self) -> State:
        """Returns all that `from_state` makes it of again: tensors by name, and facts as JSON holds them.

        Raises:
            NotImplementedError: it cannot be told in tensors, as a module of the user's own.
        """
        raise NotImplementedError(f"{type(self).__name__} cannot be written to a file")

    @classmethod
    def from_state(cls, tensors: dict[str, Tensor], facts: dict[str, Any]) -> Self:
        """Returns what `state` was taken from.

        Raises:
            LookupError: something is missing, or no file holds this kind.
        """
        del tensors, facts
        raise LookupError(f"no file holds a {cls.__name__}")

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

    @abc.abstractmethod
    def logits_without_folds(self, field: Any) -> Tensor:
        """Returns the logits of an evaluation field's nodes by each fold's model, [K, n_v, k]."""

    def all_logits_of(self, graph: Graph | None, nodes: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Returns the logits of some nodes, or of all, [n, k], and those by each fold's model, [K, n, k]."""
        pairs = []
        for part in self.parts_of(graph, nodes):
            field = self.scoring_field(graph, part)
            pairs.append((self.logits_at(field), self.logits_without_folds(field)))
        return joined([own for own, _ in pairs]), joined([without for _, without in pairs])


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

    @property
    def closed_form(self) -> Self:
        """See `Fitted.closed_form`."""
        return self

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """Names of the parameters that take part, in the order of `theta`."""
        return tuple(name for name, parameter in self.model.named_parameters() if parameter.requires_grad)

    @property
    def label_logits(self) -> Tensor:
        """The logits of the labelled nodes, [m, k], made once."""
        return self.linearisation.logits

    @abc.abstractmethod
    def linearise(self) -> Linearisation:
        """Returns the network linearised at its present parameters, made anew."""

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
        """Leaves what can be made anew out of copies and files."""
        return {name: value for name, value in self.__dict__.items() if name != "_linearised"}

    @property
    @abc.abstractmethod
    def theta(self) -> Tensor:
        """The parameters that take part, as one vector [p]."""

    @abc.abstractmethod
    def move_to(self, theta: Tensor) -> None:
        """Writes parameters [p] into the model."""

    @abc.abstractmethod
    def objective(self, theta: Tensor) -> tuple[float, Tensor]:
        """Returns sum_i w_i l_i / m + mu / 2 |theta|^2 and its gradient [p]; may write theta into the model."""

    @abc.abstractmethod
    def linearised_at(self, theta: Tensor) -> Linearisation:
        """Returns the network linearised at other parameters [p]; may write them into the model."""

    @abc.abstractmethod
    def gradient_norm(self) -> float:
        """Returns |grad| of the penalised loss without dropout; 0 at a stationary point."""

    @abc.abstractmethod
    def copy(self, *, sample_weights: Tensor | None = None) -> Self:
        """Returns a copy with a model of its own, and other weights where they are given."""

    @abc.abstractmethod
    def as_dtype(self, graph: Graph | None, dtype: torch.dtype) -> Self:
        """Returns a copy in another floating-point type, on the same labelled nodes of the graph."""

    @abc.abstractmethod
    def inputs_read(self) -> tuple[Any, ...]:
        """Returns what the network reads beside its parameters, for a checksum."""


class Detector(Protocol):
    """How a kind of detector is trained: its settings, and `fit`."""

    @property
    def seed(self) -> int:
        """Of everything random in it."""
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
