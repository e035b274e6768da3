"""A given prevalence: the calibrator at which the scored nodes have it."""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from numbers import Real
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from calirare._util.errors import InputError
from calirare.calibration.base import check_logits
from calirare.calibration.posterior import likeliest_log_odds, log_odds
from calirare.calibration.prior_platt import PriorPlattCalibrator

NORMAL_95 = 1.959963984540054
LEAST = 1e-9  # of a thousand million nodes one
FARTHEST = 1e4  # log-odds of a node beyond which no share tells them apart
TINY = 1e-200  # what a share's change with the log-odds is at least, to be counted with
Map = TypeVar("Map", bound=PriorPlattCalibrator)
ROOM = 60.0  # log-odds beyond the outermost node's in which a shift is looked for: a share of 1e-26


def with_prevalence(fitted: Map, logits: Tensor, prevalence: float | tuple[float, float]) -> Map:
    """Returns the map at which the mean P(class 1) of the scored nodes is a given prevalence.

    The class's lambda is solved for; slope and ratios stay. The textbook prior shift, log-odds of the prevalence less
    those of the labels, would trust the network's ratio between the classes; solving for the mean takes the given
    number at its word, whatever the network has wrong, and agrees with the shift where it has nothing wrong.

    Args:
        fitted: the fitted map; it is not changed.
        logits: of the nodes that the prevalence is of, [n, k].
        prevalence: in (0, 1), or the ends of an interval that holds it with 95 %: then the middle in log-odds is
            solved for, and the interval enters the map's covariance.

    Raises:
        InputError: see `prevalence_ends`.
        ValueError: the logits have other classes, or there are none.
    """
    check_logits("with_prevalence", logits)
    fitted.check_classes(logits)
    ends = prevalence_ends(prevalence)
    if not len(logits):
        raise ValueError("with_prevalence: there must be nodes, got none")
    odds = np.log(ends) - np.log1p([-end for end in ends])
    out = copy(fitted)
    out.target = "population"
    assert out.theta_ is not None
    assert out.covariance_ is not None
    share, at = float(1 / (1 + np.exp(-odds.mean()))), logits.shape[1]
    out.theta_ = out.theta_.clone()
    out.theta_[at] += _shift_to(log_odds(out, logits)[0], share)
    if out.move_ is not None:
        out.move_ = out.move_.clone()
        out.move_[at] += _shift_to(likeliest_log_odds(out, logits)[0], share)
    out.covariance_ = _given_mean(out, logits, at, float(((odds[1] - odds[0]) / (2 * NORMAL_95)) ** 2))
    out.target, out.counted_ = fitted.target, None
    return out


def prevalence_ends(prevalence: float | tuple[float, float]) -> tuple[float, float]:
    """Returns the ends of the interval that a prevalence was given as; a number is both.

    Raises:
        InputError: an end is nearer to 0 or 1 than `LEAST`, or they are in the wrong order.
    """
    ends = tuple(prevalence) if isinstance(prevalence, Iterable) else (prevalence, prevalence)
    numbers = len(ends) == 2 and all(isinstance(end, Real) for end in ends)
    if not numbers or not LEAST <= ends[0] <= ends[1] <= 1 - LEAST:
        raise InputError(
            f"prevalence must be a number from {LEAST:g} to 1 - {LEAST:g}, or two such numbers in order, got "
            f"{prevalence}"
        )
    return float(ends[0]), float(ends[1])


def _shift_to(log_odds: Tensor, share: float) -> float:
    """Returns what log-odds must be raised by for a mean probability of `share`."""
    from scipy.optimize import brentq
    from scipy.special import expit

    odds = log_odds.clamp(-FARTHEST, FARTHEST).cpu().numpy()
    aim = np.log(share) - np.log1p(-share)
    low, high = aim - odds.max() - ROOM, aim - odds.min() + ROOM
    return float(brentq(lambda shift: expit(odds + shift).mean() - share, low, high, xtol=1e-12))


def _given_mean(fitted: PriorPlattCalibrator, logits: Tensor, at: int, variance: float) -> Tensor:
    """Returns the covariance of theta where number `at` is solved for from the log-odds of the mean probability.

    With g the gradient of these log-odds, theta_at = (known - sum over the others of g_j theta_j) / g_at: the others
    keep their covariance, and `variance` is that of the known log-odds.
    """
    odds, gradient = likeliest_log_odds(fitted, logits)
    p = torch.sigmoid(odds)
    moved = p * (1 - p)
    some = moved > 0  # the others' gradient may be too large to be multiplied by 0
    g = (moved[some] @ gradient[some]).cpu()
    if not bool(torch.isfinite(g).all()) or float(g[at].abs()) < TINY:
        raise InputError(
            "prevalence cannot be corrected to what was given: the detector is so sure of too many nodes (P of 0 or 1) "
            "that no shift reaches it: leave the prevalence out, and look for a drift of the columns"
        )
    carried = torch.eye(len(g), dtype=torch.float64)
    carried[at] = -g / g[at]
    carried[at, at] = 0
    assert fitted.covariance_ is not None
    out = carried @ fitted.covariance_ @ carried.T
    share = p.mean()
    out[at, at] += variance * float(len(p) * share * (1 - share) / g[at]) ** 2
    return out
