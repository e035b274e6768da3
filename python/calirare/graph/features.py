"""Scaling of features, always an explicit step and never one that destroys signed features; of weights a note."""

from __future__ import annotations

import dataclasses
from typing import get_args

import torch

from calirare._util.errors import InputError
from calirare.graph.graph import Graph, Normalisation
from calirare_ext import Csr, row_sums

HEAVY = 0.8  # share of a node's weight that one edge has, from which its neighbours are that one
SEVERAL = 3  # neighbours
LOOKED_AT = 10_000  # nodes, of more every so many


def normalize_features(graph: Graph, how: Normalisation | None = None) -> Graph:
    """Returns the graph with its features scaled.

    Args:
        graph: the graph.
        how: "row" divides each row by its sum (the GCN's treatment of words; a row of zeros stays), for features
            >= 0 only: rows of signed features have no meaningful sum. "standardize" gives each column mean 0 and
            standard deviation 1 over all nodes (a constant column becomes 0), for dense features. "none" leaves them.
            None takes what the data set wants, `graph.feature_normalisation`.

    Returns:
        The graph with features scaled and `feature_normalisation` "none", so that a second call changes nothing.

    Raises:
        InputError: `how` is unknown or does not suit the features, or columns of theirs are not mapped to numbers yet.
    """
    graph.check_mapped("normalize_features")
    how = graph.feature_normalisation if how is None else how
    if how == "row":
        x = _row(graph)
    elif how == "standardize":
        mean, spread = column_statistics(graph)
        assert not isinstance(graph.x, Csr)
        x = standardized(graph.x, mean, spread)
    elif how == "none":
        x = graph.x
    else:
        fits = "; FeatureMap.fit(graph) of calirare.features fits the others" * (how in get_args(Normalisation))
        raise InputError(f"normalize_features: how must be row, standardize or none, got {how!r}{fits}")
    return dataclasses.replace(graph, x=x, feature_normalisation="none", columns=(), trusted=True)


def weights_note(graph: Graph) -> str:
    """Returns a sentence where weights differ so much that most nodes see only one neighbour; else nothing.

    Means over neighbours and propagation are by weight.
    """
    step = max(1, graph.n_nodes // LOOKED_AT)
    some = graph.adjacency.select_rows(torch.arange(0, graph.n_nodes, step, device=graph.device))
    degrees, rows = some.indptr.diff(), some.rows()
    several = degrees >= SEVERAL
    if not bool(several.any()):
        return ""
    most = some.values.new_zeros(len(degrees)).scatter_reduce_(0, rows, some.values, "amax").double()
    whole = most.new_zeros(len(degrees)).index_add_(0, rows, some.values.double())
    alone = float((most >= HEAVY * whole)[several].double().mean())
    if alone <= 0.5:
        return ""
    return (
        f"edge weights reach from {float(some.values.min()):.3g} to {float(some.values.max()):.3g}. For {alone:.0%} of "
        f"the nodes with {SEVERAL} neighbours or more, one edge has {HEAVY:.0%} of the weight and hides the others. "
        "Give the logarithm as weight, or no weights"
    )


def _row(graph: Graph) -> torch.Tensor | Csr:
    """Returns the features, each row divided by its sum."""
    x = graph.x
    values = x.values if isinstance(x, Csr) else x
    if values.numel() and float(values.min()) < 0:
        raise InputError(
            f"normalize_features: row needs features >= 0, but graph {graph.name!r} has {float(values.min()):g}: take "
            "how='standardize' or 'none'"
        )
    if isinstance(x, Csr):
        total = row_sums(x)
        # A row that stores only zeros sums to 0 and stays as it is.
        total[total == 0] = 1
        return Csr.unchecked(x.indptr, x.indices, (x.values / total[x.rows()]).float(), x.n_cols)
    total = x.sum(1, dtype=torch.float64)
    total[total == 0] = 1
    return (x / total[:, None]).float()


def column_statistics(graph: Graph) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns mean and standard deviation (infinite where constant) of columns of dense features, float64 [d]."""
    x = graph.x
    if isinstance(x, Csr):
        raise InputError(
            f"normalize_features: standardize needs dense features, but those of graph {graph.name!r} are sparse and "
            "would lose their zeros: take how='row' or 'none'"
        )
    mean = x.mean(0, dtype=torch.float64)
    spread = x.double().std(0, correction=0)
    # Rounding leaves a constant column a spread of about 1e-16 of its size.
    spread[spread <= 1e-12 * mean.abs()] = torch.inf
    return mean, spread


def standardized(x: torch.Tensor, mean: torch.Tensor, spread: torch.Tensor) -> torch.Tensor:
    """Returns (x - mean) / spread, float32 [n, d], by `column_statistics`; 0 in a column whose spread is infinite."""
    return ((x - mean) / spread).float()
