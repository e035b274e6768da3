"""Calibrators: fitted on logits and labels, logits in, probabilities out."""

from calirare.calibration.affine import AffineCalibrator, platt_scaling, temperature_scaling
from calirare.calibration.base import TARGETS, Calibrator, Target, target_weights
from calirare.calibration.jackknife import JackknifeCalibrator

__all__ = [
    "TARGETS",
    "AffineCalibrator",
    "Calibrator",
    "JackknifeCalibrator",
    "Target",
    "platt_scaling",
    "target_weights",
    "temperature_scaling",
]
