"""Edges, degrees, means of neighbours and graph convolutions as gathers and scatters that add."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from calirare.export.onnx.sketch import DOUBLE, SINGLE, TRUTH, Value

PLACES = np.array([1])


class Edges:
    """The adjacency in a graph of operations; parts are added when they are first asked for.

    Args:
        nodes: number of nodes, int64 [1].
        index: both ends of each edge, int64 [2, e], every edge both ways.
        weight: of each edge, float32 [e]; None: each counts once.
        loops: whether edges of a node to itself are kept.
    """

    def __init__(self, nodes: Value, index: Value, weight: Value | None, *, loops: bool) -> None:
        sketch = nodes.sketch
        ones = sketch.op("Expand", sketch.constant(np.ones(1)), sketch.op("Shape", index, start=1, end=2))
        weights = ones if weight is None else weight.cast(DOUBLE)
        if not loops:
            other = sketch.op("Not", _at_loops(index))
            index = sketch.op("Compress", index, other, axis=1)
            weights = sketch.op("Compress", weights, other, axis=0)
        self.nodes, self.index, self.loops = nodes, index, loops
        self.to, self.start = (index.at(np.array(end)) for end in (0, 1))
        self.weights = sketch.op("Unsqueeze", weights, PLACES)  # [e, 1]

    def sums(self, numbers: Value, width: int) -> Value:
        """Returns the sum over each node's edges of numbers [e, width], [n, width]."""
        sketch = numbers.sketch
        shape = sketch.op("Concat", self.nodes, np.array([width]), axis=0)
        zeros = sketch.op("Expand", sketch.constant(np.zeros(1, numbers.dtype)), shape)
        return sketch.op("ScatterND", zeros, sketch.op("Unsqueeze", self.to, PLACES), numbers, reduction="add")

    @cached_property
    def total(self) -> Value:
        """Sum of the weights of each node's edges, float64 [n, 1]."""
        return self.sums(self.weights, 1)

    @cached_property
    def log_degree(self) -> Value:
        """log(1 + number of neighbours), float32 [n, 1]."""
        sketch = self.weights.sketch
        ones = sketch.op("Expand", sketch.constant(np.ones((1, 1))), sketch.op("Shape", self.weights))
        return (self.sums(ones, 1) + 1.0).apply("Log").cast(SINGLE)

    @cached_property
    def convolution(self) -> tuple[Value, Value]:
        """The entries of D^-1/2 (A + I) D^-1/2 at the edges, and those of I, float32 [e, 1] and [n, 1].

        I has an entry where a node has no edge to itself.
        """
        sketch, one = self.total.sketch, np.ones((1, 1))
        own = sketch.op("Expand", sketch.constant(one), sketch.op("Shape", self.total))
        if self.loops:
            ties = sketch.op("Unsqueeze", _at_loops(self.index).cast(DOUBLE), PLACES)
            own = (self.sums(ties, 1) >= 1.0).choose(0 * one, one)
        degree = self.total + own
        scale = degree.equals(0.0).choose(np.zeros((1, 1)), 1.0 / degree.apply("Sqrt"))
        edges = scale.at(self.to) * self.weights * scale.at(self.start)
        return edges.cast(SINGLE), (scale * own * scale).cast(SINGLE)

    def propagated(self, h: Value, width: int) -> Value:
        """Returns A_hat h, of h [n, width]."""
        edges, own = self.convolution
        return self.sums(edges.cast(h.dtype) * h.at(self.start), width) + own.cast(h.dtype) * h

    def means(self, h: Value, width: int) -> Value:
        """Returns the neighbours' weighted means of h [n, width], 0 without neighbours, float32 of sums in float64."""
        inverse = self.total.equals(0.0).choose(np.zeros((1, 1)), 1.0 / self.total)
        return (self.sums(self.weights * h.at(self.start).cast(DOUBLE), width) * inverse).cast(SINGLE)


def _at_loops(index: Value) -> Value:
    """Returns which edges are of a node to itself, bool [e]."""
    return index.sketch.op("Equal", index.at(np.array(0)), index.at(np.array(1)), dtype=TRUTH)
