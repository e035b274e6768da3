"""What trained detectors say of a few new nodes of a known graph: exactly what they would say in the whole graph.

A new edge changes the degree of the known node at its other end, and with it that node's row of A_hat and of the mean
of neighbours: rows near new nodes are made anew, everything else is read as it is.
"""

from __future__ import annotations

from functools import cached_property, partial
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from calirare._util.array_files import NumpyArray
from calirare._util.errors import InputError
from calirare.graph import Graph, normalize_features
from calirare.models.columns import HopColumns
from calirare.models.folded import FoldedNetwork
from calirare.models.gcn_fit import GcnFit
from calirare.models.hops import HopsFit
from calirare.models.joined import JoinedRows, KnownRows, Level, MadeLevel, NewEdges, product
from calirare.models.mixture import Mixture
from calirare.models.tree_fit import ColumnField, TreesFit
from calirare.training import Fitted
from calirare_ext import Csr, row_sums, times


class KnownGraph:
    """A graph that new nodes join, and a detector that is asked about them: what is made once for all of them.

    Args:
        fitted: the detector: a graph convolution, a perceptron or trees on hop columns, or an average of such.
        graph: as the detector takes it, on the CPU.

    Raises:
        InputError: the detector is another, or the graph has typed or directed relations.
    """

    def __init__(self, fitted: Fitted, graph: Graph) -> None:
        if graph.relations:
            raise InputError(
                f"graph {graph.name!r}: new nodes must join a graph of undirected edges of one kind, this one has "
                "typed or directed relations: score the whole graph with them (calirare predict)"
            )
        self.graph, self.rows = graph, KnownRows(graph)
        self.parts: list[_Gcn | _Columns] = []
        self.fitted, self.members = fitted, fitted.members if isinstance(fitted, Mixture) else ()
        for each in [member.fitted for member in self.members] or [fitted]:
            self.parts.append(self._part(each))

    def _part(self, fitted: Fitted) -> _Gcn | _Columns:
        network = fitted.network if isinstance(fitted, FoldedNetwork) else fitted
        if isinstance(network, HopsFit | TreesFit):
            shared = (each.near for each in self.parts if isinstance(each, _Columns))
            known = next((near for near in shared if near.columns.same_as(network.columns)), None)
            return _Columns(network, known or NearColumns(network.columns, self.graph))
        if isinstance(network, GcnFit):
            return _Gcn(network, self.graph)
        raise InputError(f"new nodes: a {type(fitted).__name__} cannot be asked about them: score the whole graph")

    def logits(self, x: Tensor, edges: NewEdges) -> Tensor:
        """Returns the logits of new nodes, [b, k].

        Args:
            x: their features as the detector takes them, float32 [b, d].
            edges: theirs.
        """
        joined = JoinedRows(self.rows, edges)
        said = [part.logits(x, joined) for part in self.parts]
        return self.fitted.pooled(said) if isinstance(self.fitted, Mixture) else said[0]


class NearColumns:
    """Hop columns of new nodes.

    Args:
        columns: what is read.
        graph: the known graph.
    """

    def __init__(self, columns: HopColumns, graph: Graph) -> None:
        self.columns, self.graph = columns, graph
        self._last: tuple[JoinedRows, Tensor] | None = None

    @cached_property
    def x(self) -> Tensor:
        """The features that are propagated, [n, d]."""
        x = self.columns.ready(self.graph).x
        return x.to_dense() if isinstance(x, Csr) else x

    def of(self, x: Tensor, joined: JoinedRows) -> Tensor:
        """Returns the columns of new nodes, float32 [b, d]; the last answer is kept for the next detector."""
        if self._last is None or self._last[0] is not joined:
            found = self.columns.scaled.of_numbers(self._raw(x, joined))
            self._last = joined, found
        return self._last[1]

    def _raw(self, x: Tensor, joined: JoinedRows) -> Tensor:
        n, b = joined.known.n, x.shape[0]
        new, below = np.arange(n, n + b), Level(self.x, self.columns.propagated(x).numpy())
        blocks = [below.own]

        def mean(nodes: NumpyArray, below: Level) -> NumpyArray:
            place, columns, values = joined.entries(nodes)
            total = np.bincount(place, values, len(nodes))
            return product(place, values / total[place], len(nodes), below.at(columns))

        for _ in range(self.columns.hops):
            below = MadeLevel(partial(mean, below=below))
            blocks.append(below.make(new))
        if self.columns.hops:
            degree = np.bincount(joined.entries(new)[0], minlength=b)
            blocks.append(np.log1p(degree.astype(np.float32))[:, None])
        return torch.from_numpy(np.concatenate(blocks, 1))


