"""Calibration slope and intercept: the straight line that would recalibrate the log-odds."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch

from calirare._util.errors import NotConvergedError
from calirare.metrics._inputs import Array, read, read_scores
from calirare.metrics._predictions import Predictions

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


def calibration_line(scores: Array, outcomes: Array, *, weights: Array | None = None) -> CalibrationLine:
    """Calibration slope and intercept of one event's probabilities.

    Probabilities are kept a machine epsilon of their dtype away from 0 and 1. For one class of many or one label give
    its column and whether it is the true one.

    Args:
        scores: predicted probabilities of the event, [n], in [0, 1].
        outcomes: 1 where it happened, else 0, [n].
        weights: sample weights [n] >= 0, or None.

    Returns:
        Slope, intercept and calibration in the large, as floats.

    Raises:
        TypeError: dtype is wrong.
        ValueError: shape or range is wrong, the event always or never happens, all scores are equal, or they separate
            the outcomes so that no finite slope is the likeliest.
        NotConvergedError: Newton's method stops short, which only scores that all but separate the outcomes can bring
            about.
    """
    data = read_scores("calibration_line", scores, outcomes, weights)
    eps = torch.finfo(data.probabilities.dtype).eps
    logit = torch.logit(data.probabilities.detach().double(), eps=eps)
    y = data.labels.double()
    frequency = float(data.mean(y))
    if not 0 < frequency < 1:
        raise ValueError(f"calibration_line: outcomes must hold both 0 and 1, got a share of ones of {frequency:g}")
    if float(logit.max() - logit.min()) == 0:
        raise ValueError("calibration_line: scores must differ to have a slope, got equal ones")
    counted = torch.ones_like(y).bool() if data.weights is None else data.weights > 0
    events, others = logit[counted & (y == 1)], logit[counted & (y == 0)]
    if bool(events.min() >= others.max()) or bool(others.min() >= events.max()):
        raise ValueError("calibration_line: scores must overlap between outcomes, got scores that separate them")
    ones = torch.ones_like(logit)
    large = _newton(data, ones[:, None], y, logit)
    slope, intercept = _line(data, logit, y, counted)
    return CalibrationLine(slope=slope, intercept=intercept, in_the_large=float(large[0]))


def calibration_lines(
    probabilities: Array, labels: Array, *, weights: Array | None = None
) -> tuple[CalibrationLine, ...]:
    """Calibration slope and intercept of every class, against the rest, or of every label.

    Args:
        probabilities: [n, C] with rows that sum to one, [n] = P(class 1) (one line), or [n, K] of labels.
        labels: int [n], or [n, K] of 0 and 1 for multi-label.
        weights: sample weights [n] >= 0, or None.

    Returns:
        One line per class or label.

    Raises:
        TypeError: dtype is wrong.
        ValueError: shape or range is wrong, or a class has no line (see `calibration_line`); the message names it.
        NotConvergedError: as for `calibration_line`.
    """
    data = read("calibration_lines", probabilities, labels, weights)
    if data.kind == "binary":
        return (calibration_line(data.probabilities, data.labels, weights=data.weights),)
    lines, outcomes = [], data.one_hot()
    for k in range(data.n_classes):
        try:
            lines.append(calibration_line(data.probabilities[:, k], outcomes[:, k], weights=data.weights))
        except (ValueError, NotConvergedError) as error:
            what = "label" if data.kind == "multilabel" else "class"
            raise type(error)(f"calibration_lines: {what} {k}: {error}") from error
    return tuple(lines)


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
