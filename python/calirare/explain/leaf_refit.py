"""What a label more does to trees: the splits stay, and the leaves it would lie in are made anew with it.

Other labels' scores stay as they are. A tree sees a part of the labels, its bag, and a label that is not there yet
falls into it with the bag's share: leaf values move by that share of what the label would move them by.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from calirare._util.array_files import NumpyArray
from calirare.explain.tree_labels import BoostedLabels, ForestLabels, TreeLabels


def change_with(labels: TreeLabels, more: NumpyArray, rows: NumpyArray) -> NumpyArray:
    """Returns how the log-odds of nodes change with a label at each of other nodes, float64 [2, c, n].

    Args:
        labels: of the trees.
        more: leaf of each node that would have a label in each tree, int64 [T, c].
        rows: leaf of each node in each tree, int64 [T, n].

    Returns:
        Of labels of the rest, and of rare ones; each weighs what labels of its class do on average.
    """
    moved = _boosted if isinstance(labels, BoostedLabels) else _averaged
    changes = [_where_they_meet(moved(labels, more, label), more, rows) for label in (0, 1)]
    if isinstance(labels, BoostedLabels):
        return np.stack(changes)
    assert isinstance(labels, ForestLabels)
    before = _share_of(labels, rows)
    limits = labels.limits(labels.prior)
    said = np.clip(before + np.stack(changes) / labels.leaves.n_trees, *limits)
    whole = np.clip(before, *limits)
    return _log_odds(said) - _log_odds(whole)


def change_with_all(labels: TreeLabels, more: NumpyArray, y: NumpyArray, rows: NumpyArray) -> NumpyArray:
    """Returns how the log-odds of nodes change if other nodes all have a label, float64 [n].

    A leaf is made anew with the part of the labels in it that a bag sees; what other labels are given moves with it.

    Args:
        labels: of the trees.
        more: leaf of each node that would have a label in each tree, int64 [T, c].
        y: their labels, int64 [c].
        rows: leaf of each node in each tree, int64 [T, n].
    """
    weights = np.where(y == 1, _weight(labels, 1), _weight(labels, 0))
    if isinstance(labels, BoostedLabels):
        return _boosted_by_all(labels, more, y, weights, rows)
    assert isinstance(labels, ForestLabels)
    moved, leaves = np.zeros(rows.shape[1]), labels.leaves
    for tree, (bag, stored, at) in enumerate(zip(leaves.bags, leaves.values, more, strict=True)):
        if stored.size > 1:
            total, rare = labels.total[tree], labels.rare[tree]
            worth = bag.mean() * weights
            fresh, of_rare = (np.bincount(at, part, stored.size) for part in (worth, worth * y))
            before = (rare - labels.prior * total) / (total + leaves.penalty)
            after = (rare + of_rare - labels.prior * (total + fresh)) / (total + fresh + leaves.penalty)
            moved += (after - before)[rows[tree]]
    whole, limits = _share_of(labels, rows), labels.limits(labels.prior)
    return _log_odds(np.clip(whole + moved / leaves.n_trees, *limits)) - _log_odds(np.clip(whole, *limits))


def _boosted_by_all(
    labels: BoostedLabels, more: NumpyArray, y: NumpyArray, weights: NumpyArray, rows: NumpyArray
) -> NumpyArray:
    """Returns the change of nodes where each tree is made anew knowing of the earlier ones, see `change_with_all`."""
    leaves, out = labels.leaves, np.zeros(rows.shape[1])
    of_labels, own = np.full(leaves.weights.size, labels.start), np.full(more.shape[1], labels.start)
    trees = zip(leaves.of_labels, leaves.bags, labels.whole, more, rows, strict=True)
    for places, bag, whole, at, asked in trees:
        value = whole[0]
        if whole.size > 1:
            p, q = 1 / (1 + np.exp(-of_labels)), 1 / (1 + np.exp(-own))
            worth = (leaves.weights * (p - leaves.targets), leaves.weights * p * (1 - p))
            fresh = (weights * (q - y), weights * q * (1 - q))
            gradient, curvature = (
                np.bincount(places[bag], old[bag], whole.size) + bag.mean() * np.bincount(at, new, whole.size)
                for old, new in zip(worth, fresh, strict=True)
            )
            value = -leaves.rate * gradient / (curvature + leaves.penalty)
        out += (value - whole[0])[asked]
        of_labels += value[places]
        own += value[at]
    return out


def _log_odds(p: NumpyArray) -> NumpyArray:
    return np.log(p) - np.log1p(-p)


def _weight(labels: TreeLabels, label: int) -> float:
    """Returns the mean weight of the labels of a class; without any, of all."""
    leaves = labels.leaves
    mine = leaves.targets == label
    return float(leaves.weights[mine if mine.any() else slice(None)].mean())


def _boosted(labels: TreeLabels, more: NumpyArray, label: int) -> NumpyArray:
    """Returns how far a label moves the leaf it lies in of each tree, [T, c]; later trees know of earlier ones."""
    assert isinstance(labels, BoostedLabels)
    leaves, weight, out = labels.leaves, _weight(labels, label), np.zeros(more.shape)
    start = labels.start
    of_labels, own = np.full(leaves.weights.size, start), np.full(more.shape[1], start)
    trees = zip(leaves.of_labels, leaves.bags, labels.whole, more, strict=True)
    for tree, (places, bag, whole, at) in enumerate(trees):
        p, q = 1 / (1 + np.exp(-of_labels)), 1 / (1 + np.exp(-own))
        worth = (leaves.weights * (p - leaves.targets), leaves.weights * p * (1 - p))
        gradient, curvature = (np.bincount(places[bag], part[bag], whole.size) for part in worth)
        if whole.size > 1:
            value = -leaves.rate * (gradient[at] + weight * (q - label))
            value /= curvature[at] + weight * q * (1 - q) + leaves.penalty
            out[tree] = bag.mean() * (value - whole[0, at])
        of_labels += whole[0, places]
        own += whole[0, at] + out[tree]
    return out


def _averaged(labels: TreeLabels, more: NumpyArray, label: int) -> NumpyArray:
    """Returns the same of trees that know nothing of each other, [T, c]."""
    assert isinstance(labels, ForestLabels)
    leaves, weight, out = labels.leaves, _weight(labels, label), np.zeros(more.shape)
    for tree, (bag, stored, at) in enumerate(zip(leaves.bags, leaves.values, more, strict=True)):
        if stored.size > 1:
            total, rare = labels.total[tree][at], labels.rare[tree][at]
            before = (rare - labels.prior * total) / (total + leaves.penalty)
            after = rare + weight * label - labels.prior * (total + weight)
            out[tree] = bag.mean() * (after / (total + weight + leaves.penalty) - before)
    return out


def _share_of(labels: ForestLabels, rows: NumpyArray) -> NumpyArray:
    """Returns the share of the rare class that the forest says of nodes, before it is cut, [n]."""
    out = np.zeros(rows.shape[1])
    for values, at in zip(labels.leaves.values, rows, strict=True):
        out += values[at]
    return labels.prior + out / labels.leaves.n_trees


def _where_they_meet(moved: NumpyArray, more: NumpyArray, rows: NumpyArray) -> NumpyArray:
    """Returns, over all trees, what the moved leaves [T, c] add to the nodes that lie in the same ones, [c, n]."""
    sizes = np.maximum(more.max(1, initial=0), rows.max(1, initial=0)) + 1
    first = np.concatenate([[0], np.cumsum(sizes)])

    def spread(values: NumpyArray, leaf: NumpyArray) -> csr_array:
        n_trees, n = leaf.shape
        columns = (leaf + first[:-1, None]).T.ravel()
        ends = np.arange(n + 1) * n_trees
        return csr_array((values.T.ravel(), columns, ends), shape=(n, int(first[-1])))

    return np.asarray((spread(moved, more) @ spread(np.ones(rows.shape), rows).T).todense())
