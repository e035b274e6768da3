"""Detectors that score a node by its hop columns: what all of them share, and a base class for new ones.

A subclass of `ColumnDetector` says how rows of columns are learned, and has everything else of a detector: columns of a
graph, folds, scores of large graphs, of new nodes and of graphs on disk, files, and explanations.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from calirare._util.array_files import NumpyArray
from calirare._util.steps import progress
from calirare.graph import Graph
from calirare.models.columns import HopColumns
from calirare.models.crossfit import class_weights, labels_at, time_folds
from calirare.models.fitted import FoldFitted, State

Scores = Callable[[NumpyArray], NumpyArray]  # of rows float32 [n, d]: logits [n, k]


@dataclass(frozen=True, eq=False)
class ColumnFit(FoldFitted):
    """A model of rows of columns, and one without each fold, with the labels that they learned from.

    Attributes:
        columns: what is read of a graph.
        nodes: the labelled nodes, int64 [m].
        targets: their classes, int64 [m].
        sample_weights: weight of each one's loss, [m].
    """

    columns: HopColumns = field()
    nodes: Tensor
    targets: Tensor
    sample_weights: Tensor

    @abc.abstractmethod
    def row_logits(self, rows: NumpyArray) -> NumpyArray:
        """Returns the logits of rows of columns, float32 [n, d] -> float64 [n, k]."""

    @abc.abstractmethod
    def row_logits_without_folds(self, rows: NumpyArray) -> NumpyArray:
        """Returns the same by the model without each fold, float64 [K, n, k]."""

    def side_by_side(self) -> Self:
        """Returns the detector as it scores many rows with as many threads as torch has."""
        return self

    def logits_of_columns(self, columns: Tensor) -> Tensor:
        """See `Fitted.logits_of_columns`; float64."""
        return torch.from_numpy(self.row_logits(columns.cpu().numpy())).to(columns.device)

    def reading(self, columns: HopColumns) -> Self:
        """See `Fitted.reading`."""
        return dataclasses.replace(self, columns=columns)

    def parts_of(self, graph: Graph | None, nodes: Tensor | None = None) -> list[Tensor | None]:
        """See `Fitted.parts_of`."""
        return [nodes] if graph is None else self.columns.parts_of(graph, nodes)

    def evaluate_part(self, graph: Graph | None, nodes: Tensor | None, *, folds: bool) -> tuple[Tensor, ...]:
        """See `Fitted.evaluate_part`; float64."""
        assert graph is not None
        columns = self.columns.of(graph).x if nodes is None else self.columns.at(graph, nodes)
        assert isinstance(columns, Tensor)
        own = self.logits_of_columns(columns)
        if not folds:
            return (own,)
        return own, torch.from_numpy(self.row_logits_without_folds(columns.cpu().numpy())).to(columns.device)


def labelled_rows(
    graph: Graph, nodes: Tensor, columns: HopColumns | None, hops: int, seed: int
) -> tuple[HopColumns, Tensor, Tensor]:
    """Returns columns, those of labelled nodes, float32 [m, d], and their classes, int64 [m].

    Args:
        graph: the graph with labels.
        nodes: int64 [m].
        columns: fitted before; None: fitted on the graph.
        hops: how far these reach.
        seed: of the fit.

    Raises:
        ValueError: a node has no label.
    """
    targets = labels_at(graph, nodes)
    columns = HopColumns.fit(graph, hops, seed, nodes) if columns is None else columns
    return columns, columns.at(graph, nodes), targets


@dataclass(frozen=True, kw_only=True)
class ColumnDetector(abc.ABC):
    """How a model of rows of columns is trained on a graph; a subclass says `learn`.

    Its settings are plain values, which a file holds: a run that is read learns again from its labelled rows.

    Attributes:
        hops: how far the columns reach, see `HopColumns`.
        folds: parts of the labels that are left out in turn, at most as many as labels.
        seed: of everything random.
    """

    kinds: ClassVar[dict[str, type[ColumnDetector]]] = {}

    hops: int = 2
    folds: int = 5
    seed: int = 0

    def __init_subclass__(cls, **options: Any) -> None:
        """Enters a detector under its name, by which a file says what it holds."""
        super().__init_subclass__(**options)
        ColumnDetector.kinds[cls.__name__] = cls

    def state(self) -> State:
        """Returns what `from_state` makes it of again."""
        return {}, {"kind": type(self).__name__, "settings": dataclasses.asdict(self)}

    @classmethod
    def from_state(cls, tensors: dict[str, Tensor], facts: dict[str, Any]) -> ColumnDetector:
        """Returns what `state` was taken from.

        Raises:
            LookupError: a part is missing, or the module that defines the detector was not imported.
        """
        del tensors
        return ColumnDetector.kinds[facts["kind"]](**facts["settings"])

    @abc.abstractmethod
    def learn(self, rows: NumpyArray, targets: NumpyArray, weights: NumpyArray, n_classes: int) -> Scores:
        """Returns what gives rows of columns their logits; the same arguments must give the same.

        Args:
            rows: of labelled nodes, float32 [m, d].
            targets: their classes, int64 [m], in [0, n_classes); a class may be absent.
            weights: of each label's loss, float64 [m].
            n_classes: k.
        """

    def fit(self, graph: Graph, nodes: Tensor, *, sample_weights: Tensor | None = None) -> LearnedColumns:
        """Learns from labelled nodes of a graph; see `training.Detector.fit`."""
        columns, rows, targets = labelled_rows(graph, nodes, None, self.hops, self.seed)
        if sample_weights is None:
            sample_weights = class_weights(targets, graph.n_classes)[targets]
        fold = time_folds(graph, nodes, min(self.folds, nodes.numel()), self.seed)
        return LearnedColumns(columns, nodes, targets, sample_weights, fold, rows, graph.n_classes, self)


@dataclass(frozen=True, eq=False)
class LearnedColumns(ColumnFit):
    """What a `ColumnDetector` learned; attributes as of `ColumnFit`.

    Attributes:
        fold: of each label, int64 [m].
        rows: columns of the labelled nodes, float32 [m, d].
        k: number of classes.
        detector: learns from them.
    """

    fold: Tensor
    rows: Tensor
    k: int
    detector: ColumnDetector

    @property
    def n_classes(self) -> int:
        """See `Fitted.n_classes`."""
        return self.k

    def __getstate__(self) -> dict[str, Any]:
        """Leaves what can be learned again out of copies and files."""
        return {each.name: getattr(self, each.name) for each in dataclasses.fields(self)}

    def learned_without(self, places: NumpyArray) -> Scores:
        """Returns what is learned without some of the labels, int64, places among them."""
        kept = np.setdiff1d(np.arange(len(self.targets)), places)
        rows, targets, weights = self._labels
        return self.detector.learn(rows[kept], targets[kept], weights[kept], self.k)

    def learned_with(self, row: NumpyArray, y: int) -> Scores:
        """Returns what is learned with one more label, of columns float32 [1, d]; it weighs what its class's do."""
        rows, targets, weights = self._labels
        alike = weights[targets == y]
        more = np.array([alike.mean() if len(alike) else 1.0])
        parts = (np.concatenate([rows, row]), np.append(targets, y), np.concatenate([weights, more]))
        return self.detector.learn(*parts, self.k)

    @property
    def _labels(self) -> tuple[NumpyArray, NumpyArray, NumpyArray]:
        """Columns, classes and weights of the labelled nodes."""
        return self.rows.cpu().numpy(), self.targets.cpu().numpy(), self.sample_weights.double().cpu().numpy()

    @cached_property
    def _whole(self) -> Scores:
        return self.learned_without(np.zeros(0, dtype=np.int64))

    @cached_property
    def _without(self) -> list[Scores]:
        return [self.learned_without(held) for held in progress("folds", list(self._held))]

    @property
    def _held(self) -> Iterator[NumpyArray]:
        """The places of the labels of each fold."""
        fold = self.fold.cpu().numpy()
        return (np.flatnonzero(fold == f) for f in range(int(fold.max()) + 1))

    @cached_property
    def own_logits(self) -> Tensor:  # type: ignore[override]
        """See `FoldFitted`."""
        rows, out = self.rows.cpu().numpy(), np.empty((len(self.targets), self.k))
        for held, scores in zip(self._held, self._without, strict=True):
            out[held] = scores(rows[held])
        return torch.from_numpy(out).to(self.nodes.device)

    def logits_at_labels(self) -> Tensor:
        """See `Fitted.logits_at_labels`."""
        return self.logits_of_columns(self.rows)

    def row_logits(self, rows: NumpyArray) -> NumpyArray:
        """See `ColumnFit.row_logits`."""
        return np.asarray(self._whole(rows), dtype=np.float64)

    def row_logits_without_folds(self, rows: NumpyArray) -> NumpyArray:
        """See `ColumnFit.row_logits_without_folds`."""
        return np.stack([np.asarray(scores(rows), dtype=np.float64) for scores in self._without])
