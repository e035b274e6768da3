"""Canonical calibration of multi-label models: copula estimator, CMLCC loss, training and comparators."""

from .estimator import CanonicalError, CopulaDiagnostics, canonical_calibration_error, conditional_expectation
from .evaluate import accuracy_measures, marginal_ece, multilabel_report, noise_floor
from .families import CopulaOptions
from .kde import KernelError, kde_calibration_error
from .loss import CMLCCLoss, focal_loss, smooth_canonical_error

__all__ = [
    "CMLCCLoss",
    "CanonicalError",
    "CopulaDiagnostics",
    "CopulaOptions",
    "KernelError",
    "accuracy_measures",
    "canonical_calibration_error",
    "conditional_expectation",
    "focal_loss",
    "kde_calibration_error",
    "marginal_ece",
    "multilabel_report",
    "noise_floor",
    "smooth_canonical_error",
]
