"""A run's map to P(rare) as a formula of the logits' difference d."""

from __future__ import annotations

import math

import torch

from calirare._util.errors import InputError
from calirare.calibration import (
    SUREST,
    AffineCalibrator,
    Calibrator,
    JackknifeCalibrator,
    PositiveOnlyCalibrator,
    PriorPlattCalibrator,
)
from calirare.export.arithmetic import N


def log_odds(fitted: Calibrator | None, d: N) -> N:
    """Returns the log-odds that a map makes of the difference of two logits; None: the detector's own.

    Raises:
        InputError: the map is none that can be written.
    """
    match fitted:
        case None:
            return d
        case PositiveOnlyCalibrator() if fitted.lift_ is not None:
            return _of_known(fitted, d)
        case PriorPlattCalibrator() if fitted.form_sd is not None:
            return _two_slopes(fitted, d)
        case PriorPlattCalibrator() | AffineCalibrator() | JackknifeCalibrator():
            return _line(fitted, d)
    raise InputError(
        f"export: the run's map ({type(fitted).__name__}) is none that can be written: train with --map prior, or "
        "score with `calirare predict`"
    )


def _line(fitted: PriorPlattCalibrator | AffineCalibrator | JackknifeCalibrator, d: N) -> N:
    """Returns the line through what an affine map makes of two differences."""
    z = torch.tensor([[0.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    odds = fitted.calibrated_logits(z)
    start, end = (odds[:, 1] - odds[:, 0]).tolist()
    return d * (end - start) + start


def _two_slopes(fitted: PriorPlattCalibrator, d: N) -> N:
    """Returns s_1 L_1 - s_0 L_0 + intercept, L_c = log softmax(0, a)_c + log 2 with a = d / unit - pivot."""
    slopes, intercepts = fitted.slopes_, fitted.intercepts_
    a = d / fitted.unit_ - float(fitted.pivot(2)[1])
    size = a.apply("Abs")
    beyond = ((-size).apply("Exp") + 1.0).apply("Log")  # log(1 + exp(-|a|)): both logarithms are min(+-a, 0) less it
    l1, l0 = ((each - size) * 0.5 - beyond + math.log(2) for each in (a, -a))
    return l1 * float(slopes[1]) - l0 * float(slopes[0]) + float(intercepts[1] - intercepts[0])


def _of_known(fitted: PositiveOnlyCalibrator, d: N) -> N:
    """Returns the log-odds of P(rare) in the population, where P(rare) = exp(lift) odds(known), bent."""
    assert fitted.theta_ is not None
    assert fitted.lift_ is not None
    scale, theta, lift = fitted.scale_, fitted.theta_.tolist(), fitted.lift_.tolist()
    known = d * scale + (theta[1] - scale * fitted.unit_ * float(fitted.pivot(2)[1]) + lift[0])
    most = math.log(SUREST)
    above = known.at_least(most) - most
    log_p = known.at_most(most) - above / (above + 1.0) * (most / 2)  # `bent`
    return log_p - (1.0 - log_p.apply("Exp")).apply("Log") + (theta[2] - lift[1])
