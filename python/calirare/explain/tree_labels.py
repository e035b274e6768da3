"""What leaving labels out of trees does to the logits of some nodes: the splits stay, every leaf value is made again.

Leaf values of boosting are Newton steps on the loss of the labels in the leaf at their scores by the trees before, so
that a label left out moves the leaves it lies in, through them what later trees read of other labels, and thereby their
leaves too ("LeafRefit", Sharchilev et al. 2018). A round of boosting has q trees, one for each class, or of two classes
one, and all of them read the scores of the rounds before. Trees of a forest know nothing of each other.
"""

from __future__ import annotations

import abc
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from scipy.sparse import csr_array, issparse

from calirare._util.array_files import NumpyArray
from calirare.explain.tree_leaves import Leaves

BLOCK = 2_000_000  # numbers of left-out sets times labels worked on together
REFITS = 600_000_000  # labels left out times labels times trees that are refitted when a run is loaded: some seconds
LATER = 100_000_000  # the same of the strongest labels only, where that would be more


class TreeLabels(abc.ABC):
    """Labels of trees, left out or added.

    Attributes:
        exact: whether every label's effect is that of leaf values made again; else of the strongest labels only.
    """

    exact: bool = True

    @property
    @abc.abstractmethod
    def error(self) -> float:
        """Largest difference between leaf values made again of all labels and those that are stored."""

    @abc.abstractmethod
    def change(self, rows: NumpyArray) -> NumpyArray:
        """Returns how the logits of nodes change without each label, float64 [m, n, k].

        Args:
            rows: leaf of each node in each tree, int64 [T, n].
        """

    @abc.abstractmethod
    def change_without(self, rows: NumpyArray, sets: Sequence[NumpyArray]) -> NumpyArray:
        """Returns how they change without each set of labels (places, int64), float64 [s, n, k]."""

    @abc.abstractmethod
    def change_with(self, more: NumpyArray, rows: NumpyArray) -> NumpyArray:
        """Returns how they change with a label at each of other nodes, float64 [k, c, n, k].

        Other labels' scores stay as they are. A tree sees a part of the labels, its bag, and a label that is not there
        yet falls into it with the bag's proportion: leaf values move by that part of what the label would move them.

        Args:
            more: leaf of each node that would have a label in each tree, int64 [T, c].
            rows: leaf of each node in each tree, int64 [T, n].

        Returns:
            The first index is the label, which weighs what labels of its class weigh on average.
        """

    @abc.abstractmethod
    def change_with_all(self, more: NumpyArray, y: NumpyArray, rows: NumpyArray) -> NumpyArray:
        """Returns how they change if other nodes all have a label, y int64 [c]; float64 [n, k].

        A leaf is made again with the part of the labels in it that a bag sees; what other labels get moves with it.
        """


