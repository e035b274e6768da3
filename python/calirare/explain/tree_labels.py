"""What leaving labels out of trees does to the logits of some nodes: splits stay, leaf values are recomputed.

A label left out of boosting moves the leaves it lies in, through them what later trees read of other labels, and
thereby their leaves too ("LeafRefit", Sharchilev et al. 2018). Trees of a forest know nothing of each other.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial

import numpy as np
from scipy.sparse import csr_array

from calirare._util.array_files import NumpyArray
from calirare.explain.tree_leaves import Leaves

BLOCK = 200_000  # numbers of left-out sets times labels worked on together: they stay in the cache
REFITS = 600_000_000  # labels left out times labels times trees that are refitted when a run is loaded: some seconds
LATER = 50_000_000  # the same of the strongest labels only, where that would be more


class TreeLabels(abc.ABC):
    """Labels of trees, left out or added; the logits of nodes are given by the leaf of each in each tree, int64 [T, n].

    Attributes:
        exact: whether the effect of every label comes from recomputed leaf values; else only that of the strongest.
    """

    exact: bool = True

    @property
    @abc.abstractmethod
    def error(self) -> float:
        """Largest difference between leaf values recomputed from all labels and those that are stored."""

    @abc.abstractmethod
    def change(self, rows: NumpyArray) -> NumpyArray:
        """Returns how the logits of nodes change without each label, float64 [m, n, k]."""

    @abc.abstractmethod
    def change_without(self, rows: NumpyArray, sets: Sequence[NumpyArray]) -> NumpyArray:
        """Returns how they change without each set of labels (places, int64), float64 [s, n, k]."""

    @abc.abstractmethod
    def change_with(self, more: NumpyArray, rows: NumpyArray) -> NumpyArray:
        """Returns how they change with a label at each of other nodes (leaves `more` [T, c]), float64 [k, c, n, k].

        The first index is the label, which weighs what labels of its class weigh on average. Other labels' scores stay
        as they are. A tree sees a part of the labels, its bag, and a new label falls into it with the bag's proportion:
        leaf values move by that part of what the label would move them.
        """


class BoostedLabels(TreeLabels):
    """Effects of labels on gradient boosting, whose trees are grown round by round."""

    def __init__(self, leaves: Leaves) -> None:
        self.leaves, self.exact = leaves, leaves.n_trees * leaves.weights.size**2 <= REFITS

    @cached_property
    def whole(self) -> list[NumpyArray]:
        """Leaf values made of all labels, T arrays [1, leaves]."""
        return self._refitted([np.zeros(0, dtype=np.int64)])

    @property
    def error(self) -> float:
        """See `TreeLabels.error`."""
        return largest_gap(self.whole, self.leaves.values)

    @property
    def _each(self) -> list[NumpyArray]:
        """Every label as a set."""
        return [np.array([i]) for i in range(self.leaves.weights.size)]

    @cached_property
    def _values_without_each(self) -> list[NumpyArray]:
        return self._values_without(self._each)

    def change(self, rows: NumpyArray) -> NumpyArray:
        """See `TreeLabels.change`."""
        if self.exact:
            return self._moved(rows, self._each, self._values_without_each)
        leaves, q, each = self.leaves, self.leaves.per_round, self._each
        in_leaves = [_in_leaves(leaves, rows, slice(c, None, q)) for c in range(q)]
        moved = np.stack([(part @ self._own_leaves).toarray().T for part in in_leaves], 2)  # [m, n, q]
        out = _as_logits(moved + self._starts(each)[:, None])
        n_chosen = max(16, LATER // (leaves.n_trees * leaves.weights.size))
        chosen = np.argsort(-np.ptp(out, 2).max(1), kind="stable")[:n_chosen]
        out[chosen] = self.change_without(rows, [each[i] for i in chosen])
        return out

    def change_without(self, rows: NumpyArray, sets: Sequence[NumpyArray]) -> NumpyArray:
        """See `TreeLabels.change_without`."""
        return self._moved(rows, sets, self._values_without(sets))

    def _moved(self, rows: NumpyArray, sets: Sequence[NumpyArray], values: list[NumpyArray]) -> NumpyArray:
        """Returns how logits change without each set, by the leaf values of each tree without it, T arrays."""
        out = np.repeat(self._starts(sets)[:, :, None], rows.shape[1], 2)  # [s, q, n]
        for tree, (other, whole, places) in enumerate(zip(values, self.whole, rows, strict=True)):
            out[:, tree % self.leaves.per_round] += (other - whole)[:, places]
        return _as_logits(out.transpose(0, 2, 1))

    def _starts(self, sets: Sequence[NumpyArray]) -> NumpyArray:
        """Returns what the scores that the first trees start from move by without each set, [s, q]."""
        leaves = self.leaves
        return leaves.start(leaves.totals_without(sets)) - leaves.start(leaves.totals)

    def _values_without(self, sets: Sequence[NumpyArray]) -> list[NumpyArray]:
        """Returns leaf values without each set, T arrays [s, leaves]."""
        step = max(1, BLOCK // (self.leaves.weights.size * self.leaves.per_round))
        parts = [self._refitted(sets[first : first + step]) for first in range(0, len(sets), step)]
        empty = [np.zeros((0, stored.size)) for stored in self.leaves.values]
        return [np.concatenate(tree) for tree in zip(empty, *parts, strict=True)]

    def _refitted(self, sets: Sequence[NumpyArray]) -> list[NumpyArray]:
        """Returns each tree's leaf values without each of a few sets: T arrays [s, leaves]."""
        leaves, q, out = self.leaves, self.leaves.per_round, list[NumpyArray]()
        weights = np.repeat(leaves.weights[None], len(sets), 0)
        for row, places in zip(weights, sets, strict=True):
            row[places] = 0
        scores = np.repeat(leaves.start(leaves.totals_without(sets))[:, None], weights.shape[1], 1)  # [s, m, q]
        for first in range(0, leaves.n_trees, q):
            terms = leaves.terms(scores)
            for c in range(q):
                places, stored = leaves.of_labels[first + c], leaves.values[first + c]
                if stored.size == 1:  # nothing was found to split, and no label moves it
                    out.append(np.broadcast_to(stored, (len(weights), 1)))
                else:
                    inside = self._inside[first + c]
                    out.append(self._value(*((inside @ (weights * part[..., c]).T).T for part in terms)))
                scores[..., c] += out[-1].take(places, 1)
        return out

    @cached_property
    def _inside(self) -> list[csr_array]:
        """Which labels of its bag each tree has in its leaves, T matrices of 1 [leaves, m]."""
        leaves, m = self.leaves, self.leaves.weights.size
        bags = [np.flatnonzero(bag) for bag in leaves.bags]
        return [
            csr_array((np.ones(bag.size), (places[bag], bag)), shape=(stored.size, m))
            for bag, places, stored in zip(bags, leaves.of_labels, leaves.values, strict=True)
        ]

    def _value(self, gradient: NumpyArray, curvature: NumpyArray) -> NumpyArray:
        """Returns the values of leaves with these sums over their labels."""
        return -self.leaves.rate * gradient / (curvature + self.leaves.penalty)

    @cached_property
    def _own_leaves(self) -> csr_array:
        """What a label left out moves in the leaves it lies in, other labels' scores as they are, [leaves, m]."""
        leaves, moved = self.leaves, np.empty(self.leaves.of_labels.shape)
        for tree, terms, sums in self._by_tree():
            places, bag, whole = leaves.of_labels[tree], leaves.bags[tree], self.whole[tree]
            value = self._value(*(total[places] - own for total, own in zip(sums, terms, strict=True)))
            moved[tree] = np.where(bag & (whole.size > 1), value - whole[0, places], 0.0)
        return _at_leaves(leaves, leaves.of_labels, moved)

    def _by_tree(self) -> Iterator[tuple[int, list[NumpyArray], list[NumpyArray]]]:
        """Yields each tree, its gradients and curvatures of all labels, weighted, [m], and their sums by leaf."""
        leaves, q = self.leaves, self.leaves.per_round
        scores = np.repeat(leaves.start(leaves.totals)[None], leaves.weights.size, 0)
        for first in range(0, leaves.n_trees, q):
            terms = [leaves.weights[:, None] * part for part in leaves.terms(scores)]
            for c in range(q):
                tree, own = first + c, [part[:, c] for part in terms]
                places, bag = leaves.of_labels[tree], leaves.bags[tree]
                yield tree, own, [np.bincount(places[bag], part[bag], leaves.values[tree].size) for part in own]
                scores[:, c] += self.whole[tree][0, leaves.of_labels[tree]]

    def change_with(self, more: NumpyArray, rows: NumpyArray) -> NumpyArray:
        """See `TreeLabels.change_with`."""
        leaves, q, out = self.leaves, self.leaves.per_round, list[NumpyArray]()
        for label in range(leaves.n_classes):
            moved = self._moved_by(more, label)
            scores = [_shared_leaves(leaves, more, moved, rows, slice(c, None, q)) for c in range(q)]
            out.append(_as_logits(np.stack(scores, 2)))
        return np.stack(out)

    def _moved_by(self, more: NumpyArray, label: int) -> NumpyArray:
        """Returns how far a label moves the leaf it lies in of each tree, [T, c]; later trees know of earlier ones."""
        leaves, weight, out = self.leaves, mean_weight(self.leaves, label), np.zeros(more.shape)
        scores, y = np.repeat(leaves.start(leaves.totals)[None], more.shape[1], 0), np.full(more.shape[1], label)
        for tree, _, sums in self._by_tree():
            c, at, whole = tree % leaves.per_round, more[tree], self.whole[tree]
            if c == 0:
                fresh = [weight * part for part in leaves.terms(scores, y)]
            if whole.size > 1:
                value = self._value(*(total[at] + own[:, c] for total, own in zip(sums, fresh, strict=True)))
                out[tree] = leaves.bags[tree].mean() * (value - whole[0, at])
            scores[:, c] += whole[0, at] + out[tree]
        return out


