"""What leaving labels out of trees does to the log-odds of some nodes: the splits stay, every leaf value is made anew.

Leaf values of boosting are Newton steps on the loss of the labels in the leaf at what the trees before have said of
them, so that a label left out moves the leaves it lies in, through them what later trees read of other labels, and
thereby their leaves too ("LeafRefit", Sharchilev et al. 2018). Trees of a forest know nothing of each other.
"""

from __future__ import annotations

import abc
from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np
from scipy.sparse import csr_array

from calirare._util.array_files import NumpyArray
from calirare.explain.tree_leaves import Leaves

BLOCK = 2_000_000  # numbers of left-out sets times labels worked on together
REFITS = 600_000_000  # labels left out times labels times trees that are refitted when a run is loaded: some seconds
LATER = 100_000_000  # the same of the strongest labels alone, where that would be more


class TreeLabels(abc.ABC):
    """Labels of trees, left out.

    Args:
        leaves: the trees.
    """

    def __init__(self, leaves: Leaves) -> None:
        self.leaves = leaves

    @property
    def exact(self) -> bool:
        """Whether every label's effect is that of leaf values made anew; else of the strongest labels alone."""
        return True

    @property
    @abc.abstractmethod
    def error(self) -> float:
        """Largest difference between leaf values made again of all labels and those that are stored."""

    @abc.abstractmethod
    def change(self, rows: NumpyArray) -> NumpyArray:
        """Returns how the log-odds of nodes change without each label, float64 [m, n].

        Args:
            rows: leaf of each node in each tree, int64 [T, n].
        """

    @abc.abstractmethod
    def change_without(self, rows: NumpyArray, sets: Sequence[NumpyArray]) -> NumpyArray:
        """Returns how they change without each set of labels (places, int64), float64 [s, n]."""


