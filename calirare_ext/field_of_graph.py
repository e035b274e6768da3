"""The receptive field of some nodes, from the features of the graph."""

from __future__ import annotations

from torch import Tensor

from calirare_ext.as_csr import SparseMatrix, as_csr
from calirare_ext.inputs import Factored, Inputs
from calirare_ext.propagate import propagate
from calirare_ext.receptive_field import ReceptiveField, rows_and_blocks, rows_at


def receptive_field(
    a_hat: SparseMatrix, x: Inputs, nodes: Tensor, n_layers: int, edge_weight: Tensor | None = None
) -> ReceptiveField:
    """Returns the receptive field of `nodes` under an `n_layers` graph convolution.

    A_hat X is made here, at the rows that the nodes need; of sparse X it stays in its factors.

    Args:
        a_hat: propagation matrix [n, n], from `gcn_norm`, in any form of `as_csr`.
        x: features of the nodes, [n, d], dense, sparse or a product by its factors. They are not propagated yet.
        nodes: int64 [m], distinct node ids.
        n_layers: number of layers, >= 1.
        edge_weight: of an `edge_index` as `a_hat`, [E].

    Returns:
        The field; its last rows are `nodes` in the order given, earlier rows are ascending.

    Raises:
        TypeError: `nodes` is not int64, or a dtype differs.
        ValueError: `a_hat` is not square, `n_layers` < 1, a node is out of range or given twice, or `x` has another
            number of rows.
    """
    a_hat = as_csr(a_hat, edge_weight, x.shape[0], dtype=x.dtype, op="receptive_field")
    rows, blocks = rows_and_blocks(a_hat, x, nodes, n_layers)
    if isinstance(x, Tensor):
        return ReceptiveField(rows, propagate(a_hat.select_rows(rows[0]), x), blocks)
    return ReceptiveField(rows, rows_at(Factored(a_hat, x), rows[0]), blocks)
