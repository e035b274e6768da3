"""Calibrated probabilities, jackknife intervals and individual calibration error for rare classes in graphs."""
