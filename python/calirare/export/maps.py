"""A run's map to P(rare) as expressions of the logits' difference d."""

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
from calirare.export.dialects import Dialect, number

AFFINE = PriorPlattCalibrator | AffineCalibrator | JackknifeCalibrator
FAR = 700.0  # log-odds beyond which an exponential leaves float64's range


def probability(dialect: Dialect, odds: str) -> str:
    """Returns 1 / (1 + exp(-odds))."""
    return f"1 / (1 + EXP({dialect.low}({number(FAR)}, {dialect.high}({number(-FAR)}, -({odds})))))"


def log_odds(fitted: Calibrator | None, d: str) -> str:
    """Returns the log-odds that a map makes of the difference of two logits; None: the detector's own.

    Raises:
        InputError: the map is none that a query can hold.
    """
    if fitted is None:
        return d
    if isinstance(fitted, PositiveOnlyCalibrator) and fitted.lift_ is not None:
        return _of_known(fitted, d)
    if isinstance(fitted, PriorPlattCalibrator) and fitted.form_sd is not None:
        return _two_slopes(fitted, d)
    if isinstance(fitted, AFFINE):
        slope, start = line_of(fitted)
        return f"{number(slope)} * {d} + {number(start)}"
    raise InputError(
        f"export: the run's map ({type(fitted).__name__}) is none that a query can hold: train with --map prior, or "
        "score with `calirare predict`"
    )


def line_of(fitted: PriorPlattCalibrator | AffineCalibrator | JackknifeCalibrator) -> tuple[float, float]:
    """Returns slope and start of the line through what an affine map makes of two differences."""
    z = torch.tensor([[0.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    odds = fitted.calibrated_logits(z)
    start, end = (odds[:, 1] - odds[:, 0]).tolist()
    return end - start, start


def _two_slopes(fitted: PriorPlattCalibrator, d: str) -> str:
    """Returns s_1 L_1 - s_0 L_0 + intercept, L_c = log softmax(0, a)_c + log 2 with a = d / unit - pivot."""
    slopes, intercepts = fitted.slopes_, fitted.intercepts_
    a = f"({d} / {number(fitted.unit_)} - {number(float(fitted.pivot(2)[1]))})"
    beyond = f"LN(1 + EXP(-ABS({a})))"  # log(1 + exp(-|a|)): both logarithms are min(+-a, 0) less it
    l1, l0 = (f"(0.5e0 * ({sign}{a} - ABS({a})) - {beyond} + {number(math.log(2))})" for sign in ("", "-"))
    constant = float(intercepts[1] - intercepts[0])
    return f"{number(float(slopes[1]))} * {l1} - {number(float(slopes[0]))} * {l0} + {number(constant)}"


def known_line(fitted: PositiveOnlyCalibrator) -> tuple[float, float, float]:
    """Returns slope and start of log P(rare) before it is cut, and what is added to its log-odds."""
    assert fitted.theta_ is not None
    assert fitted.lift_ is not None
    scale, theta, lift = fitted.scale_, fitted.theta_.tolist(), fitted.lift_.tolist()
    return scale, theta[1] - scale * fitted.unit_ * float(fitted.pivot(2)[1]) + lift[0], theta[2] - lift[1]


def _of_known(fitted: PositiveOnlyCalibrator, d: str) -> str:
    """Returns the log-odds of P(rare) in the population, where P(rare) = exp(lift) odds(known), cut at `SUREST`."""
    scale, constant, prior = known_line(fitted)
    known, most = f"({number(scale)} * {d} + {number(constant)})", number(math.log(SUREST))
    log_p = f"(CASE WHEN {known} > {most} THEN {most} ELSE {known} END)"
    return f"{log_p} - LN(1 - EXP({log_p})) + {number(prior)}"
