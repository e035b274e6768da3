"""Maps of one probability, used class against rest and normalised."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from calirare.calibration.base import Calibrator, Target, target_weights


class OneVsRestCalibrator(Calibrator):
    """A calibrator made of one map [0, 1] -> [0, 1] per class.

    Two classes need the map of class 1 only. With more, each class is mapped against the rest and the row is divided by
    its sum (Zadrozny & Elkan 2002); a row mapped to zeros becomes uniform.

    Args:
        target: population the probabilities shall be right for, see `target_weights`.

    Attributes:
        maps_: plain numbers of each class's map; None before fitting.
    """

    fitted: ClassVar = {"maps": list}
    maps_: list[dict[str, Any]] | None = None

    def __init__(self, *, target: Target = "population") -> None:
        self.target: Target = target

    @property
    def n_classes(self) -> int | None:
        """Number of classes fitted; None before fitting."""
        return max(2, len(self.maps_)) if self.maps_ else None

    @abstractmethod
    def fit_map(self, p: np.ndarray, y: np.ndarray, weights: np.ndarray) -> dict[str, Any]:
        """Returns the map of one class as plain numbers.

        `p` are its uncalibrated probabilities, `y` 1 where it is the true one, else 0, `weights` of mean 1, all float64
        [n].
        """

    @abstractmethod
    def apply_map(self, fitted: dict[str, Any], p: np.ndarray) -> np.ndarray:
        """Returns calibrated probabilities [n] of uncalibrated ones [n]."""

    def _fit(self, logits: Tensor, labels: Tensor) -> None:
        k = logits.shape[1]
        p, y = _probabilities(logits), labels.cpu().numpy()
        weights = target_weights(labels, k, self.target).cpu().numpy()
        self.maps_ = [self.fit_map(p[:, c], (y == c).astype(np.float64), weights) for c in _mapped_classes(k)]

    def _transform(self, logits: Tensor) -> Tensor:
        assert self.maps_ is not None
        p, k = _probabilities(logits), logits.shape[1]
        columns = [self.apply_map(m, p[:, c]) for m, c in zip(self.maps_, _mapped_classes(k), strict=True)]
        if k == 2:
            out = np.stack([1 - columns[0], columns[0]], 1)
        else:
            out = np.stack(columns, 1)
            total = out.sum(1, keepdims=True)
            out = np.where(total > 0, out / np.where(total > 0, total, 1), 1 / k)
        return torch.from_numpy(out).to(logits)


def _mapped_classes(k: int) -> list[int]:
    return [1] if k == 2 else list(range(k))


def _probabilities(logits: Tensor) -> np.ndarray:
    return torch.softmax(logits.detach().double(), 1).cpu().numpy()
