"""Calibration slope and intercept: the straight line that would recalibrate the log-odds."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch

from calirare._util.arrays import EQUAL, Array
from calirare._util.errors import NotConvergedError
from calirare.metrics.inputs import Predictions, read_event

# Newton decrement (twice the loss still to gain) below which steps need no line search.
CLOSE = 1e-12


class CalibrationLine(NamedTuple):
    """logit P(y = 1) = intercept + slope * logit(p), fitted by maximum likelihood (Cox 1958).

    Attributes:
        slope: 1 is calibrated; below 1 the probabilities are too extreme, above 1 too timid.
        intercept: 0 is calibrated, if the slope is 1.
        in_the_large: the intercept when the slope is held at 1: above 0 the event is underestimated on the whole.
    """

    slope: float
    intercept: float
    in_the_large: float


def calibration_line(y_true: Array, p: Array, *, weights: Array | None = None) -> CalibrationLine:
    """Calibration slope and intercept of one event's probabilities.

    Probabilities are kept a machine epsilon of their dtype away from 0 and 1; but those nearer to 0 count as they are,
    and 0 as the smallest of them. For one class of many or one label give its column and whether it is the true one.

    Args:
        y_true: 1 where the event happened, else 0, [n].
        p: its predicted probabilities, [n], in [0, 1].
        weights: sample weights [n] >= 0, or None.

    Returns:
        Slope, intercept and calibration in the large, as floats.

    Raises:
        TypeError: dtype is wrong, or `y_true` and `p` are exchanged.
        ValueError: shape or range is wrong, the event always or never happens, all of `p` is equal, or it separates the
            outcomes so that no finite slope is the likeliest.
        NotConvergedError: Newton's method stops short, which only probabilities that all but separate the outcomes can
            bring about.
    """
    data = read_event("calibration_line", y_true, p, weights)
    eps, p = torch.finfo(data.probabilities.dtype).eps, data.probabilities.detach().double()
    low = float(torch.where(p > 0, p, eps).min().clamp(max=eps))
    logit = torch.logit(p.clamp(low, 1 - eps))
    y = data.labels.double()
    frequency = float(data.mean(y))
    if not 0 < frequency < 1:
        raise ValueError(f"calibration_line: y_true must hold both 0 and 1, got a share of ones of {frequency:g}")
    if float(logit.max() - logit.min()) <= EQUAL * max(1.0, float(logit.abs().max())):
        raise ValueError("calibration_line: p must differ to have a slope, got equal ones")
    counted = torch.ones_like(y).bool() if data.weights is None else data.weights > 0
    events, others = logit[counted & (y == 1)], logit[counted & (y == 0)]
    if not events.numel() or not others.numel():  # a share of all but 1 may be rounding alone
        raise ValueError("calibration_line: y_true must hold both 0 and 1 with positive weights, got one of them")
    if bool(events.min() >= others.max()) or bool(others.min() >= events.max()):
        raise ValueError("calibration_line: p must overlap between outcomes, got probabilities that separate them")
    ones = torch.ones_like(logit)
    large = _newton(data, ones[:, None], y, logit)
    slope, intercept = _line(data, logit, y, counted)
    return CalibrationLine(slope=slope, intercept=intercept, in_the_large=float(large[0]))


def _line(data: Predictions, logit: torch.Tensor, y: torch.Tensor, counted: torch.Tensor) -> tuple[float, float]:
    """Slope and intercept, found in log-odds of mean 0 and size 1: close ones are all but parallel to the constant."""
    centre = data.mean(logit)
    away = logit - centre
    size = away[counted].abs().max()
    design = torch.stack((torch.ones_like(away), away / size), 1)
    height, rise = _newton(data, design, y, torch.zeros_like(logit))
    slope = rise / size
    return float(slope), float(height - slope * centre)


def _newton(data: Predictions, design: torch.Tensor, y: torch.Tensor, offset: torch.Tensor) -> torch.Tensor:
    """Logistic regression by Newton's method, halving steps that do not lower the loss."""

    def loss(at: torch.Tensor) -> torch.Tensor:
        z = offset + design @ at
        return data.mean(torch.nn.functional.softplus(z) - y * z)

    share = torch.full_like(y, 1 / len(y)) if data.weights is None else data.weights / data.weights.sum()
    beta = design.new_zeros(design.shape[1])
    last = math.inf
    for _ in range(100):
        p = torch.sigmoid(offset + design @ beta)
        gradient = design.T @ (share * (p - y))
        hessian = (design * (share * p * (1 - p))[:, None]).T @ design
        factor, broken = torch.linalg.cholesky_ex(hessian)
        if int(broken):
            break
        step = torch.cholesky_solve(gradient[:, None], factor)[:, 0]
        decrement = float(gradient @ step)
        if decrement <= 1e-24:
            return beta
        if decrement <= CLOSE:
            # The loss cannot tell points so close to the minimum apart: full steps, as long as they shorten.
            if decrement >= last:
                return beta
            beta, last = beta - step, decrement
            continue
        before, size = loss(beta), 1.0
        while size > 1e-10 and not bool(loss(beta - size * step) < before):
            size /= 2
        if size <= 1e-10:  # no lower point within rounding: this is the minimum
            return beta
        beta = beta - size * step
    raise NotConvergedError(
        f"calibration_line: Newton's method must reach the maximum, stopped at {beta.tolist()} in log-odds of mean 0 "
        "and size 1: give more samples, whose scores overlap between the outcomes"
    )