class ForestLabels(TreeLabels):
    """Effects of labels on averaged trees, a forest for each class; with two classes one for class 1.

    Args:
        each: the trees of each class.
        smallest: part of a class's prior below which a forest gives no probability.
    """

    def __init__(self, each: Sequence[Leaves], smallest: float) -> None:
        self.each = tuple(_Forest(leaves, smallest) for leaves in each)

    @property
    def error(self) -> float:
        """See `TreeLabels.error`."""
        return max(forest.error for forest in self.each)

    def _logits(self, change: Callable[[_Forest], NumpyArray]) -> NumpyArray:
        return _as_logits(np.stack([change(forest) for forest in self.each], -1))

    def change(self, rows: NumpyArray) -> NumpyArray:
        """See `TreeLabels.change`."""
        return self.change_without(rows, [np.array([i]) for i in range(self.each[0].leaves.weights.size)])

    def change_without(self, rows: NumpyArray, sets: Sequence[NumpyArray]) -> NumpyArray:
        """See `TreeLabels.change_without`."""
        return self._logits(lambda forest: forest.change_without(rows, sets))

    def change_with(self, more: NumpyArray, rows: NumpyArray) -> NumpyArray:
        """See `TreeLabels.change_with`."""
        each = [
            partial(_Forest.change_with, more=more, rows=rows, label=y) for y in range(self.each[0].leaves.n_classes)
        ]
        return np.stack([self._logits(change) for change in each])


