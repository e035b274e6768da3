"""How far a leave-one-out result can be trusted: losses, leverages, coverage, and one sentence."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from calirare.leave_one_out.change import LooChange
from calirare.leave_one_out.ggn import logit_differences
from calirare.training import Fit

HIGH_LEVERAGE = 0.95  # 1 / (1 - h) = 20: one Gauss-Newton step no longer carries that far


@dataclass(frozen=True)
class Quality:
    """A leave-one-out result's own account of itself.

    Attributes:
        verdict: "trust", "caution" or "do not trust".
        reason: one sentence.
        stationarity: |grad| of the penalised loss beside mu |theta|, 0 at a stationary point.
        in_sample_nll: mean loss of the labels, unweighted.
        loo_nll: the same without each node's own label, over the nodes that have a model.
        held_out_nll: the same by cross-validation, or None.
        leverage_quantiles: minimum, quartiles and maximum; None where unknown.
        above_leverage: share of labels with a leverage above .95.
    """

    verdict: str
    reason: str
    stationarity: float
    in_sample_nll: float
    loo_nll: float
    held_out_nll: float | None
    leverage_quantiles: tuple[float, ...] | None
    above_leverage: float


def quality(trained: Fit, change: LooChange, held_out_logits: Tensor | None = None) -> Quality:
    """Returns how far a leave-one-out result can be trusted.

    Args:
        trained: the network and its labels.
        change: the result.
        held_out_logits: cross-fitted logits of the labelled nodes [m, k] (`crossfit.cross_fitted_logits`), or None.

    Returns:
        The account.
    """
    tape = trained.tape()
    own = logit_differences(tape.logits) + change.own
    has_model = torch.isfinite(own).all(1)
    with_zero = torch.cat([own.new_zeros(own.shape[0], 1), own], 1)
    loo = float(F.cross_entropy(with_zero[has_model].double(), tape.targets[has_model]))
    held = None if held_out_logits is None else float(F.cross_entropy(held_out_logits.double(), tape.targets))
    in_sample = float(F.cross_entropy(tape.logits.double(), tape.targets))
    known = change.leverage[torch.isfinite(change.leverage)]
    spread = None
    if known.numel():
        levels = torch.tensor([0.0, 0.25, 0.5, 0.75, 1.0], dtype=known.dtype)
        spread = tuple(torch.quantile(known, levels).tolist())
    above = float((known > HIGH_LEVERAGE).double().mean()) if known.numel() else 0.0
    size = torch.stack([p.detach().norm() for p in trained.model.parameters()]).norm()
    stationarity = trained.gradient_norm() / (trained.weight_decay * float(size))
    verdict, reason = _verdict(change, stationarity, in_sample, loo, held, above)
    return Quality(verdict, reason, stationarity, in_sample, loo, held, spread, above)


def _verdict(
    change: LooChange, stationarity: float, in_sample: float, loo: float, held: float | None, above: float
) -> tuple[str, str]:
    """Returns the verdict and the first reason that holds, the gravest first."""
    method = "alo" if change.diagnostics is None else change.diagnostics.method
    if not bool(torch.isfinite(change.change).all()):
        return "do not trust", "a change is not finite"
    if method == "influence":
        return "do not trust", "influence leaves the leverage out and sees 15-20 % of a label's effect on itself"
    if loo < in_sample:
        return "do not trust", f"the loss without a node's label, {loo:.3f}, is below the one with it, {in_sample:.3f}"
    if held is not None and not 0.5 * held <= loo <= 2 * held:
        return "do not trust", f"leave-one-out loss {loo:.3f} is not within a factor of two of held-out loss {held:.3f}"
    if stationarity > 1:
        return "caution", (
            f"the gradient is {stationarity:.1f} times the weight decay's: the network was stopped far from a minimum, "
            "train longer for intervals of its own"
        )
    if above > 0.05:
        return (
            "caution",
            f"{100 * above:.0f} % of the labels have a leverage above {HIGH_LEVERAGE}: raise the weight decay",
        )
    if method == "replicates" and change.diagnostics is not None and change.diagnostics.sampling_error > 0.1:
        error = change.diagnostics.sampling_error
        return "caution", f"a quantile's level may be off by {error:.2f}: leave more labels out"
    return "trust", f"gradient {stationarity:.2f} of the weight decay's, leverages below {HIGH_LEVERAGE}"


def report(change: LooChange, account: Quality) -> dict[str, Any]:
    """Returns diagnostics and account as plain numbers and strings, for a file."""
    facts = {} if change.diagnostics is None else asdict(change.diagnostics)
    return {"diagnostics": facts, "quality": asdict(account)}
