"""Thresholds whose precision or recall holds with a confidence that labels prove, whatever the probabilities."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from calirare._util.arrays import brief, to_tensor
from calirare._util.errors import InputError

STARTS = 4  # of the sequence of tests, which share the error


@dataclass(frozen=True, eq=False)
class Labelled:
    """Labels that a guarantee rests on: drawn at random from the population, their P(rare) made without them.

    Attributes:
        p: P(rare) by leave-one-out, cross-fitted or held-out logits, float64 [m], in [0, 1].
        rare: which of them are rare, bool [m].
        weights: of their costs, see `Rule.weights`.

    Raises:
        InputError: shapes differ, a probability is out of range, or a label is neither 0 nor 1.
        TypeError: these are no numbers.
    """

    p: np.ndarray
    rare: np.ndarray
    weights: Any = 1.0

    __repr__ = brief

    def __post_init__(self) -> None:
        """Checks shapes and ranges."""
        p = to_tensor("Labelled", "p", self.p).detach().double().cpu().numpy()
        object.__setattr__(self, "p", p)
        given = to_tensor("Labelled", "rare", self.rare).detach().cpu().numpy()
        object.__setattr__(self, "rare", given == 1)
        if self.p.ndim != 1 or self.p.shape != self.rare.shape:
            raise InputError(f"Labelled: p and rare must have one shape [m], got {self.p.shape} and {self.rare.shape}")
        if not bool(((self.p >= 0) & (self.p <= 1)).all()):
            raise InputError("Labelled: p must lie in [0, 1]")
        if not bool(((given == 0) | (given == 1)).all()):
            raise InputError("Labelled: rare must hold 0 and 1 or false and true: leave nodes without a label out")


def fewest_rare(what: str, at_least: float, confidence: float) -> int:
    """Returns how many rare labels can prove a precision or recall at the least, were no label in the way.

    Args:
        what: "precision" or "recall".
        at_least: target, in (0, 1).
        confidence: in (0, 1).
    """
    _check(at_least, confidence)
    error = (1 - confidence) / (STARTS if what == "precision" else 1)
    return math.ceil(math.log(error) / math.log(at_least))


def precision_threshold(labelled: Labelled, at_least: float, confidence: float) -> float:
    """Returns the lowest threshold whose precision is proved to be at least a target.

    Learn-then-Test (Angelopoulos, Bates, Candes, Jordan & Lei 2021) with exact binomial p-values: of the a labels above
    a threshold, which the probabilities choose, the number of rare ones is binomial (a, precision). Thresholds are
    tested from strict to lax from four starts, each with a quarter of the error, until one fails; the laxest that
    passed is taken. So P(precision in the population >= at_least) >= confidence over the draw of the labels.

    Args:
        labelled: labels that represent the population.
        at_least: target, in (0, 1).
        confidence: in (0, 1).

    Raises:
        InputError: no threshold is proved, or a number is out of range.
    """
    from scipy.stats import binom

    _check(at_least, confidence)
    error = (1 - confidence) / STARTS
    needed = fewest_rare("precision", at_least, confidence)
    order = np.argsort(-labelled.p, kind="stable")
    p, hits = labelled.p[order], labelled.rare[order].cumsum()
    ends = np.flatnonzero(np.append(p[1:] < p[:-1], len(p) > 0))  # tied labels share a threshold
    alerts = ends + 1
    passed = binom.sf(hits[ends] - 1, alerts, at_least) <= error
    best = max(_laxest(passed, int(first)) for first in np.searchsorted(alerts, needed * 1.5 ** np.arange(STARTS)))
    if best < 0:
        raise InputError(
            f"a precision of {at_least:g} cannot be proved with confidence {confidence:g} by {len(p)} labels, "
            f"{int(labelled.rare.sum())} of them rare (the {needed} likeliest would all have to be rare): "
            "lower the precision or the confidence, or leave out --guarantee"
        )
    return float(p[ends[best]])


def recall_threshold(labelled: Labelled, at_least: float, confidence: float) -> float:
    """Returns the highest threshold whose recall is proved to be at least a target.

    The share of rare nodes below the j-th smallest P of m rare labels is at most Beta(j, m - j + 1) (order statistics,
    no assumption on P; Wilks 1941): the largest j with P(Beta <= 1 - at_least) >= confidence is taken.

    Args:
        labelled: labels whose rare ones are a random sample of the rare nodes.
        at_least: target, in (0, 1).
        confidence: in (0, 1).

    Raises:
        InputError: there are too few rare labels to prove it, or a number is out of range.
    """
    from scipy.stats import binom

    _check(at_least, confidence)
    scores = np.sort(labelled.p[labelled.rare])
    m = len(scores)
    # Beta(j, m - j + 1) <= x exactly where a binomial (m, x) number is at least j.
    proved = np.flatnonzero(binom.sf(np.arange(m), m, 1 - at_least) >= confidence)
    if not len(proved):
        needed = fewest_rare("recall", at_least, confidence)
        raise InputError(
            f"a recall of {at_least:g} cannot be proved with confidence {confidence:g} by {m} rare labels, {needed} "
            "are needed: lower the recall or the confidence, or leave out --guarantee"
        )
    return float(scores[proved[-1]])


def _laxest(passed: np.ndarray, first: int) -> int:
    """Returns the last place of the unbroken run of passed tests that begins at `first`; -1 where there is none."""
    if first >= len(passed) or not passed[first]:
        return -1
    failed = np.flatnonzero(~passed[first:])
    return first + int(failed[0]) - 1 if len(failed) else len(passed) - 1


def _check(at_least: float, confidence: float) -> None:
    for name, value in (("target", at_least), ("confidence", confidence)):
        if not 0 < value < 1:
            raise InputError(f"decision: {name} must be in (0, 1), got {value}")
