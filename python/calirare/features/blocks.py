"""Blocks of columns that keep their proportions: each block is divided by one number."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from calirare.features.feature_map import FeatureMap
from calirare.features.numeric import Standardized
from calirare.graph import Graph, numbered, numbers_named


def fit_blocks(graph: Graph, widths: Sequence[int]) -> FeatureMap:
    """Returns a map of dense numbers whose blocks have rows of mean squared norm 1; a lone column is standardised.

    Of words a common one keeps its lead over a rare one, which columns standardised one by one would not have. Where
    some nodes are scored, the mean is over these. A block of zeros, and a lone column that is constant, becomes 0.

    Args:
        graph: with numbers in every column, none missing.
        widths: how many columns each block has; they add up to all.
    """
    x, names = graph.x, graph.feature_names or numbered(graph.n_features)
    assert isinstance(x, Tensor)
    mean, spread = np.zeros((2, graph.n_features))
    for block, last in zip(x.split(list(widths), 1), np.cumsum(widths).tolist(), strict=True):
        at = slice(last - block.shape[1], last)
        mean[at], spread[at] = (
            _lone(block, graph.scored) if block.shape[1] == 1 else (0.0, _length(block, graph.scored))
        )
    maps = (Standardized(tuple(range(len(names))), names, np.full(len(names), np.nan), mean, spread),)
    log = (f"{len(names):,} columns: each block of them divided by one number",)
    columns = numbers_named(graph.feature_names) if graph.feature_names else ()
    return FeatureMap("standardize", columns, len(names), maps, None, {}, graph.feature_names, log)


def _length(block: Tensor, scored: Tensor | None) -> float:
    """Returns the root of the mean squared norm of rows, infinite where all are 0."""
    chosen = block if scored is None else block[scored]
    norms = torch.linalg.vector_norm(chosen, dim=1).double()
    length = float(norms.square().mean()) ** 0.5 if len(chosen) else 0.0
    return length or (float("inf") if scored is None else _length(block, None))


def _lone(column: Tensor, scored: Tensor | None) -> tuple[float, float]:
    """Returns mean and standard deviation of a column, infinite where it is constant."""
    numbers = (column if scored is None else column[scored]).double()
    spread = float(numbers.std(correction=0)) if len(numbers) else 0.0
    if spread == 0 and scored is not None:
        return _lone(column, None)
    return float(numbers.mean()) if len(numbers) else 0.0, spread or float("inf")