class BoostedLabels(TreeLabels):
    """Of trees that were grown one upon the other."""

    @property
    def exact(self) -> bool:
        """See `TreeLabels.exact`."""
        return self.leaves.refits <= REFITS

    @cached_property
    def whole(self) -> list[NumpyArray]:
        """Leaf values made of all labels, T arrays [1, leaves]."""
        return self._refitted(self.leaves.weights[None])

    @property
    def start(self) -> float:
        """The log-odds from which the first tree starts."""
        return float(self._start(self.leaves.weights[None])[0])

    @property
    def error(self) -> float:
        """See `TreeLabels.error`."""
        return largest_gap(self.whole, self.leaves.values)

    @cached_property
    def alone(self) -> list[NumpyArray]:
        """Leaf values without each label, T arrays [m, leaves]."""
        return self._without([np.array([i]) for i in range(self.leaves.weights.size)])

    def change(self, rows: NumpyArray) -> NumpyArray:
        """See `TreeLabels.change`."""
        m = self.leaves.weights.size
        if self.exact:
            return self._kept(rows, self.alone, self._starts([np.array([i]) for i in range(m)]))
        out = self._own_leaves_alone(rows)
        n_chosen = max(16, LATER // (self.leaves.n_trees * m))
        chosen = np.argsort(-np.abs(out).max(1), kind="stable")[:n_chosen]
        out[chosen] = self.change_without(rows, [np.array([i]) for i in chosen])
        return out

    def change_without(self, rows: NumpyArray, sets: Sequence[NumpyArray]) -> NumpyArray:
        """See `TreeLabels.change_without`."""
        return self._kept(rows, self._without(sets), self._starts(sets))

    def _kept(self, rows: NumpyArray, values: list[NumpyArray], starts: NumpyArray) -> NumpyArray:
        """Returns the change of the nodes' log-odds at other leaf values and starts, [s, n]."""
        out = np.repeat(starts[:, None] - self._start(self.leaves.weights[None]), rows.shape[1], 1)
        for other, whole, places in zip(values, self.whole, rows, strict=True):
            out += (other - whole)[:, places]
        return out

    def _starts(self, sets: Sequence[NumpyArray]) -> NumpyArray:
        return np.concatenate([self._start(weights) for weights in without_sets(self.leaves, sets)])

    def _start(self, weights: NumpyArray) -> NumpyArray:
        """Returns the log-odds from which the first tree starts, [s]."""
        prior = self.leaves.prior(weights)
        return np.log(prior) - np.log1p(-prior)

    def _without(self, sets: Sequence[NumpyArray]) -> list[NumpyArray]:
        parts = [self._refitted(weights) for weights in without_sets(self.leaves, sets)]
        return [np.concatenate(tree) for tree in zip(*parts, strict=True)]

    def _refitted(self, weights: NumpyArray) -> list[NumpyArray]:
        """Returns each tree's leaf values with weights [s, m]: T arrays [s, leaves]."""
        leaves, out = self.leaves, list[NumpyArray]()
        said = np.repeat(self._start(weights)[:, None], weights.shape[1], 1)
        for places, bag, stored in zip(leaves.of_labels, leaves.bags, leaves.values, strict=True):
            p = 1 / (1 + np.exp(-said))
            inside = np.zeros((places.size, stored.size))
            inside[bag, places[bag]] = 1
            gradient, curvature = (weights * (p - leaves.targets)) @ inside, (weights * p * (1 - p)) @ inside
            values = _or_stored(-leaves.rate * gradient / (curvature + leaves.penalty), stored)
            said += values[:, places]
            out.append(values)
        return out

    def _own_leaves_alone(self, rows: NumpyArray) -> NumpyArray:
        """Returns the changes where other labels' scores stay as they are, so that a label moves its own leaves alone.

        Cost: trees times labels times nodes.
        """
        leaves = self.leaves
        weights = leaves.weights
        rare, total = weights @ leaves.targets + leaves.pseudo, weights.sum() + 2 * leaves.pseudo
        prior = (rare - weights * leaves.targets) / (total - weights)
        out = np.repeat((np.log(prior) - np.log1p(-prior) - self._start(weights[None]))[:, None], rows.shape[1], 1)
        said = np.full(weights.size, self.start)
        for places, bag, whole, at in zip(leaves.of_labels, leaves.bags, self.whole, rows, strict=True):
            p = 1 / (1 + np.exp(-said))
            gradient, curvature = weights * (p - leaves.targets), weights * p * (1 - p)
            sums = [np.bincount(places[bag], part[bag], whole.size) for part in (gradient, curvature)]
            value = -leaves.rate * (sums[0][places] - gradient) / (sums[1][places] - curvature + leaves.penalty)
            moved = np.where(bag & (whole.size > 1), value - whole[0, places], 0.0)
            out += np.where(places[:, None] == at, moved[:, None], 0.0)
            said += whole[0, places]
        return out


class ForestLabels(TreeLabels):
    """Of trees that are averaged: each leaf has its labels' share of the rare class.

    Args:
        leaves: the trees.
        smallest: part of a class's prior share below which the forest says no share.
    """

    def __init__(self, leaves: Leaves, smallest: float) -> None:
        super().__init__(leaves)
        self.smallest = smallest
        worth = (leaves.weights, leaves.weights * leaves.targets)
        trees = list(zip(leaves.of_labels, leaves.bags, leaves.values, strict=True))
        self.total, self.rare = (
            [np.bincount(places[bag], part[bag], stored.size) for places, bag, stored in trees] for part in worth
        )
        sizes = [stored.size for stored in leaves.values]
        self.first = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)  # of each tree's leaves among all
        self.at_labels, self.in_bags = np.asarray(leaves.of_labels) + self.first[:, None], np.asarray(leaves.bags)
        self.totals, self.rares, self.stored = (np.concatenate(x) for x in (self.total, self.rare, leaves.values))
        self.alone = (np.array(sizes) == 1)[:, None]  # trees that found nothing to split: no label moves them

    @property
    def prior(self) -> float:
        """Share of the rare class among all labels, smoothed, in (0, 1)."""
        return float(self.leaves.prior(self.leaves.weights[None])[0])

    def limits(self, prior: NumpyArray | float) -> tuple[NumpyArray | float, NumpyArray | float]:
        """Returns the lowest and the highest share that the forest says at a prior."""
        return self.smallest * prior, 1 - self.smallest * (1 - prior)

    @property
    def error(self) -> float:
        """See `TreeLabels.error`."""
        pairs = zip(self.rare, self.total, strict=True)
        made = [((rare - self.prior * total) / (total + self.leaves.penalty))[None] for rare, total in pairs]
        return largest_gap(made, self.leaves.values)

    def change(self, rows: NumpyArray) -> NumpyArray:
        """See `TreeLabels.change`."""
        return self.change_without(rows, [np.array([i]) for i in range(self.leaves.weights.size)])

    def change_without(self, rows: NumpyArray, sets: Sequence[NumpyArray]) -> NumpyArray:
        """See `TreeLabels.change_without`."""
        return self._kept(rows, sets) - self._kept(rows, [np.zeros(0, dtype=np.int64)])

    def _kept(self, rows: NumpyArray, sets: Sequence[NumpyArray]) -> NumpyArray:
        """Returns the log-odds of nodes without each set, [s, n]; of k > 2 classes log P of the trees' own."""
        leaves, n = self.leaves, rows.shape[1]
        members = np.concatenate([np.asarray(each, dtype=np.int64) for each in sets])
        sizes = np.array([len(each) for each in sets])
        of_set = np.repeat(np.arange(len(sets)), sizes)
        weights = leaves.weights[members]
        rare_weights = weights * leaves.targets[members]
        gone = (np.bincount(of_set, weights, len(sets)), np.bincount(of_set, rare_weights, len(sets)))
        all_rare = leaves.weights @ leaves.targets + leaves.pseudo
        everything = leaves.weights.sum() + leaves.n_classes * leaves.pseudo
        prior = ((all_rare - gone[1]) / (everything - gone[0]))[:, None]
        ones, starts = np.ones(members.size), np.concatenate([[0], np.cumsum(sizes)])
        summed = csr_array((ones, np.arange(members.size), starts), shape=(len(sets), members.size))  # over each set
        out = np.zeros((len(sets), n))
        step = max(1, BLOCK // max(members.size * n, 1))
        for first in range(0, leaves.n_trees, step):
            trees = slice(first, first + step)
            at = rows[trees] + self.first[trees, None]  # [t, n], among the leaves of all trees
            same = (self.at_labels[trees, members, None] == at[:, None]) & self.in_bags[trees, members, None]
            left = same.transpose(1, 0, 2).reshape(members.size, at.size)  # [members, t n]
            less = [
                (summed @ (left * worth[:, None])).reshape(len(sets), *at.shape) for worth in (weights, rare_weights)
            ]
            total, rare = self.totals[at] - less[0], self.rares[at] - less[1]
            made = (rare - prior[:, None] * total) / (total + leaves.penalty)
            out += np.where(self.alone[trees][None], self.stored[at], made).sum(1)
        share = np.clip(prior + out / leaves.n_trees, *self.limits(prior))
        return np.log(share) - np.log1p(-share) if leaves.n_classes == 2 else np.log(share)


def without_sets(leaves: Leaves, sets: Sequence[NumpyArray], width: int = 1) -> Iterator[NumpyArray]:
    """Yields the labels' weights without each set, a block of sets at a time, [b, m]; `width`: numbers of each."""
    step = max(1, BLOCK // max(leaves.weights.size * width, 1))
    for first in range(0, len(sets), step):
        part = sets[first : first + step]
        weights = np.repeat(leaves.weights[None], len(part), 0)
        for row, places in enumerate(part):
            weights[row, places] = 0
        yield weights


def _or_stored(values: NumpyArray, stored: NumpyArray) -> NumpyArray:
    """Returns leaf values; of a tree that found nothing to split the stored one, which no label moves."""
    return np.broadcast_to(stored, values.shape) if stored.size == 1 else values


def largest_gap(made: Sequence[NumpyArray], stored: Sequence[NumpyArray]) -> float:
    """Returns how far leaf values [1, leaves] are from stored ones at most, of trees that found something to split."""
    pairs = zip(made, stored, strict=True)
    return max((float(np.abs(a[0] - b).max()) for a, b in pairs if b.size > 1), default=0.0)
