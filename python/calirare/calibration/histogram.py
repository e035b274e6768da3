"""Histogram binning (Zadrozny & Elkan 2001)."""

from __future__ import annotations

from typing import Any

import numpy as np

from calirare._util.arrays import check_count
from calirare.calibration.base import Target
from calirare.calibration.one_vs_rest import OneVsRestCalibrator, Said


class HistogramCalibrator(OneVsRestCalibrator):
    """Replaces a probability by the share of the class in its bin; bins hold equal numbers of fitted nodes.

    Args:
        n_bins: bins wanted, >= 1; repeated probabilities can make them fewer.
        target: population the probabilities shall be right for, see `target_weights`.

    Attributes:
        maps_: upper ends "upper" of the bins but the last, and "value" of each bin, "along" the probability "p" or,
            where a network is so sure that many would round to 1, the log-odds "odds".

    Raises:
        TypeError: n_bins is no integer.
        ValueError: n_bins is below 1.
    """

    def __init__(self, *, n_bins: int = 10, target: Target = "population") -> None:
        super().__init__(target=target)
        self.n_bins = n_bins
        self.check_settings()

    def check_settings(self) -> None:
        """Checks the number of bins."""
        check_count("HistogramCalibrator", "n_bins", self.n_bins)

    def fit_map(self, said: Said, y: np.ndarray, weights: np.ndarray) -> dict[str, Any]:
        """Returns ends and values of the bins, see `OneVsRestCalibrator.fit_map`."""
        # Ends that are data points: no bin (end before, end] is empty.
        x = said.along(said.axis)
        ends = np.unique(np.quantile(x, np.arange(1, self.n_bins + 1) / self.n_bins, method="inverted_cdf"))
        upper = ends[:-1]
        at = np.searchsorted(upper, x, side="left")
        total = np.bincount(at, weights, minlength=len(ends))
        hits = np.bincount(at, weights * y, minlength=len(ends))
        return {"upper": upper.tolist(), "value": (hits / total).tolist(), "along": said.axis}

    def apply_map(self, fitted: dict[str, Any], said: Said) -> np.ndarray:
        """Returns calibrated probabilities [n]."""
        x = said.along(fitted.get("along", "p"))
        return np.asarray(fitted["value"])[np.searchsorted(fitted["upper"], x, side="left")]
