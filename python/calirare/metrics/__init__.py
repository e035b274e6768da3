"""Measures of calibration and of prediction, for numpy and torch; all take the true labels first, then `p`."""

from calirare._util.arrays import Array
from calirare.metrics.binning import N_BINS, BinStatistics
from calirare.metrics.calibration_errors import (
    class_ace,
    classwise_ece,
    confidence_statistics,
    ece,
    macro_ace,
    mce,
)
from calirare.metrics.detection import (
    auprc,
    auroc,
    precision_at,
    recall_at,
)
from calirare.metrics.event_calibration import (
    InTheLarge,
    calibration_in_the_large,
    calibration_line,
    equal_mass_ece,
    equal_mass_noise_floor,
)
from calirare.metrics.in_the_large import PopulationCheck, population_check
from calirare.metrics.intervals import coverage, eice
from calirare.metrics.proper_scores import brier, brier_decomposition, nll
from calirare.metrics.reports import BUDGETS, calibration_report, detection_report, rare_report
from calirare.metrics.resampling import (
    Interval,
    NoiseFloor,
    bootstrap_interval,
    class_ace_noise_floor,
    macro_ace_noise_floor,
    noise_floor,
)
