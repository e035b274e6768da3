"""`alo` as a start: a few quasi-Newton steps from every leave-one-out model, on the loss without its label."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from calirare._util.memory import BLOCK_BYTES
from calirare.leave_one_out.formula import loo_coefficients
from calirare.leave_one_out.method import Problem
from calirare.leave_one_out.result import Diagnostics, LooResult
from calirare.leave_one_out.retrain import retrain
from calirare.training import FittedNetwork


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
    starts = coefficients.T.reshape(m, m, -1).to(linearised.logits)
    out = retrain(fitted, field, chosen, starts=starts, max_steps=steps, progress=progress)
    unconverged = 0.0 if out.diagnostics is None else out.diagnostics.unconverged
    facts = Diagnostics("alo", f"{steps} steps", damping, unconverged=unconverged)
    return replace(out, leverage=leverage, damping=damping, diagnostics=facts)


def steps_bytes(problem: Problem, n_models: int) -> int:
    """Returns an upper estimate of the memory `alo_steps` allocates, in bytes."""
    size = problem.size
    working = (3 * size.dual + 60) * size.p * size.bytes + 5 * size.dual * size.dual * 8
    return size.change(n_models) + working + 3 * BLOCK_BYTES
