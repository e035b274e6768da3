"""A detector of hop columns as a model; where nothing more is known of it, it learns again without a label."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from calirare._util.array_files import NumpyArray
from calirare.explain.column_edges import SharedColumns
from calirare.explain.explainable_model import ExplainableModel, Kept, Shares
from calirare.graph import Graph
from calirare.models import ColumnFit, LearnedColumns

LEARNED = "labels: the detector is trained again without each; feature scaling and calibrator stay fixed"
FIT = 10.0  # multiply-adds of a fit for each number of its columns, roughly
NO_SHARES = "features: the scores of this detector cannot be split by feature"


class ExplainableColumns(ExplainableModel):
    """A detector of hop columns on one graph, with and without edges.

    Args:
        fitted: the detector.
        graph: as it takes it.
        shared: hop columns that other detectors of an average read too; None: nobody does.
    """

    fitted: ColumnFit

    def __init__(self, fitted: ColumnFit, graph: Graph, shared: SharedColumns | None = None) -> None:
        self._kept, self._read = Kept[Tensor](), Kept[NumpyArray]()
        self._without_edges = (shared or SharedColumns(graph)).of(fitted.columns)
        self.fitted, self.graph = fitted.reading(self._without_edges.columns), graph

    def logits(self, nodes: Tensor) -> Tensor:
        """See `ExplainableModel.logits`."""
        return self._kept.of(nodes, lambda some: self.fitted.logits_of(self.graph, some).double())

    def without_edges(self, node: int, ends: Tensor) -> Tensor:
        """See `ExplainableModel.without_edges`."""
        rows = self._without_edges.with_and_without(node, ends).cpu().numpy()
        both = np.concatenate([self._columns(torch.tensor([node])), rows])  # a row of the graph's own, and recomputed
        z = torch.from_numpy(self.fitted.row_logits(both)).double()
        return z[0] + z[2:] - z[1]

    def _columns(self, nodes: Tensor) -> NumpyArray:
        """Returns what is read of nodes, float32 [n, d]."""
        return self._read.of(nodes, lambda some: self.fitted.columns.at(self.graph, some).cpu().numpy())


class RefittedColumns(ExplainableColumns):
    """A detector that can be fitted again: labels are left out by refitting.

    Args:
        fitted: the detector.
        graph: as it takes it.
        shared: see `ExplainableColumns`.
    """

    fitted: LearnedColumns
    notes, label_notes, expensive = (NO_SHARES,), (LEARNED,), True

    @property
    def label_work(self) -> float:  # type: ignore[override]
        """See `ExplainableModel`: a new fit for each label."""
        return FIT * float(self.fitted.rows.numel()) * len(self.fitted.targets)

    def without_each_label(self, nodes: Tensor) -> Tensor:
        """See `ExplainableModel.without_each_label`."""
        return self.without_labels(nodes, list(torch.arange(len(self.fitted.targets)).split(1)))

    def without_labels(self, nodes: Tensor, sets: Sequence[Tensor]) -> Tensor:
        """See `ExplainableModel.without_labels`."""
        rows = self._columns(nodes)
        each = [self.fitted.learned_without(places.cpu().numpy())(rows) for places in sets]
        return torch.from_numpy(np.array(each, dtype=np.float64).reshape(len(each), len(rows), self.fitted.k))

    def with_each_label(self, nodes: Tensor, more: Tensor) -> Tensor:
        """See `ExplainableModel.with_each_label`: the detector learns again with each."""
        rows, others = self._columns(nodes), self._columns(more)
        each = [[self.fitted.learned_with(other[None], y)(rows) for other in others] for y in range(self.fitted.k)]
        return torch.from_numpy(np.array(each, dtype=np.float64))

    def shares(self, nodes: Tensor) -> Shares | None:
        """See `ExplainableModel.shares`: not known of every detector."""
        del nodes
        return None
