"""Measures of calibration and of prediction, for numpy and torch."""

from .binning import BinStatistics
from .classification import accuracy, macro_f1, precision, recall
from .ece import ace, calibration_error, class_ace, classwise_ece, ece, macro_ace, mce
from .jackknife import coverage, eice
from .proper_scores import brier, nll
from .report import calibration_report
from .resampling import (
    Interval,
    NoiseFloor,
    bootstrap_interval,
    class_ace_noise_floor,
    macro_ace_noise_floor,
    noise_floor,
)

__all__ = [
    "BinStatistics",
    "Interval",
    "NoiseFloor",
    "accuracy",
    "ace",
    "bootstrap_interval",
    "brier",
    "calibration_error",
    "calibration_report",
    "class_ace",
    "class_ace_noise_floor",
    "classwise_ece",
    "coverage",
    "ece",
    "eice",
    "macro_ace",
    "macro_ace_noise_floor",
    "macro_f1",
    "mce",
    "nll",
    "noise_floor",
    "precision",
    "recall",
]
