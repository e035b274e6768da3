"""Canonical calibration of multi-label models: copula estimator, CMLCC loss, training and comparators."""

from calirare_multilabel.data import PUBLISHED, MultilabelData, load_multilabel, save_multilabel
from calirare_multilabel.estimator import (
    CanonicalError,
    CopulaDiagnostics,
    canonical_calibration_error,
    conditional_expectation,
)
from calirare_multilabel.evaluate import (
    KernelError,
    accuracy_measures,
    kde_calibration_error,
    marginal_ece,
    multilabel_report,
    noise_floor,
)
from calirare_multilabel.families import CopulaOptions
from calirare_multilabel.loss import CMLCCLoss, focal_loss, smooth_canonical_error
from calirare_multilabel.run import Calibration, train_and_measure, write_run
from calirare_multilabel.training import TrainedModel, TrainOptions, choose_beta, train_network

__all__ = [
    "PUBLISHED",
    "CMLCCLoss",
    "Calibration",
    "CanonicalError",
    "CopulaDiagnostics",
    "CopulaOptions",
    "KernelError",
    "MultilabelData",
    "TrainOptions",
    "TrainedModel",
    "accuracy_measures",
    "canonical_calibration_error",
    "choose_beta",
    "conditional_expectation",
    "focal_loss",
    "kde_calibration_error",
    "load_multilabel",
    "marginal_ece",
    "multilabel_report",
    "noise_floor",
    "save_multilabel",
    "smooth_canonical_error",
    "train_and_measure",
    "train_network",
    "write_run",
]
