"""K = J J^T of a graph convolutional network of two layers times columns, hidden units apart; K is never made."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from calirare.curvature.gram_form import contrasts, where_on
from calirare_ext import GcnTape, as_dense, propagate

MOST_BYTES = 1_000_000_000  # of what is kept of the hidden units


class UnitProducts:
    """Columns [m, k - 1, b] -> K times them, [m, k - 1, b].

    With d_c = W_2[:, c] - W_2[:, 0] and v_ih the derivative of hidden unit h by its own weights as label i sees it,
    `unit_rows`, the first layer's share of K[(i, c), (j, c')] is sum_h d_ch d_c'h <v_ih, v_jh>: the class enters by
    k - 1 numbers, and what is multiplied is the Gram matrix of a unit, V_h V_h^T, or V_h V_h^T a factor at a time,
    whichever is smaller. The second layer's share is as in `gram`.

    Attributes:
        factors: by unit V_h V_h^T [h, m, m], or V_h [h, m, d + 1] where labels are more than inputs.
        blocks: the blocks of K on its diagonal, [m, k - 1, k - 1].

    Cost: 2 h m min(m, 2 d) b multiply-adds for b columns; h m min(m, d + 1) numbers.
    """

    def __init__(self, tape: GcnTape) -> None:
        self.difference, self.last = contrasts(tape.layers[1][0]), tape.aggregated[0]
        m, (d, h) = tape.n_nodes, tape.layers[0][0].shape
        self.whole = self.is_whole(m, d)
        self.factors = self.last.new_empty(h, m, m if self.whole else d + 1)
        squares = self.last.new_empty(m, h)
        for unit, rows in enumerate(unit_rows(tape)):
            squares[:, unit] = rows.square().sum(1)
            self.factors[unit] = rows @ rows.T if self.whole else rows
        self.blocks = _blocks(self.last, squares, self.difference)

    @staticmethod
    def is_whole(m: int, d: int) -> bool:
        """Returns whether V_h V_h^T is smaller than V_h, of m labels and d inputs."""
        return m <= d

    def __call__(self, columns: Tensor) -> Tensor:
        """Returns K times the columns."""
        m, k, b = columns.shape
        by_unit = (self.difference @ columns.transpose(0, 1).reshape(k, m * b)).view(-1, m, b)
        if not self.whole:
            by_unit = torch.bmm(self.factors.mT, by_unit)
        moved = torch.bmm(self.factors, by_unit).view(-1, m * b)
        first = (self.difference.T @ moved).view(k, m, b).transpose(0, 1)
        shared = (columns + columns.sum(1, keepdim=True)).view(m, k * b)
        second = self.last @ (self.last.T @ shared) + shared.sum(0)
        return first + second.view(m, k, b)


def unit_rows(tape: GcnTape) -> Iterator[Tensor]:
    """Yields, a hidden unit h at a time, v_ih = sum_u A_iu m_uh (S_u, 1) of every label, [m, d + 1]."""
    inputs = as_dense(tape.field.features)
    inputs = torch.cat([inputs, torch.ones_like(inputs[:, :1])], 1)
    for unit in tape.masks[0].T:
        yield propagate(where_on(tape.field.blocks[0], unit), inputs)


def gram_blocks(tape: GcnTape) -> Tensor:
    """Returns the blocks of `gram` on its diagonal, of each label with itself, [m, k - 1, k - 1]; one or two layers."""
    if len(tape.layers) == 2:
        squares = torch.stack([rows.square().sum(1) for rows in unit_rows(tape)], 1)
        return _blocks(tape.aggregated[0], squares, contrasts(tape.layers[1][0]))
    inputs, k = as_dense(tape.field.features), tape.n_classes - 1
    return _blocks(inputs, inputs.new_zeros(tape.n_nodes, 0), inputs.new_zeros(0, k))


def _blocks(last: Tensor, squares: Tensor, difference: Tensor) -> Tensor:
    """Returns K's blocks from what the last layer reads [m, d_L], |v_ih|^2 [m, h] and d_ch [h, k - 1]."""
    k = difference.shape[1]
    shared = torch.ones(k, k, dtype=last.dtype, device=last.device).fill_diagonal_(2.0)
    first = torch.einsum("mh,hc,hd->mcd", squares, difference, difference)
    return first + (last.square().sum(1) + 1)[:, None, None] * shared


def unit_bytes(m: int, d: int, h: int, number: int) -> int:
    """Returns the bytes that `UnitProducts` keeps of m labels, d inputs and h hidden units."""
    return h * m * min(m, d + 1) * number
