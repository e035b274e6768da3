"""What leaving labels out of trees of many classes does to the logits of some nodes, as `tree_labels` has it of two.

Each round of boosting has a tree for each class, all of which read the scores of the rounds before; the trees of a
forest are those of all classes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Protocol, Self

import numpy as np
from scipy.sparse import csr_array, issparse

from calirare._util.array_files import NumpyArray
from calirare.explain.tree_labels import REFITS, ForestLabels, largest_gap, without_sets
from calirare.explain.tree_leaves import Leaves
from calirare.models import TREE_SHRINKAGE, TreesFit


class TreeClasses(Protocol):
    """Labels of trees of k > 2 classes, left out; see `TreeLabels`."""

    @property
    def exact(self) -> bool:
        """Whether every label's effect is that of leaf values made anew; else of the strongest labels alone."""
        ...

    @property
    def error(self) -> float:
        """Largest difference between leaf values made again of all labels and those that are stored."""
        ...

    def change(self, rows: NumpyArray) -> NumpyArray:
        """Returns how the logits of nodes change without each label, float64 [m, n, k].

        Args:
            rows: leaf of each node in each tree, int64 [T, n].
        """
        ...

    def change_without(self, rows: NumpyArray, sets: Sequence[NumpyArray]) -> NumpyArray:
        """Returns how they change without each set of labels (places, int64), float64 [s, n, k]."""
        ...


class BoostedClasses:
    """Of trees that were grown one round upon the other, a tree for each class.

    Args:
        leaves: the trees.
    """

    def __init__(self, leaves: Leaves) -> None:
        self.leaves = leaves
        self._last: tuple[tuple[bytes, ...], list[NumpyArray]] | None = None

    @classmethod
    def of(cls, fitted: TreesFit, columns: NumpyArray) -> Self:
        """Returns them of fitted trees, by the labels' columns, float32 [m, d]."""
        return cls(Leaves.of(fitted, columns))

    @property
    def exact(self) -> bool:
        """See `TreeClasses.exact`."""
        return self.leaves.refits <= REFITS

    @cached_property
    def whole(self) -> list[NumpyArray]:
        """Leaf values made of all labels, T arrays [1, leaves]."""
        return self._refitted(self.leaves.weights[None])

    @property
    def error(self) -> float:
        """See `TreeClasses.error`."""
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
        """See `TreeClasses.change`."""
        k, n = self.leaves.n_classes, rows.shape[1]
        in_leaves = _in_leaves(self.leaves, rows)
        moved = np.stack([_dense(in_leaves(slice(c, None, k)) @ self.alone) for c in range(k)], 2)  # [n, m, k]
        return moved.transpose(1, 0, 2) + self._starts(self._each)[:, None].repeat(n, 1)

    def change_without(self, rows: NumpyArray, sets: Sequence[NumpyArray]) -> NumpyArray:
        """See `TreeClasses.change_without`."""
        return self._kept(rows, self._without(sets), sets)

    def _kept(self, rows: NumpyArray, values: list[NumpyArray], sets: Sequence[NumpyArray]) -> NumpyArray:
        """Returns the change of the nodes' logits at other leaf values and starts, [s, n, k]."""
        out = np.repeat(self._starts(sets)[:, :, None], rows.shape[1], 2)  # [s, k, n]
        for tree, (other, whole, places) in enumerate(zip(values, self.whole, rows, strict=True)):
            out[:, tree % self.leaves.n_classes] += (other - whole)[:, places]
        return out.transpose(0, 2, 1)

    def _starts(self, sets: Sequence[NumpyArray]) -> NumpyArray:
        """Returns what the logits that the first trees start from move by without each set, [s, k]."""
        leaves = self.leaves
        starts = [np.log(leaves.shares(weights)) for weights in without_sets(leaves, sets)]
        return np.concatenate([np.zeros((0, leaves.n_classes)), *starts]) - np.log(leaves.shares(leaves.weights))

    def _without(self, sets: Sequence[NumpyArray]) -> list[NumpyArray]:
        """Returns leaf values without each set, T arrays [s, leaves]; the last are kept, for other nodes."""
        key = tuple(np.asarray(places).tobytes() for places in sets)
        if self._last is None or self._last[0] != key:
            self._last = key, self._values_without(sets)
        return self._last[1]

    def _values_without(self, sets: Sequence[NumpyArray]) -> list[NumpyArray]:
        parts = [self._refitted(weights) for weights in without_sets(self.leaves, sets, self.leaves.n_classes)]
        empty = [np.zeros((0, stored.size)) for stored in self.leaves.values]
        return [np.concatenate(tree) for tree in zip(empty, *parts, strict=True)]

    def _refitted(self, weights: NumpyArray) -> list[NumpyArray]:
        """Returns each tree's leaf values with weights [s, m]: T arrays [s, leaves]."""
        leaves, k, out = self.leaves, self.leaves.n_classes, list[NumpyArray]()
        said = np.repeat(np.log(leaves.shares(weights))[:, None], weights.shape[1], 1)  # [s, m, k]
        for first in range(0, leaves.n_trees, k):
            gradient, curvature = leaves.terms(said)
            for c in range(k):
                places, bag, stored = (each[first + c] for each in (leaves.of_labels, leaves.bags, leaves.values))
                if stored.size == 1:  # nothing was found to split, and no label moves it
                    out.append(np.broadcast_to(stored, (len(weights), 1)))
                else:
                    inside = np.zeros((places.size, stored.size))
                    inside[bag, places[bag]] = 1
                    sums = [(weights * part[..., c]) @ inside for part in (gradient, curvature)]
                    out.append(-leaves.rate * sums[0] / (sums[1] + leaves.penalty))
                said[..., c] += out[-1][:, places]
        return out

    def _own_leaves(self) -> csr_array:
        """Returns `alone` where other labels' scores stay as they are, so that a label moves its own leaves alone."""
        leaves, k, m = self.leaves, self.leaves.n_classes, self.leaves.weights.size
        said, moved = np.repeat(np.log(leaves.shares(leaves.weights))[None], m, 0), list[NumpyArray]()
        for first in range(0, leaves.n_trees, k):
            terms = [leaves.weights[:, None] * part for part in leaves.terms(said)]
            for c in range(k):
                places, bag, whole = (each[first + c] for each in (leaves.of_labels, leaves.bags, self.whole))
                gradient, curvature = (part[:, c] for part in terms)
                sums = [np.bincount(places[bag], part[bag], whole.size) for part in (gradient, curvature)]
                value = -leaves.rate * (sums[0][places] - gradient) / (sums[1][places] - curvature + leaves.penalty)
                moved.append(np.where(bag & (whole.size > 1), value - whole[0, places], 0.0))
                said[:, c] += whole[0, places]
        return _at_leaves(leaves, np.stack(moved))


