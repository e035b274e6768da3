"""Maps of one probability, used class against rest and normalised."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from torch import Tensor

from calirare.calibration.base import Calibrator, Target, float64, standard_of, target_weights

FAR = 30.0  # log-odds beyond which probabilities differ by little more than float64 tells apart


@dataclass(frozen=True)
class Said:
    """What a network says of one class at n nodes.

    Attributes:
        p: its probabilities, float64 [n].
        odds: their log-odds, which still differ where p is 1 for all, float64 [n].
    """

    p: np.ndarray
    odds: np.ndarray

    @property
    def axis(self) -> Literal["p", "odds"]:
        """Which of the two a map with corners is to be fitted along, by its name."""
        return "odds" if (np.abs(self.odds) > FAR).any() else "p"

    def along(self, axis: Literal["p", "odds"]) -> np.ndarray:
        """Returns the numbers on an axis, [n]."""
        return self.odds if axis == "odds" else self.p


class OneVsRestCalibrator(Calibrator):
    """A calibrator made of one map [0, 1] -> [0, 1] per class.

    Two classes need the map of class 1 only. With more, each class is mapped against the rest and the row is divided by
    its sum (Zadrozny & Elkan 2002); a row mapped to zeros becomes uniform.

    Args:
        target: population the probabilities shall be right for, see `target_weights`.

    Attributes:
        maps_: plain numbers of each class's map; None before fitting.
        level_: what is taken off the logits first, float64 [k], 0 but for logits of unusual level, see `standard_of`.
        unit_: what the rest is divided by, 1 but for logits of unusual size.
    """

    fitted: ClassVar = {"maps": list, "level": float64, "unit": float}
    maps_: list[dict[str, Any]] | None = None
    level_: Tensor | None = None
    unit_: float = 1.0

    def __init__(self, *, target: Target = "population") -> None:
        self.target: Target = target

    @property
    def n_classes(self) -> int | None:
        """Number of classes fitted; None before fitting."""
        return max(2, len(self.maps_)) if self.maps_ else None

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        """Returns the calibrator that `state` was taken from; one of an earlier release has no level and no unit."""
        return super().from_state({"level": None, "unit": 1.0} | state)

    def _standard(self, logits: Tensor) -> Tensor:
        z = logits.detach().double()
        return (z if self.level_ is None else z - self.level_.to(z)) / self.unit_

    @abstractmethod
    def fit_map(self, said: Said, y: np.ndarray, weights: np.ndarray) -> dict[str, Any]:
        """Returns the map of one class as plain numbers.

        `said` is what is to be mapped, `y` 1 where the class is the true one, else 0, `weights` of mean 1, both float64
        [n].
        """

    @abstractmethod
    def apply_map(self, fitted: dict[str, Any], said: Said) -> np.ndarray:
        """Returns calibrated probabilities [n] of what is said of n nodes."""

    def _fit(self, logits: Tensor, labels: Tensor) -> None:
        k = logits.shape[1]
        level, self.unit_ = standard_of(logits)
        self.level_ = level.cpu()
        every, y = _said(self._standard(logits)), labels.cpu().numpy()
        weights = target_weights(labels, k, self.target).cpu().numpy()
        self.maps_ = [self.fit_map(said, (y == c).astype(np.float64), weights) for c, said in every.items()]

    def _transform(self, logits: Tensor) -> Tensor:
        assert self.maps_ is not None
        k, said = logits.shape[1], _said(self._standard(logits)).values()
        columns = [self.apply_map(m, said) for m, said in zip(self.maps_, said, strict=True)]
        if k == 2:
            out = np.stack([1 - columns[0], columns[0]], 1)
        else:
            out = np.stack(columns, 1)
            total = out.sum(1, keepdims=True)
            out = np.where(total > 0, out / np.where(total > 0, total, 1), 1 / k)
        return torch.from_numpy(out).to(logits)


def _said(logits: Tensor) -> dict[int, Said]:
    """Returns what float64 logits say of each class that has a map, by its number."""
    z, p = logits, torch.softmax(logits, 1)
    if z.shape[1] == 2:
        odds = torch.stack([z[:, 0] - z[:, 1], z[:, 1] - z[:, 0]], 1)
    else:
        best = z.argmax(1, keepdim=True)  # its 1 - p is the sum of the others: the difference would be 0
        rest = torch.logsumexp(z.scatter(1, best, -torch.inf), 1, keepdim=True) - torch.logsumexp(z, 1, keepdim=True)
        odds = torch.log_softmax(z, 1) - torch.log1p(-p).scatter(1, best, rest)
    odds = odds.nan_to_num()  # of logits too large for a difference the largest number
    classes = [1] if z.shape[1] == 2 else range(z.shape[1])
    return {c: Said(p[:, c].cpu().numpy(), odds[:, c].cpu().numpy()) for c in classes}
