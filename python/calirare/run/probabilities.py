"""Probabilities that tables of a run hold of each node, and which of the nodes are alerts."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from calirare._util.brief import brief
from calirare.calibration import Calibrator, PositiveOnlyCalibrator, PriorPlattCalibrator, Target
from calirare.run.abstaining import left_open

LIKELIER = 0.5  # the threshold of equal costs


@dataclass(frozen=True, eq=False)
class Probabilities:
    """What tables say of the class of each node.

    Attributes:
        raw: the network's own P(class 1), [n].
        rare: P(class 1) for the population, float64 [n]; without calibration the network's own.
        balanced: the same for classes equally common.
        chosen: for the run's target, [n, k]: what `prediction` and `confidence` are about.
        threshold: nodes with `rare` at least this are alerts.
        abstain: which nodes are left open, bool [n]; None where every node is decided.
    """

    raw: Tensor
    rare: Tensor
    balanced: Tensor
    chosen: Tensor
    threshold: float = LIKELIER
    abstain: Tensor | None = None

    __repr__ = brief

    @property
    def alert(self) -> Tensor:
        """Which nodes are alerts, bool [n]."""
        return self.rare >= self.threshold

    @classmethod
    def of(
        cls,
        logits: Tensor,
        maps: dict[Target, Calibrator],
        target: Target,
        threshold: float = LIKELIER,
        abstain: float | None = None,
    ) -> Probabilities:
        """Returns them from logits [n, k] and the fitted map of each target; none without calibration.

        `abstain` is the coverage of the interval that leaves a node open where the threshold lies in it; None: none is.
        """
        fitted = maps.get("population")
        left = None
        if abstain is not None and isinstance(fitted, PriorPlattCalibrator):
            left = left_open(fitted, logits, threshold, abstain)
        raw = torch.softmax(logits, 1)
        chosen = maps[target].transform(logits) if target in maps else raw
        return cls(raw[:, 1], p_rare(logits, maps), p_rare(logits, maps, "balanced"), chosen, threshold, left)


def p_rare(logits: Tensor, maps: dict[Target, Calibrator], target: Target = "population") -> Tensor:
    """Returns P(class 1) of each node under a target's map, float64 [n]; without one the network's own."""
    z = logits.double()
    p: Tensor = maps[target].transform(z) if target in maps else torch.softmax(z, 1)
    return p[:, 1]


def assumed_by(maps: dict[Target, Calibrator]) -> str:
    """Returns what maps made of known rare nodes alone rest on, a sentence; of other maps nothing."""
    fitted = maps.get("population")
    return fitted.sentence_ if isinstance(fitted, PositiveOnlyCalibrator) else ""
