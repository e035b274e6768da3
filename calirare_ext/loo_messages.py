"""Left-out models as first-order changes of what each row of the hidden layer sends to its neighbours."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from calirare_ext._backend import _C
from calirare_ext._checks import check_float, check_like, check_shape
from calirare_ext.csr import Csr
from calirare_ext.node_gradients import LayerFactors
from calirare_ext.propagate import compiled

DENSE_BYTES = 64_000_000  # of the labelled nodes' inputs, kept dense beside sparse


@dataclass(frozen=True, eq=False)
class LooDirections:
    """How s directions in the parameters of a two-layer ReLU network with two classes move the messages of its rows.

    Row u sends t_u = <relu(z_u), w2>, w2 the second layer's weights of class 1 minus those of class 0; the logit
    difference at v is the sum of A_vu t_u plus a bias.

    Attributes:
        first: changes of the first layer's weights, and in the last row of its bias, [d + 1, s, h], contiguous; or, on
            the CPU and for sparse inputs, the same as sums of few rank-one terms, one seed to a direction.
        second: changes of w2, [h, s].
        contrast: w2, [h].
        mix: left-out models as combinations of the directions, [s, m]; None: the directions are the models.
    """

    first: Tensor | LayerFactors
    second: Tensor
    contrast: Tensor
    mix: Tensor | None = None

    @property
    def n_models(self) -> int:
        """Number of left-out models m."""
        return self.second.shape[1] if self.mix is None else self.mix.shape[1]

    @property
    def n_features(self) -> int:
        """Width d of the first layer's inputs."""
        if isinstance(self.first, LayerFactors):
            return self.first.inputs.shape[1]
        return self.first.shape[0] - 1

    def check(self) -> None:
        """Checks that the parts fit together.

        Raises:
            TypeError: a dtype differs, or is not float32 or float64.
            ValueError: a shape or device differs.
        """
        op = "loo_messages"
        check_float(op, "second", self.second)
        check_shape(op, "second", self.second, (None, None))
        h, s = self.second.shape
        factored = isinstance(self.first, LayerFactors)
        if isinstance(self.first, LayerFactors):
            self.first.check()
            check_shape(op, "first.entry_ptr", self.first.entry_ptr, (s + 1,))
        first = self.first.delta if isinstance(self.first, LayerFactors) else self.first
        check_like(op, "first", first, self.second, "second")
        check_shape(op, "first", first, (None, 1, h) if factored else (None, s, h))
        check_like(op, "contrast", self.contrast, self.second, "second")
        check_shape(op, "contrast", self.contrast, (h,))
        if self.mix is not None:
            check_like(op, "mix", self.mix, self.second, "second")
            check_shape(op, "mix", self.mix, (s, None))


def loo_messages(
    inputs: Tensor | Csr,
    pre_activation: Tensor,
    directions: LooDirections,
    *,
    out: Tensor | None = None,
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
        ValueError: a shape or device does not fit, or rows are not contiguous.

    Precision: sums in the dtype of the inputs, in a fixed order.
    Cost: on the CPU g r d s multiply-adds for r rows, s directions and g groups of hidden units (g = 2 for 16 units,
    mostly), plus r s m with a mix; a table of 16 MiB. On CUDA r d s h.
    """
    op = "loo_messages"
    directions.check()
    d, h = directions.n_features, directions.second.shape[0]
    like = inputs.values if isinstance(inputs, Csr) else inputs
    check_like(op, "inputs", like, directions.second, "second")
    rows = inputs.n_rows if isinstance(inputs, Csr) else inputs.shape[0]
    if inputs.shape[1] != d:
        raise ValueError(f"{op}: inputs must have {d} columns, got {inputs.shape[1]}")
    check_like(op, "pre_activation", pre_activation, directions.second, "second")
    check_shape(op, "pre_activation", pre_activation, (rows, h))
    if out is None:
        out = torch.empty(rows, directions.n_models, dtype=like.dtype, device=like.device)
    check_like(op, "out", out, directions.second, "second")
    check_shape(op, "out", out, (rows, directions.n_models))
    rows_are_contiguous = pre_activation.shape[1] <= 1 or pre_activation.stride(1) == 1
    z = pre_activation if rows_are_contiguous else pre_activation.contiguous()
    matrix = compiled(inputs) if isinstance(inputs, Csr) else inputs
    rest = (directions.second, directions.contrast, directions.mix, out)
    if isinstance(directions.first, LayerFactors):
        _C.loo_messages_out(matrix, z, *_factors(inputs, directions.first), *rest)
    else:
        _C.loo_messages_out(matrix, z, directions.first, *rest)
    return out


def _factors(inputs: Tensor | Csr, first: LayerFactors) -> tuple[Tensor, Tensor, Tensor, _C.CsrTensors, Tensor | None]:
    rows = first.inputs
    if not isinstance(inputs, Csr) or not isinstance(rows, Csr):
        raise ValueError("loo_messages: directions in factors must come with sparse inputs, got dense ones")
    return first.entry_ptr, first.nodes, first.delta[:, 0].contiguous(), compiled(rows), _dense_transposed(rows)


def _dense_transposed(rows: Csr) -> Tensor | None:
    """Returns a matrix transposed and dense, made once and kept; None where that is large."""
    if rows.n_rows * rows.n_cols * rows.values.element_size() > DENSE_BYTES:
        return None
    if "dense_transposed" not in rows._cache:
        rows._cache["dense_transposed"] = rows.to_dense().T.contiguous()
    return rows._cache["dense_transposed"]