class _Forest:
    """The trees of one class: each leaf has the proportion of the class among its labels, which all trees see.

    Without a set of labels the prior p_0 becomes p_s, and a leaf's value (R - p_s T) / (T + a) with R and T the rare
    and all labels in it; in the leaves of the set both lose them. So only these leaves are recomputed for each set.
    """

    def __init__(self, leaves: Leaves, smallest: float) -> None:
        self.leaves, self.smallest = leaves, smallest
        firsts, weights = _firsts(leaves), leaves.weights
        self.first = firsts[:-1, None]  # of each tree's leaves among all
        self.split = (np.diff(firsts) > 1)[:, None]  # no label moves a tree that found nothing to split
        self.moves = np.repeat(self.split[:, 0], np.diff(firsts))
        places = (leaves.of_labels + self.first).ravel()
        self.total, self.rare = (
            np.bincount(places, np.tile(part, leaves.n_trees), firsts[-1])
            for part in (weights, weights * leaves.targets)
        )
        self.stored = np.concatenate(leaves.values)
        # What each label is worth in its leaves [leaves, m]: as a rare label in the imaginary part.
        worth = np.where(self.split, weights * (1 + 1j * leaves.targets), 0.0)
        self.worth = _at_leaves(leaves, leaves.of_labels, worth).T.tocsr()

    @property
    def prior(self) -> float:
        """Proportion of the class among all labels, smoothed, in (0, 1)."""
        return float(self.leaves.prior(self.leaves.totals))

    def _score(self, share: NumpyArray, prior: NumpyArray | float) -> NumpyArray:
        """Returns the log of a proportion within the forest's limits, of two classes its log-odds."""
        share = np.clip(share, self.smallest * prior, 1 - self.smallest * (1 - prior))
        return np.asarray(np.log(share) - np.log1p(-share) if self.leaves.n_classes == 2 else np.log(share))

    def _value(self, total: NumpyArray, rare: NumpyArray, prior: NumpyArray | float) -> NumpyArray:
        return (rare - prior * total) / (total + self.leaves.penalty)

    @property
    def error(self) -> float:
        """See `TreeLabels.error`."""
        made = np.split(self._value(self.total, self.rare, self.prior)[None], self.first[1:, 0], 1)
        return largest_gap(made, self.leaves.values)

    def change_without(self, rows: NumpyArray, sets: Sequence[NumpyArray]) -> NumpyArray:
        """Returns how the score of nodes changes without each set of labels, [s, n]."""
        leaves, in_leaves = self.leaves, _in_leaves(self.leaves, rows)
        prior = leaves.prior(leaves.totals_without(sets))[:, None]
        members = np.concatenate([np.asarray(each, dtype=np.int64) for each in sets])
        starts = np.cumsum([0, *map(len, sets)])
        less = csr_array((np.ones(members.size), members, starts), shape=(len(sets), leaves.weights.size)) @ self.worth
        at = less.indices  # leaves
        own = np.repeat(prior[:, 0], np.diff(less.indptr))
        lost = self._value(self.total[at] - less.data.real, self.rare[at] - less.data.imag, own)
        lost = csr_array((lost - self._value(self.total[at], self.rare[at], own), at, less.indptr), shape=less.shape)
        in_all = self.total / (self.total + leaves.penalty)
        sums = in_leaves @ np.where(self.moves, self._value(self.total, self.rare, 0.0), self.stored)
        of_prior = in_leaves @ np.where(self.moves, in_all, 0.0)
        shares = prior + (sums - prior * of_prior + (lost @ in_leaves.T).toarray()) / leaves.n_trees
        whole = self.prior + (sums - self.prior * of_prior) / leaves.n_trees
        return self._score(shares, prior) - self._score(whole, self.prior)

    def change_with(self, more: NumpyArray, rows: NumpyArray, label: int) -> NumpyArray:
        """Returns how it changes with a label of a class at each of other nodes, [c, n]."""
        leaves, weight, at = self.leaves, mean_weight(self.leaves, label), more + self.first
        total, rare = self.total[at], self.rare[at]
        after = self._value(total + weight, rare + weight * (label == leaves.of), self.prior)
        moved = np.where(self.split, after - self._value(total, rare, self.prior), 0.0)
        whole = self.prior + (_in_leaves(leaves, rows) @ self.stored) / leaves.n_trees
        after = whole + _shared_leaves(leaves, more, moved, rows) / leaves.n_trees
        return self._score(after, self.prior) - self._score(whole, self.prior)


