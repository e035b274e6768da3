"""L_EICE, the expected individual calibration error as a term of a loss (paper, Eq. 9, 10 and 13)."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from calirare_ext._backend import _C
from calirare_ext._checks import check_float, check_like, check_range, check_shape, dtype_name

GradientPath = Literal["confidence", "scores", "residuals"]
PATHS: tuple[GradientPath, ...] = ("confidence", "scores", "residuals")


def eice_term(
    logits: Tensor,
    change: Tensor,
    own_logits: Tensor,
    own_change: Tensor,
    targets: Tensor,
    *,
    coverage: float = 0.9,
    paths: tuple[GradientPath, ...] = PATHS,
) -> Tensor:
    """Returns L_EICE = mean_v |uncer(v) - conf(v)| as a function of the logits (paper, Algorithm 1 and Eq. 13).

    f(v; theta_-i) is the softmax of the logits at v plus their change when node i is left out: of two classes the
    probability of class 1, of more that of the predicted class. r_i = |y_i - f(i; theta_-i)|, and y_i says whether that
    class is right. The changes are constants; everything else carries the gradient of exactly this function:

    - through conf(v), with the path "confidence";
    - through the leave-one-out scores f(v; theta_-i) of the order statistics that make an end, "scores";
    - through the residuals r_i of the same models, "residuals".

    Without a path its quantity is a constant. Without any the term has no gradient, as in the authors' code.

    Args:
        logits: of the regulariser's nodes, float32 or float64 [n, k], k >= 2, differentiable.
        change: how their logit differences move in each leave-one-out model, [n, k - 1, m].
        own_logits: of the labelled nodes, [m, k], m >= 1, differentiable.
        own_change: how each labelled node's differences move without itself, [m, k - 1].
        targets: classes of the labelled nodes, int64 [m], in [0, k).
        coverage: in (0, 1).
        paths: what carries the gradient.

    Returns:
        The term, a scalar, once differentiable. NaN where a score is NaN.

    Raises:
        TypeError: a dtype is wrong.
        ValueError: a shape, a device, a target, a path or the coverage does not fit.

    Precision: as `jackknife_interval`; sums in the dtype of the logits, in a fixed order.
    Cost: O(n m k) time and memory for the scores; the gradient touches four of them a node.
    """
    op = "eice_term"
    check_float(op, "logits", logits)
    check_shape(op, "logits", logits, (None, None))
    n, k = logits.shape
    if k < 2:
        raise ValueError(f"{op}: logits must have at least two columns, got shape {list(logits.shape)}")
    check_shape(op, "targets", targets, (None,))
    m = targets.numel()
    if targets.dtype != torch.int64:
        raise TypeError(f"{op}: targets must be int64, got {dtype_name(targets.dtype)}")
    if m == 0:
        raise ValueError(f"{op}: targets must have at least one label, got none")
    if not targets.is_cuda:  # a GPU is not waited for; its gather refuses by itself
        wrong = (targets < 0) | (targets >= k)
        if bool(wrong.any()):
            raise ValueError(f"{op}: targets must be in [0, {k}), got {int(targets[wrong][0])}")
    for name, x, shape in (
        ("change", change, (n, k - 1, m)),
        ("own_logits", own_logits, (m, k)),
        ("own_change", own_change, (m, k - 1)),
    ):
        check_like(op, name, x, logits, "logits")
        check_shape(op, name, x, shape)
    check_range(op, "coverage", coverage, 0.0, 1.0, closed=False)
    unknown = [path for path in paths if path not in PATHS]
    if unknown:
        raise ValueError(f"{op}: paths must be among {', '.join(PATHS)}, got {unknown[0]!r}")
    if not paths:
        logits, own_logits = logits.detach(), own_logits.detach()
    value: Tensor = _Term.apply(logits, own_logits, change, own_change, targets, coverage, paths)
    return value


class _Term(torch.autograd.Function):
    """The term with the gradient that is made with it."""

    @staticmethod
    def forward(
        ctx: Any,
        logits: Tensor,
        own_logits: Tensor,
        change: Tensor,
        own_change: Tensor,
        targets: Tensor,
        coverage: float,
        paths: tuple[GradientPath, ...],
    ) -> Tensor:
        below = (1 - coverage) / 2
        value, *gradients = _C.eice_term(
            logits,
            change,
            own_logits,
            own_change,
            targets,
            below,
            1 - below,
            "confidence" in paths,
            "scores" in paths,
            "residuals" in paths,
        )
        ctx.save_for_backward(*gradients)
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        gradient, own_gradient = ctx.saved_tensors
        return grads[0] * gradient, grads[0] * own_gradient, None, None, None, None, None
