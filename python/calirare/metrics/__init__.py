"""Measures of calibration and of prediction, for numpy and torch; all take the true labels first, then `p`."""

from calirare._util.arrays import Array
from calirare.metrics.adaptive_error import ace, class_ace, macro_ace
from calirare.metrics.binned_error import (
    calibration_error,
    class_statistics,
    classwise_ece,
    confidence_statistics,
    ece,
    mce,
)
from calirare.metrics.binning import BinStatistics, SmallSampleWarning
from calirare.metrics.classification import accuracy, macro_f1, precision, recall
from calirare.metrics.debiased_error import debiased_ece
from calirare.metrics.decomposition import BrierDecomposition, brier_decomposition, sharpness
from calirare.metrics.distributed import gather
from calirare.metrics.intervals import coverage, eice
from calirare.metrics.kernel_error import kde_bandwidth, kde_calibration_error
from calirare.metrics.proper_scores import brier, nll
from calirare.metrics.reports import calibration_report, marginal_report
from calirare.metrics.resampling import (
    Interval,
    NoiseFloor,
    bootstrap_interval,
    class_ace_noise_floor,
    macro_ace_noise_floor,
    noise_floor,
)
from calirare.metrics.slope import CalibrationLine, calibration_line, calibration_lines
from calirare.metrics.smooth_error import smooth_calibration_error, smooth_ece
from calirare.metrics.soft_error import soft_ece

__all__ = [
    "Array",
    "BinStatistics",
    "BrierDecomposition",
    "CalibrationLine",
    "Interval",
    "NoiseFloor",
    "SmallSampleWarning",
    "accuracy",
    "ace",
    "bootstrap_interval",
    "brier",
    "brier_decomposition",
    "calibration_error",
    "calibration_line",
    "calibration_lines",
    "calibration_report",
    "class_ace",
    "class_ace_noise_floor",
    "class_statistics",
    "classwise_ece",
    "confidence_statistics",
    "coverage",
    "debiased_ece",
    "ece",
    "eice",
    "gather",
    "kde_bandwidth",
    "kde_calibration_error",
    "macro_ace",
    "macro_ace_noise_floor",
    "macro_f1",
    "marginal_report",
    "mce",
    "nll",
    "noise_floor",
    "precision",
    "recall",
    "sharpness",
    "smooth_calibration_error",
    "smooth_ece",
    "soft_ece",
]
