"""What trained detectors say of a few new nodes of a known graph: exactly what they would say in the whole graph.

A new edge changes the degree of the known node at its other end, and with it that node's row of A_hat and of the mean
of neighbours: rows near new nodes are made anew, everything else is read as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from calirare._util.array_files import NumpyArray
from calirare._util.errors import InputError
from calirare.graph import Graph, normalize_features
from calirare.models.column_fit import ColumnFit
from calirare.models.columns import HopColumns
from calirare.models.fitted import Fitted
from calirare.models.folded import FoldedNetwork
from calirare.models.gcn_fit import GcnFit
from calirare.models.graph_delta import GraphDelta, KnownRows, Level, MadeLevel, NewEdges, product
from calirare.models.label_propagation import LabelPropagationFit
from calirare.models.mixture import Mixture
from calirare.models.mlp import MlpFit
from calirare_ext import Csr, propagate, times

TINY = 1e-300  # stands in for a degree of 0, of which nothing is taken


class KnownGraph:
    """A graph that new nodes join, and a detector that is asked about them: what is made once for all of them.

    Args:
        fitted: the detector: a graph convolution, a detector of hop columns, or an average of such.
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
        self.near, self.fitted = list[NearColumns](), fitted
        members = [member.fitted for member in fitted.members] if isinstance(fitted, Mixture) else [fitted]
        self.parts = [self._part(each) for each in members]

    def _part(self, fitted: Fitted) -> Callable[[Tensor, GraphDelta], Tensor]:
        """Returns what gives logits of new nodes from their features and edges."""
        network = fitted.network if isinstance(fitted, FoldedNetwork) else fitted
        if isinstance(network, MlpFit | ColumnFit):
            near = next((near for near in self.near if near.columns.same_as(network.columns)), None)
            if near is None:
                self.near.append(near := NearColumns(network.columns, self.graph))
            return lambda x, joined: network.logits_of_columns(near.of(x, joined))
        if isinstance(network, LabelPropagationFit):
            return _Spreading(network, self.graph).logits
        if isinstance(network, GcnFit) and network.hops:
            return _Gcn(network, self.graph, self.rows).logits
        raise InputError(f"new nodes: a {type(fitted).__name__} cannot be asked about them: score the whole graph")

    def logits(self, x: Tensor, edges: NewEdges) -> Tensor:
        """Returns the logits of new nodes, [b, k].

        Args:
            x: their features as the detector takes them, float32 [b, d].
            edges: theirs.
        """
        joined = GraphDelta(self.rows, edges)
        said = [part(x, joined) for part in self.parts]
        return self.fitted.pooled(said) if isinstance(self.fitted, Mixture) else said[0]


class NearColumns:
    """Hop columns of new nodes.

    Args:
        columns: what is read.
        graph: the known graph.
    """

    def __init__(self, columns: HopColumns, graph: Graph) -> None:
        self.columns, self.graph = columns, graph
        self._last: tuple[GraphDelta, Tensor] | None = None

    @cached_property
    def x(self) -> Tensor:
        """The features that are propagated, [n, d]."""
        x = self.columns.ready(self.graph).x
        return x.to_dense() if isinstance(x, Csr) else x

    @cached_property
    def means(self) -> Tensor:
        """Their means over the neighbours, [n, d], made when the first node of two hops asks for them."""
        return self.columns.rows(self.graph).level(1)

    def of(self, x: Tensor, joined: GraphDelta) -> Tensor:
        """Returns the columns of new nodes, float32 [b, d]; the last answer is kept for the next detector."""
        last = self._last  # read once: another thread may replace it at any moment
        if last is None or last[0] is not joined:
            last = self._last = joined, self.columns.scaled.of_numbers(self._raw(x, joined))
        return last[1]

    def _raw(self, x: Tensor, joined: GraphDelta) -> Tensor:
        n, b = joined.known.n, x.shape[0]
        new, features = np.arange(n, n + b), Level(self.x, self.columns.propagated(x).numpy())
        below: Level = features
        blocks = [features.own]
        for hop in range(self.columns.hops):
            mean = self._first_mean if hop == 0 else _mean
            below = MadeLevel(partial(mean, joined, below))
            blocks.append(below.at(new))
        if self.columns.hops:
            degree = np.bincount(joined.new_entries(new)[0], minlength=b)
            blocks.append(np.log1p(degree.astype(np.float32))[:, None])
        return torch.from_numpy(np.concatenate(blocks, 1))

    def _first_mean(self, joined: GraphDelta, below: Level, nodes: NumpyArray) -> NumpyArray:
        """Returns the mean of neighbours' features: of a known node the stored one, with its new neighbours."""
        place, columns, values = joined.new_entries(nodes)
        out, old = product(place, values, len(nodes), below.at(columns)), nodes < joined.known.n
        if old.any():
            out[old] += joined.known.sums[nodes[old], None] * self.means[torch.from_numpy(nodes[old])].numpy()
        total = joined.sums(nodes)
        return (out / np.where(total == 0, 1, total)[:, None]).astype(np.float32)


def _mean(joined: GraphDelta, below: Level, nodes: NumpyArray) -> NumpyArray:
    """Returns the mean of neighbours' rows, float32 [r, d]."""
    place, columns, values = joined.entries(nodes)
    return product(place, values / joined.sums(nodes)[place], len(nodes), below.at(columns))


