"""Nodes that a decision leaves open: the interval of their P(rare) holds the threshold."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Self

import torch
from torch import Tensor

from calirare.calibration import PriorPlattCalibrator, probability_interval


@dataclass(frozen=True)
class Undecided:
    """What a decision leaves open among some nodes.

    Attributes:
        coverage: of the intervals that decide on it.
        nodes: number of nodes.
        abstained: how many are left open.
        error: share of the others that are expected to be decided wrongly, by P(rare); None where there is none.
        error_everyone: the same of all nodes if none were left open; None where there is none.
    """

    coverage: float
    nodes: int
    abstained: int
    error: float | None
    error_everyone: float | None

    @classmethod
    def of(cls, p: Tensor, left: Tensor, threshold: float, coverage: float) -> Self:
        """Returns it of nodes with P(rare) p, [n], of which some are left open, bool [n]."""
        wrong = torch.where(p >= threshold, 1 - p, p)
        return cls(coverage, len(p), int(left.sum()), _mean(wrong[~left]), _mean(wrong))

    @property
    def sentence(self) -> str:
        """What is left open, and what to expect of the others."""
        share = self.abstained / max(self.nodes, 1)
        text = (
            f"left open: {self.abstained:,} of {self.nodes:,} nodes ({share:.1%}), whose {self.coverage:.0%} interval "
            "of P(rare) holds the threshold"
        )
        if self.error is None or self.error_everyone is None:
            return text
        return f"{text}; of the others expect {self.error:.2%} to be decided wrongly ({self.error_everyone:.2%} of all)"

    def to_mapping(self) -> dict[str, Any]:
        """Returns everything as JSON holds it."""
        return asdict(self) | {"sentence": self.sentence}


def left_open(fitted: PriorPlattCalibrator, logits: Tensor, threshold: float, coverage: float) -> Tensor:
    """Returns which nodes are left open, bool [n].

    The interval is what the calibration labels leave open of the map (`probability_interval`): a node is left open
    where other labels of the same kind could have decided otherwise, not where P(rare) is near a half by itself.

    Args:
        fitted: the map of the population.
        logits: of the nodes, [n, 2].
        threshold: nodes with P(rare) at least this are alerts.
        coverage: of the interval, in (0, 1).
    """
    low, high = probability_interval(fitted, logits.double(), coverage)
    return (low < threshold) & (threshold <= high)


def realised_error(p: Tensor, labels: Tensor, left: Tensor, threshold: float) -> dict[str, Any]:
    """Returns how many of labelled nodes are left open, and the share of the others that is decided wrongly.

    Args:
        p: P(rare) made without their labels, [m].
        labels: classes, int64 [m].
        left: which are left open, bool [m].
        threshold: of the decision.
    """
    wrong = ((p >= threshold) != (labels == 1)).double()
    return {"abstained": int(left.sum()), "error": _mean(wrong[~left]), "error_everyone": _mean(wrong)}


def _mean(values: Tensor) -> float | None:
    return float(values.mean()) if len(values) else None