class _Columns:
    """A perceptron or trees on hop columns."""

    def __init__(self, fitted: HopsFit | TreesFit, near: NearColumns) -> None:
        self.fitted, self.near = fitted, near

    def logits(self, x: Tensor, joined: JoinedRows) -> Tensor:
        found = self.near.of(x, joined)
        if isinstance(self.fitted, TreesFit):
            return self.fitted.logits_at(ColumnField(torch.arange(x.shape[0]), found))
        z = found
        with torch.no_grad():
            for level, (weight, bias) in enumerate(self.fitted.model.layers()):
                z = (F.relu(z) if level else z) @ weight + bias
        return z


class _Gcn:
    """A graph convolution: X W of the known nodes is made once, and their degrees."""

    def __init__(self, fitted: GcnFit, graph: Graph) -> None:
        self.layers = [tuple(part.detach() for part in layer) for layer in fitted.model.layers()]
        self.hops = fitted.model.hops
        self.first = times(normalize_features(graph).x, self.layers[0][0])
        loops = _stored_loops(graph.adjacency)
        self.degree = (row_sums(graph.adjacency) + (~loops).double()).numpy()
        self.loops = loops.numpy()

    def logits(self, x: Tensor, joined: JoinedRows) -> Tensor:
        n, b = joined.known.n, x.shape[0]
        below = Level(self.first, (x @ self.layers[0][0]).numpy())

        def spread(nodes: NumpyArray, below: Level) -> NumpyArray:
            """Returns rows of A_hat times what is below."""
            place, columns, weights = self._normalised(joined, nodes)
            return product(place, weights, len(nodes), below.at(columns))

        def activated(nodes: NumpyArray, below: Level, bias: NumpyArray, weight: NumpyArray) -> NumpyArray:
            return np.maximum(below.at(nodes) + bias, 0) @ weight

        for _ in range(self.hops):
            below = MadeLevel(partial(spread, below=below))
        for (_, bias), (weight, _) in pairwise(self.layers):
            hidden = MadeLevel(partial(activated, below=below, bias=bias.numpy(), weight=weight.numpy()))
            below = MadeLevel(partial(spread, below=hidden))
        return torch.from_numpy(below.at(np.arange(n, n + b))) + self.layers[-1][1]

    def _normalised(self, joined: JoinedRows, nodes: NumpyArray) -> tuple[NumpyArray, NumpyArray, NumpyArray]:
        """Returns the entries of rows of A_hat: place of the row, column, value."""
        place, columns, values = joined.entries(nodes)
        bare = np.flatnonzero(~self._looped(joined, nodes))
        place, columns = np.concatenate([place, bare]), np.concatenate([columns, nodes[bare]])
        values = np.concatenate([values.astype(np.float64), np.ones(len(bare))])
        row, column = self._degree(joined, nodes), self._degree(joined, columns)
        return place, columns, values / np.sqrt(row[place] * column)

    def _looped(self, joined: JoinedRows, nodes: NumpyArray) -> NumpyArray:
        old = nodes < joined.known.n
        return old & self.loops[np.where(old, nodes, 0)]

    def _degree(self, joined: JoinedRows, nodes: NumpyArray) -> NumpyArray:
        """Returns row sums with the self loops."""
        old = nodes < joined.known.n
        return np.where(old, self.degree[np.where(old, nodes, 0)], 1.0) + joined.added(nodes)


def _stored_loops(a: Csr) -> Tensor:
    """Returns which nodes have a stored self loop, bool [n]."""
    found = torch.zeros(a.n_rows, dtype=torch.bool)
    for first in range(0, a.n_rows, 1 << 20):
        last = min(first + (1 << 20), a.n_rows)
        counts = a.indptr[first : last + 1].diff()
        rows = torch.arange(first, last).repeat_interleave(counts)
        columns = a.indices[int(a.indptr[first]) : int(a.indptr[last])]
        found[rows[rows == columns]] = True
    return found