class BoostedLabels(TreeLabels):
    """Effects of labels on gradient boosting, whose trees are grown round by round.

    Args:
        leaves: the trees.
    """

    def __init__(self, leaves: Leaves) -> None:
        self.leaves, self.exact = leaves, leaves.refits <= REFITS
        self._last: tuple[tuple[bytes, ...], list[NumpyArray]] | None = None

    @cached_property
    def whole(self) -> list[NumpyArray]:
        """Leaf values made of all labels, T arrays [1, leaves]."""
        return self._refitted(self.leaves.weights[None])

    @property
    def error(self) -> float:
        """See `TreeLabels.error`."""
        return largest_gap(self.whole, self.leaves.values)

    @cached_property
    def alone(self) -> Any:
        """What leaf values, of all trees one after the other, move by without each label, [leaves, m], maybe sparse."""
        if not self.exact:
            return self._own_leaves()
        values = self._values_without(self._each)
        return np.concatenate([(other - whole).T for other, whole in zip(values, self.whole, strict=True)])

    @property
    def _each(self) -> list[NumpyArray]:
        """Every label as a set."""
        return [np.array([i]) for i in range(self.leaves.weights.size)]

    def change(self, rows: NumpyArray) -> NumpyArray:
        """See `TreeLabels.change`."""
        leaves, q = self.leaves, self.leaves.per_round
        in_leaves = [_in_leaves(leaves, rows, slice(c, None, q)) for c in range(q)]
        moved = np.stack([_dense(each @ self.alone).T for each in in_leaves], 2)  # [m, n, q]
        out = _as_logits(moved + self._starts(self._each)[:, None])
        if not self.exact:
            n_chosen = max(16, LATER // (leaves.n_trees * leaves.weights.size))
            chosen = np.argsort(-np.ptp(out, 2).max(1), kind="stable")[:n_chosen]
            out[chosen] = self.change_without(rows, [self._each[i] for i in chosen])
        return out

    def change_without(self, rows: NumpyArray, sets: Sequence[NumpyArray]) -> NumpyArray:
        """See `TreeLabels.change_without`."""
        out = np.repeat(self._starts(sets)[:, :, None], rows.shape[1], 2)  # [s, q, n]
        for tree, (other, whole, places) in enumerate(zip(self._without(sets), self.whole, rows, strict=True)):
            out[:, tree % self.leaves.per_round] += (other - whole)[:, places]
        return _as_logits(out.transpose(0, 2, 1))

    def _starts(self, sets: Sequence[NumpyArray]) -> NumpyArray:
        """Returns what the scores that the first trees start from move by without each set, [s, q]."""
        leaves = self.leaves
        starts = [leaves.start(weights) for weights in without_sets(leaves, sets)]
        return np.concatenate([np.zeros((0, leaves.per_round)), *starts]) - leaves.start(leaves.weights)

    def _without(self, sets: Sequence[NumpyArray]) -> list[NumpyArray]:
        """Returns leaf values without each set, T arrays [s, leaves]; the last are kept, for other nodes."""
        key = tuple(np.asarray(places).tobytes() for places in sets)
        if self._last is None or self._last[0] != key:
            self._last = key, self._values_without(sets)
        return self._last[1]

    def _values_without(self, sets: Sequence[NumpyArray]) -> list[NumpyArray]:
        parts = [self._refitted(weights) for weights in without_sets(self.leaves, sets, self.leaves.per_round)]
        empty = [np.zeros((0, stored.size)) for stored in self.leaves.values]
        return [np.concatenate(tree) for tree in zip(empty, *parts, strict=True)]

    def _refitted(self, weights: NumpyArray) -> list[NumpyArray]:
        """Returns each tree's leaf values with weights [s, m]: T arrays [s, leaves]."""
        leaves, q, out = self.leaves, self.leaves.per_round, list[NumpyArray]()
        scores = np.repeat(leaves.start(weights)[:, None], weights.shape[1], 1)  # [s, m, q]
        for first in range(0, leaves.n_trees, q):
            gradient, curvature = leaves.terms(scores)
            for c in range(q):
                places, bag, stored = (each[first + c] for each in (leaves.of_labels, leaves.bags, leaves.values))
                if stored.size == 1:  # nothing was found to split, and no label moves it
                    out.append(np.broadcast_to(stored, (len(weights), 1)))
                else:
                    inside = np.zeros((places.size, stored.size))
                    inside[bag, places[bag]] = 1
                    sums = [(weights * part[..., c]) @ inside for part in (gradient, curvature)]
                    out.append(-leaves.rate * sums[0] / (sums[1] + leaves.penalty))
                scores[..., c] += out[-1][:, places]
        return out

    def _own_leaves(self) -> csr_array:
        """Returns `alone` where other labels' scores stay as they are, so that a label moves only its own leaves."""
        leaves, moved = self.leaves, np.empty(self.leaves.of_labels.shape)
        for tree, terms in self._terms_by_tree():
            places, bag, whole = leaves.of_labels[tree], leaves.bags[tree], self.whole[tree]
            gradient, curvature = (np.bincount(places[bag], part[bag], whole.size) for part in terms)
            value = -leaves.rate * (gradient[places] - terms[0]) / (curvature[places] - terms[1] + leaves.penalty)
            moved[tree] = np.where(bag & (whole.size > 1), value - whole[0, places], 0.0)
        return _at_leaves(leaves, leaves.of_labels, moved)

    def _terms_by_tree(self) -> Iterator[tuple[int, list[NumpyArray]]]:
        """Yields each tree with its gradients and curvatures of all labels, weighted, [m]."""
        leaves, q = self.leaves, self.leaves.per_round
        scores = np.repeat(leaves.start(leaves.weights)[None], leaves.weights.size, 0)
        for first in range(0, leaves.n_trees, q):
            terms = [leaves.weights[:, None] * part for part in leaves.terms(scores)]
            for c in range(q):
                yield first + c, [part[:, c] for part in terms]
                scores[:, c] += self.whole[first + c][0, leaves.of_labels[first + c]]

    def change_with(self, more: NumpyArray, rows: NumpyArray) -> NumpyArray:
        """See `TreeLabels.change_with`."""
        leaves, q = self.leaves, self.leaves.per_round
        return np.stack(
            [
                _as_logits(np.stack([_meeting(leaves, more, moved, rows, slice(c, None, q)) for c in range(q)], 2))
                for moved in (self._moved_by(more, label) for label in range(leaves.n_classes))
            ]
        )

    def _moved_by(self, more: NumpyArray, label: int) -> NumpyArray:
        """Returns how far a label moves the leaf it lies in of each tree, [T, c]; later trees know of earlier ones."""
        leaves, weight, out = self.leaves, mean_weight(self.leaves, label), np.zeros(more.shape)
        own, y = np.repeat(leaves.start(leaves.weights)[None], more.shape[1], 0), np.full(more.shape[1], label)
        for tree, terms in self._terms_by_tree():
            c, at, bag, whole = tree % leaves.per_round, more[tree], leaves.bags[tree], self.whole[tree]
            if c == 0:
                fresh = [weight * part for part in leaves.terms(own, y)]
            if whole.size > 1:
                places = leaves.of_labels[tree]
                gradient, curvature = (np.bincount(places[bag], part[bag], whole.size)[at] for part in terms)
                value = -leaves.rate * (gradient + fresh[0][:, c]) / (curvature + fresh[1][:, c] + leaves.penalty)
                out[tree] = bag.mean() * (value - whole[0, at])
            own[:, c] += whole[0, at] + out[tree]
        return out

    def change_with_all(self, more: NumpyArray, y: NumpyArray, rows: NumpyArray) -> NumpyArray:
        """See `TreeLabels.change_with_all`."""
        leaves, q = self.leaves, self.leaves.per_round
        weights = np.array([mean_weight(leaves, label) for label in range(leaves.n_classes)])[y][:, None]
        start, out = leaves.start(leaves.weights)[None], np.zeros((rows.shape[1], q))
        of_labels, own = np.repeat(start, leaves.weights.size, 0), np.repeat(start, len(y), 0)
        for first in range(0, leaves.n_trees, q):
            old = [leaves.weights[:, None] * part for part in leaves.terms(of_labels)]
            fresh = [weights * part for part in leaves.terms(own, y)]
            for c in range(q):
                places, bag, whole, at = (x[first + c] for x in (leaves.of_labels, leaves.bags, self.whole, more))
                value = whole[0]
                if whole.size > 1:
                    gradient, curvature = (
                        np.bincount(places[bag], a[bag, c], whole.size)
                        + bag.mean() * np.bincount(at, b[:, c], whole.size)
                        for a, b in zip(old, fresh, strict=True)
                    )
                    value = -leaves.rate * gradient / (curvature + leaves.penalty)
                out[:, c] += (value - whole[0])[rows[first + c]]
                of_labels[:, c] += value[places]
                own[:, c] += value[at]
        return _as_logits(out)


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

    def change(self, rows: NumpyArray) -> NumpyArray:
        """See `TreeLabels.change`."""
        return _as_logits(np.stack([forest.change(rows) for forest in self.each], -1))

    def change_without(self, rows: NumpyArray, sets: Sequence[NumpyArray]) -> NumpyArray:
        """See `TreeLabels.change_without`."""
        return _as_logits(np.stack([forest.change_without(rows, sets) for forest in self.each], -1))

    def change_with(self, more: NumpyArray, rows: NumpyArray) -> NumpyArray:
        """See `TreeLabels.change_with`."""
        labels = range(self.each[0].leaves.n_classes)
        return np.stack(
            [
                _as_logits(np.stack([forest.change_with(more, rows, label) for forest in self.each], -1))
                for label in labels
            ]
        )

    def change_with_all(self, more: NumpyArray, y: NumpyArray, rows: NumpyArray) -> NumpyArray:
        """See `TreeLabels.change_with_all`."""
        return _as_logits(np.stack([forest.change_with_all(more, y, rows) for forest in self.each], -1))


class _Forest:
    """The trees of one class: each leaf has the proportion of the class among its labels."""

    def __init__(self, leaves: Leaves, smallest: float) -> None:
        self.leaves, self.smallest = leaves, smallest
        worth = (leaves.weights, leaves.weights * leaves.targets)
        trees = list(zip(leaves.of_labels, leaves.bags, leaves.values, strict=True))
        self.total, self.rare = (
            [np.bincount(places[bag], part[bag], stored.size) for places, bag, stored in trees] for part in worth
        )
        firsts = _firsts(leaves)
        self.first = firsts[:-1]  # of each tree's leaves among all
        self.at_labels, self.in_bags = np.asarray(leaves.of_labels) + self.first[:, None], np.asarray(leaves.bags)
        self.totals, self.rares, self.stored = (np.concatenate(x) for x in (self.total, self.rare, leaves.values))
        self.single = (np.diff(firsts) == 1)[:, None]  # trees that found nothing to split: no label moves them

    @property
    def prior(self) -> float:
        """Proportion of the class among all labels, smoothed, in (0, 1)."""
        return float(self.leaves.prior(self.leaves.weights))

    def _score(self, share: NumpyArray, prior: NumpyArray | float) -> NumpyArray:
        """Returns the log of a proportion within the forest's limits, of two classes its log-odds."""
        share = np.clip(share, self.smallest * prior, 1 - self.smallest * (1 - prior))
        return np.asarray(np.log(share) - np.log1p(-share) if self.leaves.n_classes == 2 else np.log(share))

    @property
    def error(self) -> float:
        """See `TreeLabels.error`."""
        pairs = zip(self.rare, self.total, strict=True)
        made = [((rare - self.prior * total) / (total + self.leaves.penalty))[None] for rare, total in pairs]
        return largest_gap(made, self.leaves.values)

    def change(self, rows: NumpyArray) -> NumpyArray:
        """Returns how the score of nodes changes without each label, [m, n].

        Without label i of weight w the prior p_0 becomes p_i and a leaf's value (rare - p_i total) / (total + a); in
        the leaves where the label lies both sums lose it. So the proportion is p_i + (R - p_i S + sum of what those
        leaves lose) / T with R and S sums over the trees that do not depend on the label.
        """
        leaves, (w, y) = self.leaves, (self.leaves.weights, self.leaves.targets)
        sets = without_sets(leaves, [np.array([i]) for i in range(w.size)])
        priors = np.concatenate([leaves.prior(part) for part in sets])
        total, rare, a = self.totals, self.rares, leaves.penalty
        place, split = self.at_labels, ~self.single  # [T, m], [T, 1]
        of_rare, of_all = rare / (total + a), total / (total + a)
        left = total[place] - w
        lost = (rare[place] - w * y) / (left + a) - of_rare[place] - priors * (left / (left + a) - of_all[place])
        in_leaves = _in_leaves(leaves, rows)
        moves = np.repeat(split[:, 0], np.diff(_firsts(leaves)))
        sums = [in_leaves @ np.where(moves, of_rare, self.stored), in_leaves @ np.where(moves, of_all, 0.0)]
        at_leaves = _at_leaves(leaves, leaves.of_labels, np.where(split & self.in_bags, lost, 0.0))
        moved = _dense(in_leaves @ at_leaves).T  # [m, n]
        shares = priors[:, None] + (sums[0] - priors[:, None] * sums[1] + moved) / leaves.n_trees
        whole = self.prior + (sums[0] - self.prior * sums[1]) / leaves.n_trees
        return self._score(shares, priors[:, None]) - self._score(whole, self.prior)

    def change_without(self, rows: NumpyArray, sets: Sequence[NumpyArray]) -> NumpyArray:
        """Returns how it changes without each set of labels, [s, n]."""
        return self._without(rows, sets) - self._without(rows, [np.zeros(0, dtype=np.int64)])

    def _without(self, rows: NumpyArray, sets: Sequence[NumpyArray]) -> NumpyArray:
        """Returns the score of nodes without each set, [s, n]."""
        leaves, n = self.leaves, rows.shape[1]
        members = np.concatenate([np.asarray(each, dtype=np.int64) for each in sets])
        sizes = np.array([len(each) for each in sets])
        weights = leaves.weights[members]
        rare_weights = weights * leaves.targets[members]
        ones, starts = np.ones(members.size), np.concatenate([[0], np.cumsum(sizes)])
        summed = csr_array((ones, np.arange(members.size), starts), shape=(len(sets), members.size))  # over each set
        prior = np.concatenate([leaves.prior(part) for part in without_sets(leaves, sets)])[:, None]
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
            out += np.where(self.single[trees][None], self.stored[at], made).sum(1)
        return self._score(prior + out / leaves.n_trees, prior)

    def change_with(self, more: NumpyArray, rows: NumpyArray, label: int) -> NumpyArray:
        """Returns how it changes with a label of a class at each of other nodes, [c, n]."""
        leaves, weight, target = self.leaves, mean_weight(self.leaves, label), float(label == self.leaves.of)
        moved = np.zeros(more.shape)
        for tree, (bag, stored, at) in enumerate(zip(leaves.bags, leaves.values, more, strict=True)):
            if stored.size > 1:
                total, rare = self.total[tree][at], self.rare[tree][at]
                before = (rare - self.prior * total) / (total + leaves.penalty)
                after = rare + weight * target - self.prior * (total + weight)
                moved[tree] = bag.mean() * (after / (total + weight + leaves.penalty) - before)
        return self._moved_by(_meeting(leaves, more, moved, rows), rows)

    def change_with_all(self, more: NumpyArray, y: NumpyArray, rows: NumpyArray) -> NumpyArray:
        """Returns how it changes if other nodes all have a label, y int64 [c]; [n]."""
        leaves, moved = self.leaves, np.zeros(rows.shape[1])
        weights = np.array([mean_weight(leaves, label) for label in range(leaves.n_classes)])[y]
        for tree, (bag, stored, at) in enumerate(zip(leaves.bags, leaves.values, more, strict=True)):
            if stored.size > 1:
                total, rare, worth = self.total[tree], self.rare[tree], bag.mean() * weights
                fresh, of_rare = (np.bincount(at, part, stored.size) for part in (worth, worth * (y == leaves.of)))
                before = (rare - self.prior * total) / (total + leaves.penalty)
                after = (rare + of_rare - self.prior * (total + fresh)) / (total + fresh + leaves.penalty)
                moved += (after - before)[rows[tree]]
        return self._moved_by(moved, rows)

    def _moved_by(self, moved: NumpyArray, rows: NumpyArray) -> NumpyArray:
        """Returns the change of the score of nodes by moves of their leaf values, summed over trees [.., n]."""
        whole = self.prior + (_in_leaves(self.leaves, rows) @ self.stored) / self.leaves.n_trees
        return self._score(whole + moved / self.leaves.n_trees, self.prior) - self._score(whole, self.prior)


def mean_weight(leaves: Leaves, label: int) -> float:
    """Returns the mean weight of the labels of a class; without any, of all."""
    mine = leaves.classes == label
    return float(leaves.weights[mine if mine.any() else slice(None)].mean())


def without_sets(leaves: Leaves, sets: Sequence[NumpyArray], width: int = 1) -> Iterator[NumpyArray]:
    """Yields the labels' weights without each set, a block of sets at a time, [b, m]; `width`: numbers of each."""
    step = max(1, BLOCK // max(leaves.weights.size * width, 1))
    for first in range(0, len(sets), step):
        part = sets[first : first + step]
        weights = np.repeat(leaves.weights[None], len(part), 0)
        for row, places in enumerate(part):
            weights[row, places] = 0
        yield weights


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


def _meeting(
    leaves: Leaves, more: NumpyArray, moved: NumpyArray, rows: NumpyArray, trees: slice = slice(None)
) -> NumpyArray:
    """Returns what moved leaves [T, c] of some trees add to the nodes that lie in the same ones, [c, n]."""
    return _dense(_in_leaves(leaves, rows, trees) @ _at_leaves(leaves, more, moved)).T


def _dense(matrix: Any) -> NumpyArray:
    """Returns a matrix that may be sparse as numbers."""
    return matrix.toarray() if issparse(matrix) else matrix
