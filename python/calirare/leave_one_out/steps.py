"""`alo` as a start: a few quasi-Newton steps from every leave-one-out model, on the loss without its label."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from calirare._util.memory import BLOCK_BYTES
from calirare.curvature import logit_differences
from calirare.leave_one_out.formula import loo_coefficients
from calirare.leave_one_out.method import Problem
from calirare.leave_one_out.result import Diagnostics, LooResult, models_of
from calirare.leave_one_out.retrain import TOLERANCE
from calirare.training import FittedNetwork, minimise

# Where a network is far from linear, a few of `alo`'s models have a loss far above the fit's.
TOO_FAR, HALVINGS = 1.5, 5


def alo_steps(
    fitted: FittedNetwork,
    field: Any,
    damping: float,
    steps: int,
    progress: Callable[[int], None] | None = None,
    chosen: Tensor | None = None,
) -> LooResult:
    """Returns the change of every logit after some quasi-Newton steps of each leave-one-out model, from `alo`'s.

    `alo` foresees a label's own logits; on the way its network leaves the pattern of ReLUs it was linearised in, and
    other nodes' logits are foreseen worse. The steps go on from there on the true loss
    sum_{j != i} w_j l_j / m + mu / 2 |theta|^2, one label after the other, preconditioned by the Gauss-Newton inverse
    of each start. A start whose loss is half again that of the full fit is moved back towards it. What a label moves is
    measured from the network moved by as many steps with every label.

    Args:
        fitted: the network, near a minimum of its loss: from elsewhere the steps lead away with or without a label.
        field: the evaluation field of the nodes v.
        damping: of the starts; the steps themselves minimise the loss of training.
        steps: how many, >= 1.
        progress: called with the number of labels done.
        chosen: distinct positions of labels to leave out, int64 [s]; None: all.

    Returns:
        The changes of the network evaluated at each of s models; own changes of other labels are NaN.
        `Diagnostics.unconverged` is the fraction of models whose gradient stayed above 1e-6, as at kinks of ReLU units.
    """
    if fitted.weight_decay == 0:
        raise ValueError("leave_one_out: steps must have a positive weight decay, got 0: there need not be a minimum")
    linearised, m = fitted.linearisation, fitted.nodes.numel()
    chosen = torch.arange(m, device=fitted.targets.device) if chosen is None else chosen.to(fitted.targets.device)
    coefficients, leverage = loo_coefficients(linearised, linearised.kernel, damping)
    seeds = coefficients.T.reshape(m, m, -1).to(linearised.logits)

    def after(seed: Tensor, sample_weights: Tensor) -> tuple[Tensor, Tensor, float]:
        """Returns the logit differences at the field's nodes and at the labels, and the gradient's norm."""
        one = fitted.copy(sample_weights=sample_weights)
        one.move_to(near_start(one, linearised.vjp(seed[None])[0]))
        end = minimise(one, tolerance=TOLERANCE, max_steps=steps, warm=True)
        return logit_differences(one.logits_at(field)), logit_differences(one.logits_at_labels()), end.gradient_norm

    base, base_own, _ = after(torch.zeros_like(seeds[0]), fitted.sample_weights)
    own = torch.full_like(base_own, float("nan"))
    change = base.new_empty(*base.shape, chosen.numel())
    unconverged = 0
    for column, i in enumerate(chosen.tolist()):
        without = fitted.sample_weights.clone()
        without[i] = 0.0
        moved, moved_own, norm = after(seeds[i], without)
        change[:, :, column] = moved - base
        own[i] = moved_own[i] - base_own[i]
        unconverged += norm > TOLERANCE
        if progress is not None:
            progress(column + 1)
    facts = Diagnostics("alo", f"{steps} steps", damping, unconverged=unconverged / max(chosen.numel(), 1))
    return LooResult(change, own, leverage, damping, models_of(m, chosen), facts)


def near_start(fitted: FittedNetwork, direction: Tensor) -> Tensor:
    """Returns theta + direction [p], the direction halved until the loss is at most TOO_FAR times that of theta."""
    theta = fitted.theta
    most = TOO_FAR * fitted.objective(theta)[0]
    for halving in range(HALVINGS + 1):
        point = theta + direction / 2**halving
        if fitted.objective(point)[0] <= most:
            return point
    return theta


def steps_bytes(problem: Problem, n_models: int) -> int:
    """Returns an upper estimate of the memory `alo_steps` allocates, in bytes."""
    size = problem.size
    working = (3 * size.dual + 60) * size.p * size.bytes + 5 * size.dual * size.dual * 8
    return size.change(n_models) + working + 3 * BLOCK_BYTES
