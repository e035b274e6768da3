"""Leave-one-out logits of the labels themselves, at any damping; calibration and the choice of damping use them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional as F

from calirare._util.memory import BLOCK_BYTES, check_memory
from calirare.curvature import (
    Linearisation,
    OneLayerHat,
    SpectralHat,
    is_one_layer,
    with_class_zero,
)
from calirare.leave_one_out.formula import (
    choose_form,
    leave_out_own,
    loo_coefficients,
    own_change,
)
from calirare.leave_one_out.result import Size

DENSE, DENSE_OF_TWO = 2_500, 4_000  # side of a dense system, of many classes and of two
ONE_LAYER = 3_000  # of one layer of many classes, whose system has less in it to be made
WORK = 10**12  # multiply-adds of the p x p matrix of many labels


def closed_form_fits(linearised: Linearisation) -> bool:
    """Returns whether own logits of a network in closed form take seconds, see `OwnLogits`.

    Where they do not, networks without each fold of the labels take their place: as accurate, and trained in less time.
    """
    rows, p = linearised.n_nodes * (linearised.n_classes - 1), linearised.n_parameters
    if _is_by_layer(linearised):
        return p <= ONE_LAYER
    if min(rows, p) > (DENSE if linearised.n_classes > 2 else DENSE_OF_TWO):
        return False
    return rows <= p or rows * p**2 <= WORK


def _is_by_layer(linearised: Linearisation) -> bool:
    """Returns whether the smaller system is that of the one layer of many classes."""
    rows = linearised.n_nodes * (linearised.n_classes - 1)
    return linearised.n_classes > 2 and is_one_layer(linearised) and linearised.n_parameters < rows


class OwnLogits:
    """damping -> logits [m, k] of each labelled node under the model without it, class 0 at 0, float64.

    The formula of `alo`, for the labels themselves. Of more labels than parameters the spectrum of the p x p
    Gauss-Newton matrix J^T D J = Q diag(lambda) Q^T is computed once; with G = J Q, P_i = G_i (lambda + mu)^-1 G_i^T
    then costs m p for each damping mu. Of fewer labels it is the m x m kernel, and each damping solves a system. One
    layer of more than two classes solves another (`OneLayerHat`).

    Args:
        linearised: the network at the labelled nodes.
        kernel: K at the labelled nodes [m (k - 1), m (k - 1)], where it is known already; it makes the second form.

    Attributes:
        form: "primal", "dual" or "one layer".

    Raises:
        InputError: it would not fit into memory.
    """

    def __init__(self, linearised: Linearisation, kernel: Tensor | None = None) -> None:
        self.linearised = linearised
        self.curvature, self.error = linearised.loss_terms
        self.form = "dual"
        if kernel is None:
            by_layer = _is_by_layer(linearised) and linearised.n_parameters <= ONE_LAYER
            primal = choose_form(linearised) == "primal"
            self.form = "one layer" if by_layer else "primal" if primal else "dual"
        self._hat: Callable[[float], Tensor]  # P_i, [m, k - 1, k - 1]
        check_memory(self._bytes(), None, linearised.logits.device, "take fewer labels, or a narrower network")
        if self.form == "primal":
            self._hat = SpectralHat(linearised)
        elif self.form == "one layer":
            assert is_one_layer(linearised)
            self._hat = OneLayerHat(linearised)
        else:
            self.kernel = linearised.kernel if kernel is None else kernel

    def _bytes(self) -> int:
        """Returns an upper estimate of the memory it takes."""
        size = Size.of(self.linearised, self.linearised.field)
        dual, p = size.dual, size.p
        if self.form == "one layer":
            return 4 * p * p * 8 + 2 * size.m * p * 8 + BLOCK_BYTES
        if self.form == "primal":
            return dual * p * (size.bytes + 3 * 8) + 4 * p * p * 8 + BLOCK_BYTES
        return 2 * size.rows * size.m * size.bytes + 4 * dual * dual * 8 + BLOCK_BYTES

    def __call__(self, damping: float) -> Tensor:
        """Returns the logits [m, k] with a damping mu > 0."""
        if self.form in ("primal", "one layer"):
            _, own, _ = leave_out_own(self._hat(damping), self.curvature, self.error)
        else:
            coefficients, _ = loo_coefficients(self.linearised, self.kernel, damping)
            own = own_change(self.linearised, self.kernel, coefficients)
        return with_class_zero(self.linearised.differences.double() + own)


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
    own_logits: Callable[[float], Tensor],
    weight_decay: float,
    held_out_logits: Tensor,
    calibration_nodes: Tensor,
    weights: Tensor,
    *,
    targets: Tensor | None = None,
    closely: bool = False,
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
        targets: classes of the labelled nodes, int64 [m]; None: those of `OwnLogits`.
        closely: take the damping, smaller ones too, at which the losses are equal, and allow no noise.

    Returns:
        The damping and how well it agrees.
    """
    if targets is None:
        assert isinstance(own_logits, OwnLogits)
        targets = own_logits.linearised.targets
    targets, w = targets[calibration_nodes], weights[calibration_nodes].double()

    def losses(logits: Tensor) -> Tensor:
        return w * F.cross_entropy(logits.double(), targets, reduction="none") / w.mean()

    held = losses(held_out_logits[calibration_nodes])

    def gap(multiple: float) -> Tensor:
        return losses(own_logits(multiple * weight_decay)[calibration_nodes]) - held

    found = at_one = gap(1.0)
    mean, multiple = float(held.mean()), 1.0
    slack = RELATIVE_SLACK * mean
    if not closely:
        slack = max(min(2 * _error(at_one), NOISE_SLACK * mean), slack)
    if closely or float(at_one.mean()) > slack:
        multiple = bisect(lambda x: float(gap(x).mean()), 1 / MAX_MULTIPLE if closely else 1.0)
        found = gap(multiple)
    difference, error = float(found.mean()), _error(found)
    verdict, reason = _judge(multiple, difference, slack, error)
    return Agreement(
        mean + difference, mean + float(at_one.mean()), mean, error, multiple * weight_decay, verdict, reason
    )


def _error(gaps: Tensor) -> float:
    """Returns the standard error of the mean of the nodes' differences."""
    return float(gaps.std() / gaps.numel() ** 0.5) if gaps.numel() > 1 else float("inf")


def bisect(gap: Callable[[float], float], least: float = 1 / MAX_MULTIPLE) -> float:
    """Returns the multiple from `least` to MAX_MULTIPLE where the gap, falling in it, crosses 0."""
    low, high = (math.log(each) for each in (least, MAX_MULTIPLE))
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        if gap(math.exp(middle)) > 0:
            low = middle
        else:
            high = middle
    return math.exp(high)


def _judge(multiple: float, difference: float, slack: float, error: float) -> tuple[str, str]:
    numbers = f"leave-one-out loss minus held-out loss is {difference:+.3g}, standard error {error:.3g}"
    if abs(difference) > slack:
        side = "optimistic" if difference < 0 else "pessimistic"
        return "do not trust", f"leave-one-out is {side}: {numbers}, and no damping changes that"
    if multiple > 1.0:
        return "caution", f"damping raised to {multiple:.2f} x weight decay so that {numbers}"
    return "trust", f"{numbers}, at damping = weight decay"
