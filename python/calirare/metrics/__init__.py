"""Measures of calibration and of prediction, for numpy and torch."""

from .ace import ace, class_ace, macro_ace
from .binning import BinStatistics, SmallSampleWarning
from .classification import accuracy, macro_f1, precision, recall
from .ece import calibration_error, class_statistics, classwise_ece, confidence_statistics, ece, mce
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
    "SmallSampleWarning",
    "accuracy",
    "ace",
    "bootstrap_interval",
    "brier",
    "calibration_error",
    "calibration_report",
    "class_ace",
    "class_ace_noise_floor",
    "class_statistics",
    "classwise_ece",
    "confidence_statistics",
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
