"""A decision: its threshold, and the alerts, hits, misses and cost to expect among the scored nodes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from calirare._util.errors import InputError
from calirare.calibration import PriorPlattCalibrator, count_draws
from calirare.calibration.decisions.rule import Labelled, Rule


@dataclass(frozen=True)
class Counted:
    """An expected number with the ends of its interval.

    Attributes:
        expected: by the probabilities.
        low: lower end.
        high: upper end.
    """

    expected: float
    low: float
    high: float

    def __str__(self) -> str:
        """Returns "94 (71 to 120)"."""
        expected, low, high = (f"{x:,.0f}" if x >= 100 else f"{x:.3g}" for x in (self.expected, self.low, self.high))
        return f"{expected} ({low} to {high})"


@dataclass(frozen=True)
class Decision:
    """A threshold on P(rare), and what to expect of it.

    Attributes:
        threshold: nodes with P(rare) at least this are alerts; above 1: none.
        alerts: number of alerts among the scored nodes.
        hits: rare nodes among the alerts.
        misses: rare nodes among the others.
        cost: of misses and false alarms; each 1 where the rule names none.
        precision: share of the alerts that are rare; nan without alerts.
        recall: share of the rare nodes that are alerts.
        coverage: of the intervals.
        sentence: what was asked for and what to expect.
    """

    threshold: float
    alerts: int
    hits: Counted
    misses: Counted
    cost: Counted
    precision: Counted
    recall: Counted
    coverage: float
    sentence: str


def decide(
    rule: Rule,
    fitted: PriorPlattCalibrator,
    logits: Tensor,
    *,
    labelled: Labelled | None = None,
    of_class: int = 1,
    coverage: float = 0.9,
    seed: int = 0,
) -> Decision:
    """Returns the threshold of a rule, with what to expect of it among scored nodes.

    The probabilities choose the threshold, not the labels' outcomes (unless a confidence is asked for): with an honest
    P(rare) that is the better threshold, and no label is spent. The intervals hold what the calibration labels leave
    open of the map, its form included, and the chance of the nodes' own classes, see `count_draws`; the threshold is
    held fixed. Where the form is further off than `residual_sd` allows, hundreds of rare labels make them too narrow.

    Args:
        rule: what is asked for.
        fitted: the map that gives P(rare), for the population the nodes are of.
        logits: of the nodes, [n, k].
        labelled: labels that represent the population, for a rule with a confidence.
        of_class: the rare class.
        coverage: of the intervals, in (0, 1).
        seed: of their draws.

    Raises:
        InputError: there is no node, the coverage is out of range, or labels cannot prove what is asked for.
    """
    if not 0 < coverage < 1:
        raise InputError(f"decide: coverage must be in (0, 1), got {coverage}")
    if not len(logits):
        raise InputError("decide: there must be nodes to decide on, got none")
    p = fitted.predict_proba(logits.double())[:, of_class].cpu().numpy()
    threshold = rule.threshold(p, labelled)
    alert = p >= threshold
    groups = torch.from_numpy(alert.astype(np.int64)).to(logits.device)
    draws = count_draws(fitted, logits, groups, 2, of_class=of_class, seed=seed)
    expected = np.array([[p[~alert].sum(), p[alert].sum()]])
    both = np.concatenate([expected, draws])
    return _decision(rule, threshold, int(alert.sum()), both[:, 1], both[:, 0], coverage)


def _decision(
    rule: Rule, threshold: float, alerts: int, hits: np.ndarray, misses: np.ndarray, coverage: float
) -> Decision:
    """Returns the decision from expected numbers, first, and draws of them, [1 + draws]."""
    tails = [0.5 - coverage / 2, 0.5 + coverage / 2]

    def counted(values: np.ndarray) -> Counted:
        low, high = np.quantile(values[1:], tails)
        return Counted(float(values[0]), float(low), float(high))

    miss, alarm = rule.costs()
    found, cost = counted(hits), counted(miss * misses + alarm * (alerts - hits))
    precision = counted(hits / alerts if alerts else np.full_like(hits, np.nan))
    rare = hits + misses
    recall = counted(np.where(rare > 0, hits / np.where(rare > 0, rare, 1), 1.0))
    missed = counted(misses)
    what = f"P(rare) of at least {threshold:.3g} makes {alerts:,} alerts; expect {found} hits and {missed} misses"
    sentence = f"{rule.sentence}: {what}"
    return Decision(threshold, alerts, found, missed, cost, precision, recall, coverage, sentence)
