"""Repeated propagation to one node without an edge, for many edges at once.

A propagation is x -> l * (A (r * x)) with l and r powers of the degrees: D^-1/2 on both sides of a graph convolution,
D^-1 on the left of a mean of neighbours. Without the edge (a, b) of weight w the first propagation differs from the
known one at a and b, and where r changes at their neighbours, in closed form; each further one is a product with the
rows that the node depends on, all edges side by side. Nothing outside of the node's receptive field is made again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from calirare.graph import scipy_of_csr
from calirare_ext import Csr, propagate, row_sums

RESIDUE = 1e-12  # of what is taken away, up to which what is left is rounding
After = Callable[[int, Tensor], Tensor]  # of the number of a propagation and what it made, [b, rows, width]


class Rows:
    """A matrix [n, width] in float64 whose rows are made when they are first needed, and kept.

    Args:
        n: number of rows.
        width: of each.
        make: returns rows by their numbers, int64 [k] without repeats, as [k, width] of any floating-point type.
    """

    def __init__(self, n: int, width: int, make: Callable[[Tensor], Tensor]) -> None:
        self.shape, self._make = (n, width), make
        self._made = torch.zeros(n, dtype=torch.bool)
        self._kept = torch.empty(n, width, dtype=torch.float64)  # no page of it is touched before its rows are

    def __getitem__(self, rows: Tensor) -> Tensor:
        """Returns rows by their numbers, int64 [..], as [.., width]."""
        new = rows[~self._made[rows]]
        if new.numel():
            new = new.unique()
            self._kept[new] = self._make(new).double()
            self._made[new] = True
        return self._kept[rows]


@dataclass(frozen=True, eq=False)
class Removed:
    """Edges, each of which is missing in a graph of its own.

    Attributes:
        ends: int64 [b, 2].
        weights: float64 [b].
        left: l of both ends without the edge, float64 [b, 2].
        right: r of both.
    """

    ends: Tensor
    weights: Tensor
    left: Tensor
    right: Tensor


class Propagator:
    """A propagation of a graph, with and without single edges.

    Args:
        matrix: A, symmetric, [n, n]; self loops where the propagation has them.
        left: exponent of the degrees in l, such as -0.5.
        right: exponent in r; 0: r is 1.
    """

    def __init__(self, matrix: Csr, left: float, right: float) -> None:
        self.matrix = matrix.to(torch.float64)
        self.degree = row_sums(self.matrix)
        self.powers = left, right
        self.left, self.right = self._scale(self.degree, left), self._scale(self.degree, right)
        self.loops = torch.from_numpy(scipy_of_csr(self.matrix).diagonal())

    def _scale(self, degree: Tensor, power: float) -> Tensor:
        """Returns degrees to a power; a node without a degree has 0 there, as it reads and sends nothing."""
        return torch.where(degree > 0, degree.clamp(min=torch.finfo(torch.float64).tiny) ** power, 0.0)

    def __call__(self, x: Rows) -> Rows:
        """Returns the propagated x."""
        return Rows(*x.shape, lambda rows: self._propagated(rows, x))

    def _propagated(self, rows: Tensor, x: Rows) -> Tensor:
        """Returns rows of the propagated x, [k, width]."""
        read = self.matrix.select_rows(rows)
        field, columns = renumbered(read.indices.long(), self.matrix.n_cols)
        block = Csr.unchecked(read.indptr, columns.to(torch.int32), read.values, field.numel())
        return self.left[rows, None] * propagate(block, (self.right[field, None] * x[field]).contiguous())

    def with_none_removed(self, node: int, ends: Tensor) -> tuple[Tensor, Tensor]:
        """Returns edges (int64 [b, 2]) and their weights with an edge of no weight in front: nothing is missing."""
        nobody = torch.tensor([[node, node]])
        return torch.cat([nobody, ends]), torch.cat([torch.zeros(1, dtype=torch.float64), self.weights_of(ends)])

    def removed(self, ends: Tensor, weights: Tensor | None = None) -> Removed:
        """Returns edges (int64 [b, 2], no self loops) as missing ones; `weights` [b] None: all of what they weigh."""
        weights = self.weights_of(ends) if weights is None else weights
        degree = self.degree[ends] - weights[:, None]
        degree = torch.where(degree > RESIDUE * self.degree[ends], degree, 0.0)  # what is left of a node's only edge
        left, right = (self._scale(degree, power) for power in self.powers)
        return Removed(ends, weights, left, right)

    def weights_of(self, ends: Tensor) -> Tensor:
        """Returns the weight of each edge, 0 where there is none; float64 [b]."""
        nodes, place = torch.unique(ends[:, 0], return_inverse=True)
        rows, n = self.matrix.select_rows(nodes), self.matrix.n_cols
        if not rows.nnz:
            return torch.zeros(len(ends), dtype=torch.float64)
        found = _places(rows.rows() * n + rows.indices, place * n + ends[:, 1])  # rows and columns ascend
        return torch.where(found >= 0, rows.values[found], 0.0)

    def reached(self, node: int, gone: Removed, y: Rows, once: Rows, levels: int, after: After) -> list[Tensor]:
        """Returns what each propagation brings to a node without each of some edges.

        Args:
            node: v.
            gone: the edges, b of them.
            y: what is propagated first.
            once: y propagated once with all edges, as `self(y)` gives it.
            levels: how often.
            after: what is done to the rows between propagations; called after each but the last.

        Returns:
            Of each propagation [b, width], before `after`.
        """
        rows, blocks = self._field(node, levels)
        x = self._first(rows[0], gone, y, once)
        out = [x[:, _places(rows[0], torch.tensor([node]))[0]]]
        for level, block in enumerate(blocks, 1):
            x = self._next(after(level, x), block, rows[level - 1], rows[level], gone)
            out.append(x[:, _places(rows[level], torch.tensor([node]))[0]])
        return out

    def numbers(self, node: int, levels: int) -> int:
        """Returns how many rows of the first propagation a node depends on."""
        return self._field(node, levels)[0][0].numel()

    def numbers_of_means(self, node: int, levels: int) -> int:
        """Returns how many rows `means` makes of every edge."""
        return 1 if self._at_ends(levels) else self.numbers(node, levels)

    def _at_ends(self, levels: int) -> bool:
        """Returns whether an edge moves so little that `means` needs its two ends alone."""
        return levels <= 2 and not self.powers[1]

    def _field(self, node: int, levels: int) -> tuple[list[Tensor], list[Csr]]:
        """Returns the rows each propagation is needed at, the first one's first, and the matrices between them."""
        rows, blocks = [torch.tensor([node])], list[Csr]()
        for _ in range(levels - 1):
            block = self.matrix.select_rows(rows[0])
            below = torch.unique(torch.cat([block.indices.long(), torch.tensor([node])]))
            columns = torch.searchsorted(below, block.indices.long()).to(torch.int32)
            blocks.insert(0, Csr.unchecked(block.indptr, columns, block.values, below.numel()))
            rows.insert(0, below)
        return rows, blocks

    def _first(self, rows: Tensor, gone: Removed, y: Rows, once: Rows) -> Tensor:
        """Returns the first propagation at some rows without each edge, [b, rows, width]."""
        out = once[rows].repeat(gone.weights.numel(), 1, 1)
        for side in (0, 1):
            self._neighbours_of(side, rows, gone, y, out)
        for side in (0, 1):  # the row of an end reads one neighbour less
            place = _places(rows, gone.ends[:, side])
            kept = place >= 0
            out[kept.nonzero().flatten(), place[kept]] = self._row_of_end(side, gone, y, once)[kept]
        return out

    def _neighbours_of(self, side: int, rows: Tensor, gone: Removed, y: Rows, out: Tensor) -> None:
        """Adds what changes at the neighbours of an end as its r does."""
        end = gone.ends[:, side]
        step = gone.right[:, side] - self.right[end]
        if not bool(step.any()):
            return
        if bool((end == end[0]).all()):  # as of the edges of one node: the same neighbours, each time by another step
            around = self.matrix.select_rows(end[:1])
            place = _places(rows, around.indices.long())
            amount = torch.zeros(rows.numel(), dtype=torch.float64)
            amount[place[place >= 0]] = (around.values * self.left[around.indices.long()])[place >= 0]
            out.addcmul_(step[:, None, None], amount[:, None] * y[end[0]])
            return
        around = self.matrix.select_rows(end)
        place = _places(rows, around.indices.long())
        edge, kept = around.rows(), place >= 0
        amount = around.values * self.left[around.indices.long()] * step[edge]
        flat = out.view(-1, out.shape[2])
        flat.index_add_(0, (edge * rows.numel() + place)[kept], amount[kept, None] * y[end[edge[kept]]])

    def _row_of_end(self, side: int, gone: Removed, y: Rows, once: Rows) -> Tensor:
        """Returns the first propagation at an end without each edge, [b, width]."""
        end, other = gone.ends[:, side], gone.ends[:, 1 - side]
        scale = torch.where(self.left[end] == 0, 1.0, self.left[end])
        total = _less(once[end] / scale[:, None], (gone.weights * self.right[other])[:, None] * y[other])
        loop = self.loops[end] * (gone.right[:, side] - self.right[end])
        return gone.left[:, side, None] * (total + loop[:, None] * y[end])

    def means(self, node: int, gone: Removed, y: Rows, once: Rows, levels: int) -> list[Tensor]:
        """Returns `reached` where nothing is done between propagations.

        Where r is 1, an edge moves the first propagation at its two ends alone, and the second at v is the known one
        and what it reads of these: O(b width) numbers, whatever the degree.
        """
        if not self._at_ends(levels):
            return self.reached(node, gone, y, once, levels, lambda level, x: x)
        ends, rows = gone.ends, [self._row_of_end(side, gone, y, once) for side in (0, 1)]
        at_node = [(ends[:, side] == node) & (gone.weights != 0) for side in (0, 1)]
        first = once[torch.tensor([node])].expand(len(ends), -1)
        for side in (0, 1):
            first = torch.where(at_node[side][:, None], rows[side], first)
        if levels == 1:
            return [first]
        here = self.matrix.select_rows(torch.tensor([node]))
        reads = torch.zeros(ends.shape, dtype=torch.float64)
        if here.nnz:
            place = _places(here.indices.long(), ends.flatten()).view(ends.shape)
            reads = torch.where(place >= 0, here.values[place], 0.0)
        total = (here.values @ once[here.indices.long()]).expand(len(ends), -1)
        left = self.left[node].expand(len(ends))
        for side in (0, 1):
            total = _less(total, reads[:, side, None] * (once[ends[:, side]] - rows[side]))
            total = _less(total, (at_node[side] * gone.weights)[:, None] * rows[1 - side])
            left = torch.where(at_node[side], gone.left[:, side], left)
        return [first, left[:, None] * total]

    def _next(self, x: Tensor, block: Csr, below: Tensor, rows: Tensor, gone: Removed) -> Tensor:
        """Returns the next propagation at some rows of x at the rows below, [b, rows, width]."""
        b, _, width = x.shape
        sent = x * self._scales(self.right, gone.right, below, gone.ends)[:, :, None]
        wide = sent.permute(1, 0, 2).reshape(below.numel(), b * width).contiguous()
        out = propagate(block, wide).view(rows.numel(), b, width).permute(1, 0, 2).contiguous()
        for side in (0, 1):
            mine, theirs = _places(rows, gone.ends[:, side]), _places(below, gone.ends[:, 1 - side])
            kept = ((mine >= 0) & (theirs >= 0)).nonzero().flatten()
            out[kept, mine[kept]] -= gone.weights[kept, None] * sent[kept, theirs[kept]]
        return out * self._scales(self.left, gone.left, rows, gone.ends)[:, :, None]

    def _scales(self, usual: Tensor, changed: Tensor, rows: Tensor, ends: Tensor) -> Tensor:
        """Returns l or r of some rows without each edge, [b, rows]."""
        out = usual[rows].repeat(len(ends), 1)
        for side in (0, 1):
            place = _places(rows, ends[:, side])
            kept = (place >= 0).nonzero().flatten()
            out[kept, place[kept]] = changed[kept, side]
        return out


def _places(rows: Tensor, wanted: Tensor) -> Tensor:
    """Returns where wanted nodes stand among ascending rows, -1 where they do not."""
    place = torch.searchsorted(rows, wanted.contiguous()).clamp(max=rows.numel() - 1)
    return torch.where(rows[place] == wanted, place, -1)


def renumbered(values: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Returns the distinct ones of values in [0, n), ascending, and the place of each value among them."""
    if values.numel() * 8 < n:
        return torch.unique(values, return_inverse=True)
    there = torch.zeros(n, dtype=torch.bool)
    there[values] = True
    place = there.cumsum(0) - 1
    return there.nonzero().flatten(), place[values]


def _less(total: Tensor, part: Tensor) -> Tensor:
    """Returns a sum without a part of it; 0 where rounding alone is left, which a tree would split from 0."""
    left = total - part
    return torch.where(left.abs() > RESIDUE * part.abs(), left, 0.0)
