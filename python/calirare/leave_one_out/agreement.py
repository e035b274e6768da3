"""May the leave-one-out logits be trusted? Their loss must agree with the loss on held-out nodes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from calirare.leave_one_out.own_logits import OwnLogits

MAX_MULTIPLE = 64.0
RELATIVE_SLACK = 0.05  # differences below 5 % of the held-out loss change no map noticeably
NOISE_SLACK = 0.25  # and noise excuses none above 25 %: where few labels overshoot, they make the noise themselves
BISECTIONS = 12


@dataclass(frozen=True)
class Agreement:
    """Leave-one-out loss and held-out loss, mean negative log-likelihood over the same nodes.

    Attributes:
        loo: with the damping chosen.
        loo_at_weight_decay: with damping = weight decay.
        held_out: by cross-validation.
        standard_error: of the difference of `loo` and `held_out`, from the nodes' paired differences.
        damping: chosen damping.
        verdict: "trust", "caution" or "do not trust".
        reason: one sentence.
    """

    loo: float
    loo_at_weight_decay: float
    held_out: float
    standard_error: float
    damping: float
    verdict: str
    reason: str


def choose_damping(
    own_logits: OwnLogits, weight_decay: float, held_out_logits: Tensor, calibration_nodes: Tensor, weights: Tensor
) -> Agreement:
    """Returns the smallest damping >= weight decay at which leave-one-out loss agrees with held-out loss.

    Too small a damping shows as a leave-one-out loss above the held-out one: the Gauss-Newton steps of a network far
    from quadratic overshoot. Raising the damping shortens them. No test node is looked at.

    Args:
        own_logits: each label's leave-one-out logits, by damping.
        weight_decay: mu of training.
        held_out_logits: cross-validated logits of the labelled nodes [m, k].
        calibration_nodes: bool [m], the nodes whose loss is compared (those that represent the population).
        weights: weight of each labelled node in the mean, [m].

    Returns:
        The damping and how well it agrees.
    """
    targets, w = own_logits.linearised.targets[calibration_nodes], weights[calibration_nodes].double()

    def losses(logits: Tensor) -> Tensor:
        return w * F.cross_entropy(logits.double(), targets, reduction="none") / w.mean()

    held = losses(held_out_logits[calibration_nodes])

    def gap(multiple: float) -> Tensor:
        return losses(own_logits(multiple * weight_decay)[calibration_nodes]) - held

    found = at_one = gap(1.0)
    mean, multiple = float(held.mean()), 1.0
    slack = max(min(2 * _error(at_one), NOISE_SLACK * mean), RELATIVE_SLACK * mean)
    if float(at_one.mean()) > slack:
        multiple = _bisect(lambda x: float(gap(x).mean()))
        found = gap(multiple)
    difference, error = float(found.mean()), _error(found)
    verdict, reason = _judge(multiple, difference, slack, error)
    return Agreement(
        mean + difference, mean + float(at_one.mean()), mean, error, multiple * weight_decay, verdict, reason
    )


def _error(gaps: Tensor) -> float:
    """Returns the standard error of the mean of the nodes' differences."""
    return float(gaps.std() / gaps.numel() ** 0.5) if gaps.numel() > 1 else float("inf")


def _bisect(gap: object) -> float:
    """Returns the multiple in [1, MAX_MULTIPLE] where the gap, falling in it, crosses 0."""
    assert callable(gap)
    low, high = 0.0, float(torch.log(torch.tensor(MAX_MULTIPLE)))
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        if gap(float(torch.tensor(middle).exp())) > 0:
            low = middle
        else:
            high = middle
    return float(torch.tensor(high).exp())


def _judge(multiple: float, difference: float, slack: float, error: float) -> tuple[str, str]:
    numbers = f"leave-one-out loss minus held-out loss is {difference:+.3g}, standard error {error:.3g}"
    if abs(difference) > slack:
        side = "optimistic" if difference < 0 else "pessimistic"
        return "do not trust", f"leave-one-out is {side}: {numbers}, and no damping changes that"
    if multiple > 1.0:
        return "caution", f"damping raised to {multiple:.2f} x weight decay so that {numbers}"
    return "trust", f"{numbers}, at damping = weight decay"
