"""What every budget would buy: how many rare nodes the likeliest n alerts hold, for every n at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from calirare._util.arrays import brief, equal_to
from calirare._util.errors import InputError
from calirare.calibration.posterior import count_draws
from calirare.calibration.prior_platt import PriorPlattCalibrator

POINTS = 60  # budgets at which the band is drawn


@dataclass(frozen=True, eq=False)
class BudgetCurve:
    """Rare nodes among the likeliest alerts, by the number of alerts.

    Attributes:
        alerts: budgets, int64 [g], ascending; the last is the number of nodes.
        expected: rare nodes to expect among so many alerts, float64 [g].
        low: lower ends of the intervals, [g].
        high: upper ends, [g].
        coverage: of each interval.
        order: the nodes by P(rare), the likeliest first, int64 [n].
        ties: in that order the number of each node's tie, those that share its P(rare), int64 [n].
    """

    alerts: np.ndarray
    expected: np.ndarray
    low: np.ndarray
    high: np.ndarray
    coverage: float
    order: np.ndarray
    ties: np.ndarray

    __repr__ = brief

    def observed(self, rare: np.ndarray) -> np.ndarray:
        """Returns how many rare nodes the alerts hold in truth, of a tie that they cut the expected part, float64 [g].

        Args:
            rare: which nodes are rare, bool [n].

        Raises:
            InputError: there is not one for each node.
        """
        if rare.shape != self.order.shape:
            raise InputError(f"budget curve: rare must have shape {list(self.order.shape)}, got {list(rare.shape)}")
        share = np.bincount(self.ties, rare[self.order]) / np.bincount(self.ties)
        return share[self.ties].cumsum()[self.alerts - 1]


def budget_curve(fitted: PriorPlattCalibrator, logits: Tensor, *, coverage: float = 0.9, seed: int = 0) -> BudgetCurve:
    """Returns what to expect of every number of alerts, with intervals as of `expected_count`.

    Args:
        fitted: the map that gives P(rare), for the population the nodes are of.
        logits: of the nodes, [n, k].
        coverage: of each interval, in (0, 1).
        seed: of their draws.

    Raises:
        InputError: there is no node, or the coverage is out of range.
    """
    if not 0 < coverage < 1:
        raise InputError(f"budget curve: coverage must be in (0, 1), got {coverage}")
    n = len(logits)
    if not n:
        raise InputError("budget curve: there must be nodes, got none")
    p = fitted.predict_proba(logits.double())[:, 1].cpu().numpy()
    order = np.argsort(-p, kind="stable")
    alerts = np.unique(np.geomspace(1, n, POINTS).round().astype(np.int64))
    step = np.empty(n, dtype=np.int64)
    step[order] = np.searchsorted(alerts, np.arange(1, n + 1))
    groups = torch.from_numpy(step).to(logits.device)
    expected, draws = count_draws(fitted, logits, groups, len(alerts), seed=seed)
    low, high = np.quantile(draws.cumsum(1), [0.5 - coverage / 2, 0.5 + coverage / 2], axis=0)
    falls = np.diff(p[order], prepend=p[order[0]])
    ties = np.cumsum(falls < -equal_to(p[order]))
    return BudgetCurve(alerts, expected.cumsum(), low, high, coverage, order, ties)
