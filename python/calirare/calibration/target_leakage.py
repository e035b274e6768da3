"""Target leakage: columns and edges that only nodes with a rare label have, as where they follow the case."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

PURE = 0.95  # share of labelled nodes with such a value that are rare, at least
COVERED = 0.5  # of the rare labels that have such a value, at least
FEWEST = 10  # of these
LEAKS = "gives the labels away"
OF_A_KIND = 5  # labelled nodes of a category, at least: of one alone nearly every category is of one class
BESIDE = 0.1  # of as many nodes without a label as have one, at most, also where all rare nodes are labelled
LEVEL = 1e-6  # that chance leaves so few without a label
FAR, ALIKE = 0.1, 0.001  # distance of the rest, and its chance, from which on labels were chosen by the column


@dataclass(frozen=True)
class Leakage:
    """Values of a column that labelled rare nodes have and nearly no other node.

    Attributes:
        values: which, in words.
        labelled: labelled nodes with such a value.
        rare: rare ones among them.
        covered: share of the rare labels that have it.
        others: nodes without a label that have it, of those looked at.
        by_chance: how many would if labels were a random sample.
        copied: whether the column is a copy of the labels, which nodes without one have a value of their own in.
        dated: whether it is a date that only rare nodes have, whatever nodes without a label have.
    """

    values: str
    labelled: int
    rare: int
    covered: float
    others: int
    by_chance: float
    copied: bool = False
    dated: bool = False

    def sentence(self, what: str, remedy: str, kind: str = "rare") -> str:
        """Returns what a user should know of a column, or of the edges, and how to fix it; `kind` names the class."""
        if self.dated:
            return (
                f"{what} {LEAKS}: it is a date that nearly only {kind} nodes have. {self.rare} of {self.labelled} "
                f"labelled nodes with it are {kind}, {self.covered:.0%} of all {kind} labels. If it is written once "
                f"the case is known, P({kind}) of new nodes is too low: {remedy}"
            )
        few = "none" if not self.others else f"{self.others}"
        side = "wrong" if self.copied else "too low"
        return (
            f"{what} {LEAKS}: where it is {self.values}, {self.rare} of {self.labelled} labelled nodes are {kind}, "
            f"{self.covered:.0%} of all {kind} labels, and {few} of the unlabelled nodes have such a value "
            f"(expected: {self.by_chance:.0f}). If it is known only after the case, P({kind}) of nodes without a label "
            f"is {side}: {remedy}"
        )


def find_leakage(
    labelled: np.ndarray, rare: np.ndarray, others: np.ndarray, names: tuple[str, ...], *, dated: bool = False
) -> Leakage | None:
    """Returns the values of a column that leak the labels, else None.

    The values are those above or below some number, the categories of which nearly all labelled nodes are rare, or that
    there is a value at all: of each kind as many rare labels as can be had with few others. A feature that tells rare
    nodes truly has such values at nodes without a label, too: as many for each as there are labels for each node
    without one, and where all rare nodes were labelled at least some by mistake. Where all with such values were looked
    into for these (alerts of a rule), labelled nodes without them lie elsewhere than the others do: nothing is said,
    unless the column is a copy of the labels, with a value for nodes without one (blocked, cleared, open).

    Args:
        labelled: the column at labelled nodes, NaN where there is no value, float [m].
        rare: which of these are rare, bool [m].
        others: the column at nodes without a label, float [n].
        names: of the categories, by number; of a column of numbers none.
        dated: the column holds dates: one that only rare nodes have is taken for the date on which they were found.
    """
    if int(rare.sum()) < FEWEST:
        return None
    there = _there(labelled, rare, others) if dated else None
    if there is not None:
        own, hits = there[1], int(rare[there[1]].sum())
        if hits >= max(FEWEST, COVERED * rare.sum(), PURE * own.sum()):
            share = hits / int(rare.sum())
            return Leakage(there[0], int(own.sum()), hits, share, int(there[2].sum()), 0.0, dated=True)
    if not len(others):
        return None
    kinds = _of_categories(labelled, rare, others, names) if names else _of_numbers(labelled, rare, others)
    found = [each for each in (_there(labelled, rare, others), *kinds) if each is not None]
    m, n = len(labelled), len(others)
    given = list[Leakage]()
    for values, own, unlabelled in found:
        with_it, hits, outside = int(own.sum()), int(rare[own].sum()), int(unlabelled.sum())
        if hits < max(FEWEST, COVERED * rare.sum(), PURE * with_it) or outside > BESIDE * with_it:
            continue
        rest = labelled[~own], others[~unlabelled]
        copied = _copied(*rest, named=bool(names))
        if _chance(with_it, outside, m, n) < LEVEL and (copied or _alike(*rest)):
            share = hits / int(rare.sum())
            given.append(Leakage(values, with_it, hits, share, outside, with_it * n / m, copied))
    return max(given, key=lambda each: each.covered, default=None)


Event = tuple[str, np.ndarray, np.ndarray]  # in words, labelled nodes and others with such a value


def _of_numbers(labelled: np.ndarray, rare: np.ndarray, others: np.ndarray) -> Iterator[Event | None]:
    """Yields the numbers above, and below, some number that rare labels have, as many as can be had, or these alone."""
    for sign, word in ((-1, "at least"), (1, "at most")):
        own = np.where(np.isnan(labelled), math.inf, sign * labelled)
        order = np.argsort(own, kind="stable")
        rising = own[order]
        whole = np.append(rising[1:] > rising[:-1], True) & np.isfinite(rising)  # ties are in or out together
        for share in (PURE, 1.0):  # the few that are not rare may lie among many nodes without a label
            pure = whole & (rare[order].cumsum() >= share * np.arange(1, len(own) + 1))
            if pure.any():
                bound = rising[np.flatnonzero(pure)[-1]]
                yield f"{word} {sign * bound:.4g}", own <= bound, sign * others <= bound


def _of_categories(
    labelled: np.ndarray, rare: np.ndarray, others: np.ndarray, names: tuple[str, ...]
) -> Iterator[Event | None]:
    """Yields the categories of which nearly all labelled nodes are rare, and not just a few of them."""
    there = ~np.isnan(labelled)
    which = labelled[there].astype(np.int64)
    many, hits = (np.bincount(which, w, minlength=len(names)) for w in (None, rare[there].astype(float)))
    pure = np.flatnonzero((many >= OF_A_KIND) & (hits >= PURE * many))
    if len(pure):
        first = ", ".join(repr(names[k]) for k in pure[np.argsort(-many[pure], kind="stable")][:3])
        yield first + (", .." if len(pure) > 3 else ""), np.isin(labelled, pure), np.isin(others, pure)


def _there(labelled: np.ndarray, rare: np.ndarray, others: np.ndarray) -> Event | None:
    """Returns that there is a value at all."""
    own, unlabelled = ~np.isnan(labelled), ~np.isnan(others)
    return None if own.all() else ("filled", own, unlabelled)


def _alike(labelled: np.ndarray, others: np.ndarray) -> bool:
    """Returns whether a column is distributed alike at labelled nodes and at others; a gap is a value of its own."""
    from scipy.stats import ks_2samp

    if not len(labelled):
        return True
    found = ks_2samp(_gaps_as_values(labelled), _gaps_as_values(others))
    return bool(found.statistic < FAR or found.pvalue > ALIKE)


def _copied(labelled: np.ndarray, others: np.ndarray, *, named: bool) -> bool:
    """Returns whether nodes without a label have other values than labelled nodes: names, or numbers where it is one.

    Of many numbers that is what a threshold does from which on all nodes are looked into; of none it is a gap.
    """
    values, counts = np.unique(_gaps_as_values(labelled), return_counts=True)
    if len(labelled) < FEWEST or (not named and counts.max() < PURE * len(labelled)):
        return False
    kept = values if named else values[counts.argmax()]
    return bool(np.isin(_gaps_as_values(others), kept).sum() <= BESIDE * len(labelled))


def _gaps_as_values(column: np.ndarray) -> np.ndarray:
    return np.nan_to_num(column, nan=-math.inf, posinf=math.inf)


def _chance(own: int, unlabelled: int, m: int, n: int) -> float:
    """Returns the chance that of m + n nodes, m drawn, as many with such a value are among those drawn."""
    from scipy.stats import hypergeom

    return float(hypergeom.sf(own - 1, m + n, own + unlabelled, m))