class ForestClasses:
    """Of trees that are averaged, those of each class on their own.

    Args:
        each: labels of the trees of each class.
    """

    exact = True

    def __init__(self, each: Sequence[ForestLabels]) -> None:
        self.each = tuple(each)

    @classmethod
    def of(cls, fitted: TreesFit, columns: NumpyArray) -> Self:
        """Returns them of fitted trees, by the labels' columns, float32 [m, d]."""
        smallest = TREE_SHRINKAGE / (fitted.trees.all_labels.weight + TREE_SHRINKAGE)
        return cls([ForestLabels(Leaves.of(fitted, columns, c), smallest) for c in range(fitted.n_classes)])

    @property
    def error(self) -> float:
        """See `TreeClasses.error`."""
        return max(labels.error for labels in self.each)

    def change(self, rows: NumpyArray) -> NumpyArray:
        """See `TreeClasses.change`."""
        return np.stack([_forest_change(labels, rows) for labels in self.each], -1)

    def change_without(self, rows: NumpyArray, sets: Sequence[NumpyArray]) -> NumpyArray:
        """See `TreeClasses.change_without`."""
        return np.stack([labels.change_without(rows, sets) for labels in self.each], -1)


def _forest_change(labels: ForestLabels, rows: NumpyArray) -> NumpyArray:
    """Returns how log P of a class changes without each label, [m, n].

    Without label i of weight w the prior p_0 becomes p_i and a leaf's value (rare - p_i total) / (total + a); in the
    leaves where the label lies both sums lose it. So the share is p_i + (R - p_i S + sum of what those leaves lose) / T
    with R and S sums over the trees that do not depend on the label.
    """
    leaves, (w, y) = labels.leaves, (labels.leaves.weights, labels.leaves.targets)
    priors = np.concatenate(
        [leaves.prior(part) for part in without_sets(leaves, [np.array([i]) for i in range(w.size)])]
    )
    total, rare, a = labels.totals, labels.rares, leaves.penalty
    place, split = labels.at_labels, ~labels.alone  # [T, m], [T, 1]
    of_rare, of_all = rare / (total + a), total / (total + a)
    left = total[place] - w
    lost = (rare[place] - w * y) / (left + a) - of_rare[place] - priors * (left / (left + a) - of_all[place])
    in_leaves = _in_leaves(leaves, rows)(slice(None))
    moves = np.repeat(split[:, 0], [values.size for values in leaves.values])
    sums = [in_leaves @ np.where(moves, of_rare, labels.stored), in_leaves @ np.where(moves, of_all, 0.0)]
    moved = _dense(in_leaves @ _at_leaves(leaves, np.where(split & labels.in_bags, lost, 0.0))).T  # [m, n]
    shares = priors[:, None] + (sums[0] - priors[:, None] * sums[1] + moved) / leaves.n_trees
    whole = labels.prior + (sums[0] - labels.prior * sums[1]) / leaves.n_trees
    low, high = labels.limits(priors[:, None])
    return np.log(np.clip(shares, low, high)) - np.log(np.clip(whole, *labels.limits(labels.prior)))


def _firsts(leaves: Leaves) -> NumpyArray:
    """Returns where each tree's leaves begin among those of all, and where they end, int64 [T + 1]."""
    return np.concatenate([[0], np.cumsum([values.size for values in leaves.values])]).astype(np.int64)


def _in_leaves(leaves: Leaves, rows: NumpyArray) -> Callable[[slice], csr_array]:
    """Returns what makes, of some trees, a matrix of 1 where a node [n] lies in a leaf of all, [n, leaves]."""
    firsts, n = _firsts(leaves), rows.shape[1]

    def made(trees: slice) -> csr_array:
        places = (rows[trees] + firsts[:-1][trees, None]).T
        ends = np.arange(n + 1) * places.shape[1]
        return csr_array((np.ones(places.size), places.ravel(), ends), shape=(n, int(firsts[-1])))

    return made


def _at_leaves(leaves: Leaves, moved: NumpyArray) -> csr_array:
    """Returns what labels do to the leaves that they lie in, [T, m], at these leaves among all, [leaves, m]."""
    firsts, (n_trees, m) = _firsts(leaves), moved.shape
    places, labels = (leaves.of_labels + firsts[:-1, None]).ravel(), np.tile(np.arange(m), n_trees)
    return csr_array((moved.ravel(), (places, labels)), shape=(int(firsts[-1]), m))


def _dense(matrix: Any) -> NumpyArray:
    """Returns a matrix that may be sparse as numbers."""
    return matrix.toarray() if issparse(matrix) else matrix
