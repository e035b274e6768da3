"""Where the nodes of one receptive field stand in another of the same graph."""

from __future__ import annotations

import torch
from torch import Tensor

from calirare._util.torch_state import threads_for
from calirare_ext import Csr, ReceptiveField, as_matrix, rows_of_inputs


def match_nodes(field: ReceptiveField, own: ReceptiveField) -> Tensor | None:
    """Returns where each node of `own` stands among those of `field`, int64 [m]; None where one is missing.

    None also for the field of another graph, where the same numbers mean other nodes: their inputs and neighbours tell.
    """
    place, below = _find(field.nodes, own.nodes), match_rows(field, own)
    if place is None or below is None:
        return None
    for block, own_block in zip(field.blocks, own.blocks, strict=True):
        rows = block.select_rows(place)
        mine = Csr.unchecked(own_block.indptr, below[own_block.indices.long()].int(), own_block.values, block.n_cols)
        if not _equal(rows, mine):
            return None
    return place


def match_rows(field: ReceptiveField, own: ReceptiveField) -> Tensor | None:
    """Returns where the rows of the inputs of `own` stand in those of `field`, int64 [r]; None where one is missing."""
    inputs = own.inputs
    with threads_for(inputs.nnz if isinstance(inputs, Csr) else inputs.numel()):
        below = _find(field.rows[0], own.rows[0])
        if below is None:
            return None
        return below if _equal(as_matrix(rows_of_inputs(field.features, below)), inputs) else None


def _find(nodes: Tensor, wanted: Tensor) -> Tensor | None:
    """Returns where each wanted node stands in `nodes`, or None where one is missing."""
    if nodes.numel() == 0:
        return None
    order = torch.argsort(nodes)
    at = order[torch.searchsorted(nodes[order], wanted).clamp(max=nodes.numel() - 1)]
    return at if bool((nodes[at] == wanted).all()) else None


def _equal(a: Tensor | Csr, b: Tensor | Csr) -> bool:
    if isinstance(a, Tensor) or isinstance(b, Tensor):
        return isinstance(a, Tensor) and isinstance(b, Tensor) and torch.equal(a, b)
    parts = ((a.indptr, b.indptr), (a.indices, b.indices), (a.values, b.values))
    return a.shape == b.shape and all(torch.equal(x, y) for x, y in parts)
