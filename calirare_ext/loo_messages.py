"""Left-out models as first-order changes of what each row of the hidden layer sends to its neighbours."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from calirare_ext._checks import check_float, check_like, check_shape
from calirare_ext.csr import Csr
from calirare_ext.propagate import propagate

BLOCK_NUMBERS = 4_000_000  # numbers of the product with all directions held at once


@dataclass(frozen=True, eq=False)
class LooDirections:
    """How s directions in the parameters of a two-layer ReLU network with two classes move the messages of its rows.

    Row u sends t_u = <relu(z_u), w2>, w2 the second layer's weights of class 1 minus those of class 0; the logit
    difference at v is the sum of A_vu t_u plus a bias.

    Attributes:
        first: changes of the first layer's weights, and in the last row of its bias, [d + 1, s, h].
        second: changes of w2, [h, s].
        contrast: w2, [h].
        mix: left-out models as combinations of the directions, [s, m]; None: the directions are the models.
    """

    first: Tensor
    second: Tensor
    contrast: Tensor
    mix: Tensor | None = None

    @property
    def n_models(self) -> int:
        """Number of left-out models m."""
        return self.first.shape[1] if self.mix is None else self.mix.shape[1]

    def check(self) -> None:
        """Checks that the parts fit together.

        Raises:
            TypeError: a dtype differs, or is not float32 or float64.
            ValueError: a shape or device differs.
        """
        op = "loo_messages"
        check_float(op, "first", self.first)
        check_shape(op, "first", self.first, (None, None, None))
        _, s, h = self.first.shape
        for name, x, shape in (("second", self.second, (h, s)), ("contrast", self.contrast, (h,))):
            check_like(op, name, x, self.first, "first")
            check_shape(op, name, x, shape)
        if self.mix is not None:
            check_like(op, "mix", self.mix, self.first, "first")
            check_shape(op, "mix", self.mix, (s, None))


def loo_messages(
    inputs: Tensor | Csr, pre_activation: Tensor, directions: LooDirections, *, out: Tensor | None = None
) -> Tensor:
    """Returns how the message of each row changes in each left-out model, to first order.

    change[u, i] = sum_h w2_h [z_uh > 0] (<inputs_u, dW1_i[:, h]> + db1_ih) + <relu(z_u), dw2_i>

    Args:
        inputs: A_hat X at the rows, dense or sparse, [r, d].
        pre_activation: z = inputs W1 + b1, [r, h].
        directions: of the models.
        out: where to write, [r, m], rows contiguous; None: a new matrix. May be a memory-mapped tensor.

    Returns:
        [r, m], dtype and device of the inputs.

    Raises:
        TypeError: a dtype is wrong or differs.
        ValueError: a shape or device does not fit.
    """
    op = "loo_messages"
    directions.check()
    d, s, h = directions.first.shape
    like = inputs.values if isinstance(inputs, Csr) else inputs
    check_like(op, "inputs", like, directions.first, "first")
    rows = inputs.n_rows if isinstance(inputs, Csr) else inputs.shape[0]
    if inputs.shape[1] != d - 1:
        raise ValueError(f"{op}: inputs must have {d - 1} columns, got {inputs.shape[1]}")
    check_like(op, "pre_activation", pre_activation, directions.first, "first")
    check_shape(op, "pre_activation", pre_activation, (rows, h))
    if out is None:
        out = torch.empty(rows, directions.n_models, dtype=like.dtype, device=like.device)
    check_like(op, "out", out, directions.first, "first")
    check_shape(op, "out", out, (rows, directions.n_models))
    step = max(1, BLOCK_NUMBERS // max(s * h, 1))
    for start in range(0, rows, step):
        part = slice(start, min(start + step, rows))
        changed = _product(inputs, part, directions.first[:-1].reshape(d - 1, s * h)).view(-1, s, h)
        changed += directions.first[-1]
        z = pre_activation[part]
        weight = (z > 0).to(z.dtype) * directions.contrast
        change = torch.einsum("ush,uh->us", changed, weight) + z.clamp(min=0) @ directions.second
        out[part] = change if directions.mix is None else change @ directions.mix
    return out


def _product(inputs: Tensor | Csr, rows: slice, x: Tensor) -> Tensor:
    if isinstance(inputs, Csr):
        return propagate(inputs.select_rows(torch.arange(rows.start, rows.stop, device=x.device)), x)
    return inputs[rows] @ x