def mean_weight(leaves: Leaves, label: int) -> float:
    """Returns the mean weight of the labels of a class; without any, of all."""
    mine = leaves.classes == label
    return float(leaves.weights[mine if mine.any() else slice(None)].mean())


def largest_gap(made: Sequence[NumpyArray], stored: Sequence[NumpyArray]) -> float:
    """Returns how far leaf values [1, leaves] are from stored ones at most, of trees that found something to split."""
    pairs = zip(made, stored, strict=True)
    return max((float(np.abs(a[0] - b).max()) for a, b in pairs if b.size > 1), default=0.0)


def _as_logits(scores: NumpyArray) -> NumpyArray:
    """Returns changes of q scores [.., q] as those of k logits: of two classes the one score is class 1's log-odds."""
    if scores.shape[-1] > 1:
        return scores
    return np.concatenate([np.zeros_like(scores), scores], -1)


def _firsts(leaves: Leaves) -> NumpyArray:
    """Returns where each tree's leaves begin among those of all, and where they end, int64 [T + 1]."""
    return np.concatenate([[0], np.cumsum([values.size for values in leaves.values])]).astype(np.int64)


def _in_leaves(leaves: Leaves, rows: NumpyArray, trees: slice = slice(None)) -> csr_array:
    """Returns a matrix of 1 where a node lies in a leaf of some trees, [n, leaves of all]."""
    firsts, n = _firsts(leaves), rows.shape[1]
    places = (rows[trees] + firsts[:-1][trees, None]).T
    ends = np.arange(n + 1) * places.shape[1]
    return csr_array((np.ones(places.size), places.ravel(), ends), shape=(n, int(firsts[-1])))


def _at_leaves(leaves: Leaves, of_labels: NumpyArray, moved: NumpyArray) -> csr_array:
    """Returns what labels do to the leaves that they lie in [T, m], [T, m], at these leaves among all, [leaves, m]."""
    firsts, (n_trees, m) = _firsts(leaves), moved.shape
    places, labels = (of_labels + firsts[:-1, None]).ravel(), np.tile(np.arange(m), n_trees)
    return csr_array((moved.ravel(), (places, labels)), shape=(int(firsts[-1]), m))


def _shared_leaves(
    leaves: Leaves, more: NumpyArray, moved: NumpyArray, rows: NumpyArray, trees: slice = slice(None)
) -> NumpyArray:
    """Returns what moved leaves [T, c] of some trees add to the nodes that lie in the same ones, [c, n]."""
    return (_in_leaves(leaves, rows, trees) @ _at_leaves(leaves, more, moved)).toarray().T
