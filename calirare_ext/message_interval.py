"""Jackknife intervals straight from messages: propagation, link and quantiles of a block of nodes at a time."""

from __future__ import annotations

from torch import Tensor

from calirare_ext._backend import _C
from calirare_ext._checks import check_like, check_range, check_shape
from calirare_ext.as_csr import SparseMatrix
from calirare_ext.propagate import compiled, of_operand


def message_interval(
    a: SparseMatrix,
    messages: Tensor,
    logits: Tensor,
    shift: Tensor,
    residuals: Tensor,
    q_lower: float,
    q_upper: float,
    *,
    scale: float = 1.0,
    bias: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """Returns the ends of the jackknife interval of every row of A from the changes of its neighbours' messages.

    f(v; theta_-i) = sigma(scale (logits_v + shift_i + sum_u A_vu messages_ui) + bias); the ends are the q_lower
    quantile of f - r and the q_upper quantile of f + r (paper, Eq. 6 and 8; Algorithm 1, line 7), NumPy's "linear"
    rule.

    Args:
        a: [n, r], in any form of `as_csr`; its columns are the rows of the messages.
        messages: changes from `loo_messages`, [r, m], m >= 1, rows contiguous. May be a memory-mapped tensor.
        logits: z_1 - z_0 of the network itself, [n].
        shift: change of the second layer's bias, class 1 minus class 0, [m].
        residuals: r_i, [m].
        q_lower: quantile of the lower end, in [0, 1].
        q_upper: quantile of the upper end, in [0, 1].
        scale: of an affine map on the logits.
        bias: of the map.

    Returns:
        Lower and upper ends, [n].

    Raises:
        TypeError: a dtype differs.
        ValueError: a shape, range or device is wrong, or rows are not contiguous.

    Precision: sums over neighbours in the dtype of the messages; the link to a few units in the last place; quantiles
    exact up to one rounding of the sample and one of the interpolation. A node with a NaN score has NaN ends.
    Cost: nnz m multiply-adds; O(m) scratch per thread.
    """
    op = "message_interval"
    a = of_operand(a, messages, None, op)
    check_like(op, "messages", messages, a.values, "a")
    check_shape(op, "messages", messages, (a.n_cols, None))
    for name, x, shape in (
        ("logits", logits, (a.n_rows,)),
        ("shift", shift, (messages.shape[1],)),
        ("residuals", residuals, (messages.shape[1],)),
    ):
        check_like(op, name, x, a.values, "a")
        check_shape(op, name, x, shape)
    check_range(op, "q_lower", q_lower, 0.0, 1.0)
    check_range(op, "q_upper", q_upper, 0.0, 1.0)
    if messages.shape[1] == 0:
        raise ValueError(f"{op}: messages must have at least one column, got shape {list(messages.shape)}")
    parts = (logits.contiguous(), shift.contiguous(), residuals.contiguous())
    ends = _C.message_interval(compiled(a), messages, *parts, q_lower, q_upper, scale, bias)
    return ends[:, 0], ends[:, 1]
