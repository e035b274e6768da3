"""A graph convolution without an edge: its logits at one node, for all edges in one pass."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from calirare.explain.incident_edge_ablation import IncidentEdgeAblation
from calirare.explain.removal import Propagator, Rows
from calirare.graph import Graph, propagated_features
from calirare.models import GcnFit
from calirare_ext import rows_of_inputs, times, with_loops

BLOCK = 2_000_000  # numbers of edges times rows times width worked on together, in cache


class ConvolutionEdges:
    """The logits of a graph convolution at a node without an edge, exactly, in float64.

    Args:
        fitted: the network, whose inputs are propagated at least once.
        graph: as the network takes it.
    """

    def __init__(self, fitted: GcnFit, graph: Graph) -> None:
        self.hops = fitted.model.hops
        self.layers = [(weight.detach().double(), bias.detach().double()) for weight, bias in fitted.model.layers()]
        weight, bias = self.layers[-1]
        self.layers[-1] = (weight[:, 1:] - weight[:, :1], bias[1:] - bias[:1])  # class 0 is fixed
        self.propagator = Propagator(with_loops(graph.adjacency), -0.5, -0.5)
        self.x, first = propagated_features(graph, 1), self.layers[0][0]
        self.y = Rows(graph.n_nodes, first.shape[1], self._first_layer)
        self.once = self.propagator(self.y)
        self.own: IncidentEdgeAblation | None = None
        if len(self.layers) == 2 and self.hops <= 2:
            bias, weight = self.layers[0][1], self.layers[1][0]
            self.own = IncidentEdgeAblation(self.propagator, self.y, self.once, self.hops, bias, weight)

    def _first_layer(self, nodes: Tensor) -> Tensor:
        """Returns what the first layer makes of the features of nodes, before they are propagated, [k, width]."""
        return times(rows_of_inputs(self.x, nodes).to(torch.float64), self.layers[0][0])

    @property
    def levels(self) -> int:
        """How often something is propagated."""
        return self.hops + len(self.layers) - 1

    def effect(self, node: int, ends: Tensor) -> Tensor:
        """Returns how the logits of a node change without each edge (int64 [b, 2]), class 0 fixed, float64 [b, k]."""
        if self.own is not None and bool((ends[:, 0] == node).all()):
            return pad(self.own.effect(node, ends[:, 1]), (1, 0))
        step = max(1, BLOCK // max(self.propagator.numbers(node, self.levels) * self.y.shape[1], 1))
        ends, weights = self.propagator.with_none_removed(node, ends)
        pairs = zip(ends.split(step), weights.split(step), strict=True)
        removed = (self.propagator.removed(some, these) for some, these in pairs)
        known = (self.y, self.once, self.levels, self._between)
        z = torch.cat([self.propagator.reached(node, gone, *known)[-1] for gone in removed])
        return pad(z[1:] - z[0], (1, 0))

    def _between(self, level: int, x: Tensor) -> Tensor:
        """Returns what is propagated next: after the inputs are in place each propagation ends a layer."""
        layer = level - self.hops
        if layer < 0:
            return x
        return torch.relu(x + self.layers[layer][1]) @ self.layers[layer + 1][0]