class _Spreading:
    """Labels around new nodes, as their known neighbours tell of them."""

    def __init__(self, fitted: LabelPropagationFit, graph: Graph) -> None:
        self.fitted, self.sent = fitted, fitted.sent_in(graph)[:, -fitted.n_classes :].numpy()

    def logits(self, x: Tensor, joined: GraphDelta) -> Tensor:
        n, b = joined.known.n, x.shape[0]
        place, columns, values = joined.new_entries(np.arange(n, n + b))
        counts = np.bincount(place, minlength=b)
        indptr = torch.from_numpy(np.concatenate([[0], np.cumsum(counts)]))
        rows = Csr.unchecked(
            indptr, torch.arange(len(columns), dtype=torch.int32), torch.from_numpy(values).float(), len(columns)
        )
        sent = np.zeros((len(columns), self.sent.shape[1]), dtype=np.float32)
        sent[columns < n] = self.sent[columns[columns < n]]
        return self.fitted.logits(self.fitted.reached(rows, torch.from_numpy(sent))[:, -1])


class _Gcn:
    """A graph convolution: X W of the known nodes is made once, and what it sums up to over their neighbours."""

    def __init__(self, fitted: GcnFit, graph: Graph, rows: KnownRows) -> None:
        self.layers = [tuple(part.detach() for part in layer) for layer in fitted.model.layers()]
        self.hops = fitted.model.hops
        self.first = times(normalize_features(graph).x, self.layers[0][0])
        root = torch.from_numpy(np.sqrt(rows.sums + rows.bare)).to(self.first)
        self.summed = propagate(fitted.model.propagation(graph).a_hat, self.first).mul_(root[:, None])

    def logits(self, x: Tensor, joined: GraphDelta) -> Tensor:
        n, b = joined.known.n, x.shape[0]
        below: Level = Level(self.first, (x @ self.layers[0][0]).numpy())
        for hop in range(self.hops):
            below = MadeLevel(partial(self._first_spread if hop == 0 else _spread, joined, below))
        for (_, bias), (weight, _) in pairwise(self.layers):
            hidden = MadeLevel(partial(_activated, below, bias.numpy(), weight.numpy()))
            below = MadeLevel(partial(_spread, joined, hidden))
        return torch.from_numpy(below.at(np.arange(n, n + b))) + self.layers[-1][1]

    def _first_spread(self, joined: GraphDelta, below: Level, nodes: NumpyArray) -> NumpyArray:
        """Returns rows of A_hat X W: of a known node the stored sum, with what new edges change of it."""
        place, columns, values = joined.new_entries(nodes)
        new = np.flatnonzero(nodes >= joined.known.n)
        place, columns = np.concatenate([place, new]), np.concatenate([columns, nodes[new]])
        weights = np.concatenate([values, np.ones(len(new))]) / np.sqrt(_degree(joined, columns))
        near, moved, changed = self._changes(joined, nodes)
        place, columns = np.concatenate([place, near]), np.concatenate([columns, moved])
        out = product(place, np.concatenate([weights, changed]), len(nodes), below.at(columns))
        old = nodes < joined.known.n
        out[old] += self.summed[torch.from_numpy(nodes[old])].numpy()
        return (out / np.sqrt(_degree(joined, nodes))[:, None]).astype(np.float32)

    def _changes(self, joined: GraphDelta, nodes: NumpyArray) -> tuple[NumpyArray, NumpyArray, NumpyArray]:
        """Returns by how much touched nodes weigh otherwise in rows of known ones: place of the row, node, change."""
        known, touched = joined.known, joined.touched
        old = np.flatnonzero(nodes < known.n)
        place, of, values = known.between(nodes[old], touched)
        own = np.flatnonzero(np.isin(nodes[old], touched) & known.bare[nodes[old]])
        place = np.concatenate([old[place], old[own]])
        columns = np.concatenate([touched[of], nodes[old][own]])
        before = known.sums[columns] + known.bare[columns]
        scale = 1 / np.sqrt(_degree(joined, columns)) - np.where(before > 0, 1 / np.sqrt(np.maximum(before, TINY)), 0)
        return place, columns, np.concatenate([values, np.ones(len(own))]) * scale


def _spread(joined: GraphDelta, below: Level, nodes: NumpyArray) -> NumpyArray:
    """Returns rows of A_hat times what is below, float32 [r, d]."""
    place, columns, values = joined.entries(nodes)
    bare = np.flatnonzero(joined.bare(nodes))
    place, columns = np.concatenate([place, bare]), np.concatenate([columns, nodes[bare]])
    scale = np.sqrt(_degree(joined, nodes)[place] * _degree(joined, columns))
    return product(place, np.concatenate([values, np.ones(len(bare))]) / scale, len(nodes), below.at(columns))


def _activated(below: Level, bias: NumpyArray, weight: NumpyArray, nodes: NumpyArray) -> NumpyArray:
    """Returns relu(z + b) W of some nodes."""
    return np.asarray(np.maximum(below.at(nodes) + bias, 0) @ weight)


def _degree(joined: GraphDelta, nodes: NumpyArray) -> NumpyArray:
    """Returns row sums with a self loop at every node, float64."""
    return joined.sums(nodes) + joined.bare(nodes)
