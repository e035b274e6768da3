"""The first layer of a network on hop columns, at all nodes, without the columns: X W_0 + M (X W_1 + M (X W_2)).

The map that scales a column is mostly affine, and then goes into the weights: what is propagated is as wide as the
layer, and not as the features are. The few columns with other maps are made, each for itself.
"""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from calirare._util.array_files import release
from calirare.features import FeatureMap
from calirare.models.column_rows import ColumnRows, blocks_of
from calirare_ext import neighbour_means


def first_layer(rows: ColumnRows, scaled: FeatureMap, weight: Tensor, bias: Tensor) -> Tensor | None:
    """Returns scaled columns W + b of all nodes, float32 [n, h].

    Args:
        rows: the columns before they are scaled.
        scaled: their map.
        weight: W, [d, h].
        bias: b, [h].

    Returns:
        The layer; None where so many columns have maps that are not affine that they are wider than it.
    """
    d, hops = rows.x.shape[1], rows.hops
    source, factor, offset = (part.to(weight.device) for part in scaled.affine())
    known, curved = source >= 0, scaled.curved()
    columns = sorted({i for each in curved for i in each.inputs if i >= d})
    if len(columns) > weight.shape[1]:
        return None
    exact = weight.double()
    folded = exact.new_zeros(scaled.n_inputs, weight.shape[1])
    folded.index_add_(0, source[known], exact[known] * factor[known, None])
    start, folded = (bias + (exact[known] * offset[known, None]).sum(0)).float(), folded.float()
    out = _times(rows, folded[hops * d : (hops + 1) * d])
    for hop in range(hops - 1, -1, -1):
        out = neighbour_means(rows.graph.adjacency, out)
        _times(rows, folded[hop * d : (hop + 1) * d], out)
    out += start
    if hops:
        _add_the_rest(rows, folded[(hops + 1) * d :], out)
    if curved:
        bent, made = dataclasses.replace(scaled, maps=curved), _made(rows, columns)
        for part in blocks_of(out.shape[0]):
            raw = rows.x.new_zeros(part.stop - part.start, scaled.n_inputs)
            raw[:, :d], raw[:, columns] = rows.x[part], made[part]
            out[part].addmm_(bent.of_numbers(raw), weight[~known])
            release(rows.x)
    return out


def _times(rows: ColumnRows, weight: Tensor, out: Tensor | None = None) -> Tensor:
    """Returns X W [n, h], or adds it to `out`."""
    n = rows.x.shape[0]
    total = weight.new_zeros(n, weight.shape[1]) if out is None else out
    for part in blocks_of(n):
        total[part].addmm_(rows.x[part], weight)
        release(rows.x)
    return total


def _add_the_rest(rows: ColumnRows, weight: Tensor, out: Tensor) -> None:
    """Adds what degrees and relations say: rows of W in the order of the columns behind the hops."""
    d = rows.x.shape[1]
    out.addmm_(rows.log_degree(rows.graph.adjacency), weight[:1])
    for i, (_, matrix) in enumerate(rows.relations):
        first = 1 + i * (d + 1)
        out += neighbour_means(matrix, _times(rows, weight[first : first + d]))
        out.addmm_(rows.log_degree(matrix), weight[first + d : first + d + 1])


def _made(rows: ColumnRows, columns: list[int]) -> Tensor:
    """Returns some raw columns that are not features themselves, ascending, [n, c]."""
    d, made = rows.x.shape[1], list[Tensor]()
    for hop in range(1, rows.hops + 1):
        features = [i - hop * d for i in columns if hop * d <= i < (hop + 1) * d]
        below = rows.x[:, features]
        for _ in range(hop if features else 0):
            below = neighbour_means(rows.graph.adjacency, below)
        made.append(below)
    first = (rows.hops + 1) * d
    if first in columns:
        made.append(rows.log_degree(rows.graph.adjacency))
    for i, (_, matrix) in enumerate(rows.relations):
        start = first + 1 + i * (d + 1)
        features = [column - start for column in columns if start <= column < start + d]
        made.append(neighbour_means(matrix, rows.x[:, features]))
        if start + d in columns:
            made.append(rows.log_degree(matrix))
    return torch.cat([rows.x[:, :0], *made], 1)
