"""Isotonic regression (Zadrozny & Elkan 2002), by scikit-learn."""

from __future__ import annotations

from typing import Any

import numpy as np

from calirare.calibration.one_vs_rest import OneVsRestCalibrator, Said


class IsotonicCalibrator(OneVsRestCalibrator):
    """The best non-decreasing map, a step function with lines between the steps; constant beyond the fitted range.

    Args:
        target: population the probabilities shall be right for, see `target_weights`.

    Attributes:
        maps_: corners "p" and "value" of each class's map, "along" the probability "p" or, where a network is so sure
            that many would round to 1, the log-odds "odds".
    """

    def fit_map(self, said: Said, y: np.ndarray, weights: np.ndarray) -> dict[str, Any]:
        """Returns the corners of the map, see `OneVsRestCalibrator.fit_map`."""
        from sklearn.isotonic import IsotonicRegression

        model = IsotonicRegression(y_min=0.0, y_max=1.0, out_of_bounds="clip")
        model.fit(said.along(said.axis), y, weights)
        return {"p": model.X_thresholds_.tolist(), "value": model.y_thresholds_.tolist(), "along": said.axis}

    def apply_map(self, fitted: dict[str, Any], said: Said) -> np.ndarray:
        """Returns calibrated probabilities [n]."""
        return np.interp(said.along(fitted.get("along", "p")), fitted["p"], fitted["value"])
