"""A decision: its threshold, and the alerts, hits, misses and cost to expect among the scored nodes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from calirare._util.amounts import amount, count_of
from calirare._util.errors import InputError
from calirare.calibration import (
    APART,
    ExpectedCount,
    PriorPlattCalibrator,
    are_apart,
    count_draws,
    next_period,
    period_spans,
)
from calirare.calibration.decisions.guarantees import Labelled
from calirare.calibration.decisions.rules import Rule, Tie

LEFT = "they count rare nodes that already have a label"
LATER = "expected counts follow the newest labels, and their intervals include the drift between periods"


@dataclass(frozen=True)
class Decision:
    """A threshold on P(rare), and what to expect of it.

    Attributes:
        threshold: nodes with P(rare) at least this over `Rule.weights` are alerts; above all of them: none.
        alerts: number of alerts among the scored nodes.
        hits: rare nodes among the alerts.
        misses: rare nodes among the others.
        cost: of misses and false alarms, in the unit of the rule's costs; each 1 where the rule names none.
        precision: share of the alerts that are rare; nan without alerts.
        recall: share of the rare nodes that are alerts.
        hits_by_p: sum of the alerts' P(rare): where labels speak against the form of its map not the hits to expect.
        coverage: of the intervals.
        sentence: what was asked for and what to expect.
        tied: nodes of one P(rare) that are no alerts since the rule would take only some of them; None: there are none.
    """

    threshold: float
    alerts: int
    hits: ExpectedCount
    misses: ExpectedCount
    cost: ExpectedCount
    precision: ExpectedCount
    recall: ExpectedCount
    hits_by_p: float
    coverage: float
    sentence: str
    tied: Tie | None = None


def decide(
    rule: Rule,
    fitted: PriorPlattCalibrator,
    logits: Tensor,
    *,
    labelled: Labelled | None = None,
    counting: PriorPlattCalibrator | None = None,
    earlier: Labelled | None = None,
    coverage: float = 0.9,
    seed: int = 0,
) -> Decision:
    """Returns the threshold of a rule, with what to expect of it among scored nodes.

    The probabilities choose the threshold, not the labels' outcomes (unless a confidence is asked for): with an honest
    P(rare) that is the better threshold, and no label is spent. Expected numbers are those where map and residual are
    likeliest together; their intervals hold what the calibration labels leave open of both, and the chance of the
    nodes' own classes, see `count_draws`; the threshold is held fixed. Where the form is further off than `residual_sd`
    allows, hundreds of rare labels make them too narrow.

    Args:
        rule: what is asked for.
        fitted: the map that gives P(rare), for the population the nodes are of.
        logits: of the nodes, [n, k].
        labelled: labels that represent the population, for a rule with a confidence.
        counting: the map by which hits and misses are counted, where the nodes are not like the population; None:
            `fitted`.
        earlier: labels in order of time where the nodes are later than these, by whose periods numbers are corrected
            and intervals widened, see `next_period`; None: there is no time.
        coverage: of the intervals, in (0, 1).
        seed: of their draws.

    Raises:
        InputError: there is no node, the coverage is out of range, or labels cannot prove what is asked for.
    """
    if not 0 < coverage < 1:
        raise InputError(f"decide: coverage must be in (0, 1), got {coverage}")
    if not len(logits):
        raise InputError("decide: there must be nodes to decide on, got none")
    p = fitted.predict_proba(logits.double())[:, 1].cpu().numpy()
    threshold = rule.threshold(p, labelled)
    alert = p >= threshold / rule.weights
    groups = torch.from_numpy(alert.astype(np.int64)).to(logits.device)

    def drawn(weights: np.ndarray | None = None) -> np.ndarray:
        both = np.vstack(count_draws(counting or fitted, logits, groups, 2, seed=seed, weights=weights))
        if earlier is not None:
            _add_drift(both, earlier, threshold, seed)
            both = np.minimum(both, np.bincount(alert, weights, minlength=2))
        return both

    def counted(values: np.ndarray) -> ExpectedCount:
        return ExpectedCount.of(values[0], values[1:], coverage)

    both, lost, (unit, alarm), alerts = drawn(), None, rule.costs(), int(alert.sum())
    if isinstance(unit, np.ndarray):  # a sum of costs is spread as a number of nodes is that cost a unit each
        each, risk = unit, np.where(alert, 0.0, p * unit)
        unit = float((risk * each).sum() / max(risk.sum(), 1e-300)) or 1.0
        lost = drawn(np.where(alert, 1.0, each / unit))[:, 0]
    hits, misses = both[:, 1], both[:, 0]
    cost = unit * (misses if lost is None else lost) + alarm * (alerts - hits)
    precision = counted(hits / alerts if alerts else np.full_like(hits, np.nan))
    rare = hits + misses
    recall = counted(np.where(rare > 0, hits / np.where(rare > 0, rare, 1), 1.0))
    found, missed, tied = counted(hits), counted(misses), rule.tie(p, threshold)
    makes = f"P(rare) of at least {rule.cut(threshold)} makes {amount(alerts, 'alert')}"
    what = makes if alerts or threshold <= 1 else "no node is an alert"
    sentence = f"{rule.sentence}: {what}; expect {found} rare nodes found and {missed} missed"
    sums = float(p[alert].sum()), float(p[~alert].sum())
    pairs = zip(sums, (found, missed), strict=True)
    if any(are_apart(total, each.expected, each.low, each.high) for total, each in pairs):
        why = LATER if earlier is not None else APART if counting is None else LEFT
        sentence += f" (sums of P(rare) are {count_of(sums[0])} and {count_of(sums[1])}: {why})"
    sentence += "" if tied is None else f"; {tied.sentence}"
    many = found, missed, counted(cost), precision, recall, sums[0]
    return Decision(threshold, alerts, *many, coverage, sentence, tied)


def _add_drift(both: np.ndarray, earlier: Labelled, threshold: float, seed: int) -> None:
    """Multiplies numbers and their draws, of misses and hits, [1 + draws, 2], by the drift to the next period."""
    noise = np.random.default_rng(seed + 1).standard_normal(both.shape)
    noise[0] = 0
    alert, spans = earlier.p >= threshold / earlier.weights, period_spans(len(earlier.p))
    for group in (0, 1):
        own = alert == group
        expected, observed = (np.array([(x * own)[span].sum() for span in spans]) for x in (earlier.p, earlier.rare))
        mean, sd = next_period(expected, observed)
        both[:, group] *= np.exp(mean + sd * noise[:, group])
