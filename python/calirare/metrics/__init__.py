"""Measures of calibration and of prediction, for numpy and torch; all take the true labels first, then `p`."""

from calirare._util.arrays import Array
from calirare.metrics.binning import BinStatistics
from calirare.metrics.calibration_errors import (
    ace,
    calibration_error,
    class_ace,
    class_statistics,
    classwise_ece,
    confidence_statistics,
    ece,
    macro_ace,
    mce,
)
from calirare.metrics.detection import (
    PrecisionRecall,
    auprc,
    auroc,
    lift_at,
    precision_at,
    precision_recall_curve,
    recall_at,
)
from calirare.metrics.event_calibration import (
    CalibrationLine,
    InTheLarge,
    calibration_in_the_large,
    calibration_line,
    equal_mass_ece,
    equal_mass_noise_floor,
)
from calirare.metrics.in_the_large import PopulationCheck, population_check
from calirare.metrics.intervals import coverage, eice
from calirare.metrics.proper_scores import BrierDecomposition, brier, brier_decomposition, nll
from calirare.metrics.reports import BUDGETS, calibration_report, detection_report, marginal_report, rare_report
from calirare.metrics.resampling import (
    Interval,
    NoiseFloor,
    bootstrap_interval,
    class_ace_noise_floor,
    macro_ace_noise_floor,
    noise_floor,
)

__all__ = [
    "BUDGETS",
    "Array",
    "BinStatistics",
    "BrierDecomposition",
    "CalibrationLine",
    "InTheLarge",
    "Interval",
    "NoiseFloor",
    "PopulationCheck",
    "PrecisionRecall",
    "ace",
    "auprc",
    "auroc",
    "bootstrap_interval",
    "brier",
    "brier_decomposition",
    "calibration_error",
    "calibration_in_the_large",
    "calibration_line",
    "calibration_report",
    "class_ace",
    "class_ace_noise_floor",
    "class_statistics",
    "classwise_ece",
    "confidence_statistics",
    "coverage",
    "detection_report",
    "ece",
    "eice",
    "equal_mass_ece",
    "equal_mass_noise_floor",
    "lift_at",
    "macro_ace",
    "macro_ace_noise_floor",
    "marginal_report",
    "mce",
    "nll",
    "noise_floor",
    "population_check",
    "precision_at",
    "precision_recall_curve",
    "rare_report",
    "recall_at",
]
