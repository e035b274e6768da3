"""Maps of one probability, used class against rest and normalised."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from calirare.calibration.base import Calibrator, Target, check_logits, target_weights


class OneVsRestCalibrator(Calibrator):
    """A calibrator made of one map [0, 1] -> [0, 1] per class.

    Two classes need the map of class 1 only. With more, each class is mapped against the rest and the row is divided by
    its sum (Zadrozny & Elkan 2002); a row mapped to zeros becomes uniform.

    Args:
        target: population the probabilities shall be right for, see `target_weights`.

    Attributes:
        maps: plain numbers of each class's map; empty before fitting.
    """

    settings: ClassVar[tuple[str, ...]] = ("target",)

    def __init__(self, *, target: Target = "population") -> None:
        self.target: Target = target
        self.maps: list[dict[str, Any]] = []

    @property
    def n_classes(self) -> int | None:
        """Number of classes fitted; None before fitting."""
        return max(2, len(self.maps)) if self.maps else None

    @abstractmethod
    def fit_map(self, p: np.ndarray, y: np.ndarray, weights: np.ndarray) -> dict[str, Any]:
        """Returns the map of one class as plain numbers.

        Args:
            p: uncalibrated probability of the class, float64 [n].
            y: whether the class is the true one, float64 [n] of 0 and 1.
            weights: float64 [n], mean 1.
        """

    @abstractmethod
    def apply_map(self, fitted: dict[str, Any], p: np.ndarray) -> np.ndarray:
        """Returns calibrated probabilities [n] of uncalibrated ones [n]."""

    def fit(self, logits: Tensor, labels: Tensor) -> Self:
        """Fits one map per class (two classes: one map) on logits [n, k] and labels int64 [n]."""
        check_logits(type(self).__name__, logits, labels)
        k = logits.shape[1]
        p, y = _probabilities(logits), labels.cpu().numpy()
        weights = target_weights(labels, k, self.target).cpu().numpy()
        self.maps = [self.fit_map(p[:, c], (y == c).astype(np.float64), weights) for c in _mapped_classes(k)]
        return self

    def transform(self, logits: Tensor) -> Tensor:
        """Returns calibrated probabilities [n, k]."""
        check_logits(type(self).__name__, logits)
        self.check_classes(logits)
        p, k = _probabilities(logits), logits.shape[1]
        columns = [self.apply_map(m, p[:, c]) for m, c in zip(self.maps, _mapped_classes(k), strict=True)]
        if k == 2:
            out = np.stack([1 - columns[0], columns[0]], 1)
        else:
            out = np.stack(columns, 1)
            total = out.sum(1, keepdims=True)
            out = np.where(total > 0, out / np.where(total > 0, total, 1), 1 / k)
        return torch.from_numpy(out).to(logits)

    def state(self) -> dict[str, Any]:
        """Returns the maps and the settings."""
        return {**{name: getattr(self, name) for name in self.settings}, "maps": self.maps}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        """Returns the calibrator that `state` was taken from."""
        out = cls(**{name: state[name] for name in cls.settings})
        out.maps = list(state["maps"])
        return out


def _mapped_classes(k: int) -> list[int]:
    return [1] if k == 2 else list(range(k))


def _probabilities(logits: Tensor) -> np.ndarray:
    return torch.softmax(logits.detach().double(), 1).cpu().numpy()
