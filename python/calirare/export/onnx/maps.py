"""A run's map to P(rare) as operations on the logits' difference d."""

from __future__ import annotations

import math

import numpy as np

from calirare._util.errors import InputError
from calirare.calibration import SUREST, Calibrator, PositiveOnlyCalibrator, PriorPlattCalibrator
from calirare.export.maps import AFFINE, known_line, line_of
from calirare.export.onnx.sketch import Value


def probability(odds: Value) -> Value:
    """Returns 1 / (1 + exp(-odds))."""
    return 1.0 / ((-odds).apply("Exp") + 1.0)


def log_odds(fitted: Calibrator | None, d: Value) -> Value:
    """Returns the log-odds that a map makes of the difference of two logits; None: the detector's own.

    Raises:
        InputError: the map is none that a model can hold.
    """
    if fitted is None:
        return d
    if isinstance(fitted, PositiveOnlyCalibrator) and fitted.lift_ is not None:
        return _of_known(fitted, d)
    if isinstance(fitted, PriorPlattCalibrator) and fitted.form_sd is not None:
        return _two_slopes(fitted, d)
    if isinstance(fitted, AFFINE):
        slope, start = line_of(fitted)
        return d * slope + start
    raise InputError(
        f"export: the run's map ({type(fitted).__name__}) is none that a model can hold: train with --map prior, or "
        "score with `calirare predict`"
    )


def _two_slopes(fitted: PriorPlattCalibrator, d: Value) -> Value:
    """Returns s_1 L_1 - s_0 L_0 + intercept, L_c = log softmax(0, a)_c + log 2 with a = d / unit - pivot."""
    slopes, intercepts = fitted.slopes_, fitted.intercepts_
    a = d / fitted.unit_ - float(fitted.pivot(2)[1])
    size = a.apply("Abs")
    beyond = ((-size).apply("Exp") + 1.0).apply("Log")  # log(1 + exp(-|a|)): both logarithms are min(+-a, 0) less it
    l1, l0 = ((each - size) * 0.5 - beyond + math.log(2) for each in (a, -a))
    return l1 * float(slopes[1]) - l0 * float(slopes[0]) + float(intercepts[1] - intercepts[0])


def _of_known(fitted: PositiveOnlyCalibrator, d: Value) -> Value:
    """Returns the log-odds of P(rare) in the population, where P(rare) = exp(lift) odds(known), cut at `SUREST`."""
    scale, constant, prior = known_line(fitted)
    known = d * scale + constant
    log_p = d.sketch.op("Min", known, np.array(math.log(SUREST)))
    return log_p - (1.0 - log_p.apply("Exp")).apply("Log") + prior
