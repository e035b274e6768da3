"""Calibrators: fitted on logits and labels, logits in, probabilities out."""

from calirare.calibration.affine import AffineCalibrator, platt_scaling, temperature_scaling
from calirare.calibration.base import TARGETS, Calibrator, Target, target_weights
from calirare.calibration.beta import BetaCalibrator
from calirare.calibration.ensemble_temperature import EnsembleTemperatureCalibrator
from calirare.calibration.histogram import HistogramCalibrator
from calirare.calibration.isotonic import IsotonicCalibrator
from calirare.calibration.leave_one_out import JackknifeCalibrator
from calirare.calibration.linear import LinearCalibrator, matrix_scaling, vector_scaling
from calirare.calibration.registry import CALIBRATORS, KINDS, load_calibrator, make_calibrator, save_calibrator
from calirare.calibration.sharpness import class_conditional_sharpness, sharpened

__all__ = [
    "CALIBRATORS",
    "KINDS",
    "TARGETS",
    "AffineCalibrator",
    "BetaCalibrator",
    "Calibrator",
    "EnsembleTemperatureCalibrator",
    "HistogramCalibrator",
    "IsotonicCalibrator",
    "JackknifeCalibrator",
    "LinearCalibrator",
    "Target",
    "class_conditional_sharpness",
    "load_calibrator",
    "make_calibrator",
    "matrix_scaling",
    "platt_scaling",
    "save_calibrator",
    "sharpened",
    "target_weights",
    "temperature_scaling",
    "vector_scaling",
]
