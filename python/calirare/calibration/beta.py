"""Beta calibration (Kull, Silva Filho & Flach 2017)."""

from __future__ import annotations

from typing import Any

import numpy as np

from calirare.calibration.affine import SCALE_PRIOR, scale_prior
from calirare.calibration.one_vs_rest import OneVsRestCalibrator, Said


class BetaCalibrator(OneVsRestCalibrator):
    """Maps p to sigma(a ln p - b ln(1 - p) + c) with a, b >= 0.

    With a = b it is Platt scaling. Fitted by weighted negative log-likelihood, which is convex; the same weak prior as
    in `AffineCalibrator` keeps separable probabilities from infinite parameters.

    Args:
        target: population the probabilities shall be right for, see `target_weights`.

    Attributes:
        maps_: "a", "b" and "c" of each class's map.
    """

    def fit_map(self, said: Said, y: np.ndarray, weights: np.ndarray) -> dict[str, Any]:
        """Returns a, b and c, see `OneVsRestCalibrator.fit_map`."""
        from scipy.optimize import minimize

        features = _features(said)
        centre = np.array([1.0, 1.0, 0.0])
        of_slopes = scale_prior(None, len(y))
        prior = np.array([of_slopes, of_slopes, SCALE_PRIOR / len(y)])  # c sets the mean probability: its prior fades
        signs = 1 - 2 * y

        def loss(theta: np.ndarray) -> tuple[float, np.ndarray]:
            margin = signs * (features @ theta)
            away = theta - centre
            value = np.mean(weights * np.logaddexp(0, margin)) + prior @ away**2
            slope = weights * signs / (1 + np.exp(-np.clip(margin, -700, 700))) / len(y)
            return float(value), features.T @ slope + 2 * prior * away

        bounds = [(0, None), (0, None), (None, None)]
        options = {"ftol": 1e-14, "gtol": 1e-10, "maxiter": 1000}
        found = minimize(loss, centre, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
        return dict(zip("abc", found.x.tolist(), strict=True))

    def apply_map(self, fitted: dict[str, Any], said: Said) -> np.ndarray:
        """Returns calibrated probabilities [n]."""
        from scipy.special import expit

        return expit(_features(said) @ np.array([fitted["a"], fitted["b"], fitted["c"]]))


def _features(said: Said) -> np.ndarray:
    """Returns ln p, -ln(1 - p) and 1, float64 [n, 3]."""
    return np.stack([-np.logaddexp(0, -said.odds), np.logaddexp(0, said.odds), np.ones_like(said.odds)], 1)
