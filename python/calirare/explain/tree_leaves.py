"""Which labels each leaf of trees was made of, so that its value can be made again without some of them.

A tree of a forest sees all labels. A boosted tree sees a random part, its bag, which no model file tells. LightGBM
draws it by a linear congruential generator for each block of 1,024 rows (`bagging.hpp`, `random.h`), so it is drawn
again here from the model's own seed; the leaf values made of it are compared with those in the file. A round of
boosting that finds nothing to split draws a bag, and leaves no tree: of few labels many do.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import numpy as np

from calirare._util.array_files import NumpyArray
from calirare.models import TREE_PSEUDO, TREE_SHRINKAGE, TreesFit

BAG_BLOCK = 1024  # rows that share a generator
REPRODUCED = 1e-4  # error of leaf values up to which they are those of the file: LightGBM's gradients are float32
Terms = tuple[NumpyArray, NumpyArray]  # gradients and curvatures
MULTIPLIER, INCREMENT, MASK = 214013, 2531011, 0xFFFFFFFF


@dataclass(frozen=True, eq=False)
class Leaves:
    """Trees as their labels and some other rows fall into them.

    Attributes:
        boosted: whether trees were grown one upon the other; else they are averaged.
        of_labels: leaf of each label in each tree, int64 [T, m].
        bags: labels each tree was grown on, bool [T, m]; of a forest all of them.
        values: of each tree's leaves, as stored, T arrays. Of boosting with k > 2 classes each round has k trees, one
            after the other; of a forest they are those of one class.
        targets: 0 or 1, float64 [m]; of a forest with k > 2 classes 1 of the trees' own class.
        weights: of the labels' losses, of mean 1, float64 [m].
        pseudo: labels added to each class where the prior is taken.
        penalty: lambda of the leaf values.
        rate: learning rate; 1 of a forest.
        classes: of boosting with k > 2 classes the labels', int64 [m]; else None.
        n_classes: k.
    """

    boosted: bool
    of_labels: NumpyArray
    bags: NumpyArray
    values: tuple[NumpyArray, ...]
    targets: NumpyArray
    weights: NumpyArray
    pseudo: float
    penalty: float
    rate: float
    classes: NumpyArray | None = None
    n_classes: int = 2

    @classmethod
    def of(cls, fitted: TreesFit, columns: NumpyArray, c: int | None = None) -> Leaves:
        """Returns the leaves of trees that were grown on all labels.

        Args:
            fitted: the trees.
            columns: of the labelled nodes, float32 [m, d].
            c: of a forest with k > 2 classes: the class whose trees are meant.
        """
        ensemble, k = fitted.trees.all_labels, fitted.n_classes
        boosted, targets = ensemble.kind == "boosting", fitted.targets.cpu()
        weights, at = fitted.sample_weights.double().cpu().numpy(), leaves_of(fitted, columns)
        n_trees, together = len(at), k if boosted and k > 2 else 1
        every = np.ones((n_trees, columns.shape[0]), dtype=bool)
        found = cls(
            boosted,
            at,
            every,
            ensemble.leaf_values(1 if c is None else c),
            (targets == (1 if c is None else c)).double().numpy(),
            weights / weights.mean(),
            TREE_PSEUDO,
            parameter(ensemble.text, "lambda_l2") if boosted else TREE_SHRINKAGE,
            parameter(ensemble.text, "learning_rate") if boosted else 1.0,
            targets.numpy() if together > 1 else None,
            k,
        )
        if not boosted:
            return found
        draws = max(n_trees // together, fitted.trees.rounds)
        seed, fraction = int(parameter(ensemble.text, "bagging_seed")), parameter(ensemble.text, "bagging_fraction")
        drawn = bags(columns.shape[0], draws, seed, fraction)
        if draws > n_trees // together:
            return replace(found, bags=found._of_their_rounds(drawn))
        return replace(found, bags=np.repeat(drawn, together, 0))

    def _of_their_rounds(self, drawn: NumpyArray) -> NumpyArray:
        """Returns the bag of each tree, of those left the first that makes its leaf values.

        Where none does, the bags are of another version of LightGBM: then the first ones, one for each tree.
        """
        if self.classes is not None:
            return self._of_their_rounds_by_class(drawn)
        prior = self.prior(self.weights)
        said, taken = np.full(self.weights.size, np.log(prior) - np.log1p(-prior)), [-1]
        for later, (places, stored) in enumerate(zip(self.of_labels, self.values, strict=True), 1 - self.n_trees):
            left = range(taken[-1] + 1, len(drawn) + later)  # a tree without a split is of the first round
            fits = left if stored.size == 1 else (k for k in left if self._makes(drawn[k], places, stored, said))
            found = next(iter(fits), None)
            if found is None:
                return drawn[: self.n_trees]
            taken.append(found)
            said += stored[places]
        return drawn[taken[1:]]

    def _of_their_rounds_by_class(self, drawn: NumpyArray) -> NumpyArray:
        """Does the same of rounds of k trees, one for each class."""
        k, n_rounds = self.n_classes, self.n_trees // self.n_classes
        said, taken = np.repeat(np.log(self.shares(self.weights))[None], self.weights.size, 0), [-1]
        for t in range(n_rounds):
            trees = range(t * k, (t + 1) * k)
            terms = self.terms(said)
            split = [i for i in trees if self.values[i].size > 1]
            left = range(taken[-1] + 1, len(drawn) - n_rounds + t + 1)

            def makes(bag: NumpyArray, split: list[int] = split, terms: Terms = terms) -> bool:
                return all(np.abs(self.made(i, bag, terms) - self.values[i]).max() <= REPRODUCED for i in split)

            found = next((r for r in left if makes(drawn[r])), None)
            if found is None:
                return np.repeat(drawn[:n_rounds], k, 0)
            taken.append(found)
            for c, i in enumerate(trees):
                said[:, c] += self.values[i][self.of_labels[i]]
        return np.repeat(drawn[taken[1:]], k, 0)

    def terms(self, said: NumpyArray) -> Terms:
        """Returns gradient and curvature of each label's loss by the logits [.., m, k], as LightGBM takes them."""
        assert self.classes is not None
        p = np.exp(said - said.max(-1, keepdims=True))
        p /= p.sum(-1, keepdims=True)
        return p - np.eye(self.n_classes)[self.classes], self.n_classes / (self.n_classes - 1) * p * (1 - p)

    def made(self, tree: int, bag: NumpyArray, terms: Terms) -> NumpyArray:
        """Returns the leaf values that a bag of labels makes of terms [m, k] in a tree of a round."""
        c, places, size = tree % self.n_classes, self.of_labels[tree][bag], self.values[tree].size
        sums = [np.bincount(places, self.weights[bag] * part[bag, c], size) for part in terms]
        return -self.rate * sums[0] / (sums[1] + self.penalty)

    def shares(self, weights: NumpyArray) -> NumpyArray:
        """Returns the shares of all classes under weights [.., m], smoothed, [.., k]."""
        assert self.classes is not None
        totals = weights @ np.eye(self.n_classes)[self.classes] + self.pseudo
        return totals / totals.sum(-1, keepdims=True)

    def _makes(self, bag: NumpyArray, places: NumpyArray, stored: NumpyArray, said: NumpyArray) -> bool:
        """Returns whether a bag of labels, of log-odds `said`, makes a tree's leaf values."""
        p = 1 / (1 + np.exp(-said[bag]))
        parts = (p - self.targets[bag], p * (1 - p))
        gradient, curvature = (np.bincount(places[bag], self.weights[bag] * part, stored.size) for part in parts)
        made = -self.rate * gradient / (curvature + self.penalty)
        return bool(np.abs(made - stored).max() <= REPRODUCED)

    @property
    def n_trees(self) -> int:
        """T."""
        return len(self.values)

    @property
    def refits(self) -> int:
        """How many label weights are read when every label is left out of every tree: T m^2."""
        return self.n_trees * self.weights.size**2

    def prior(self, weights: NumpyArray) -> NumpyArray:
        """Returns the share of class 1 under weights [.., m], smoothed, [..]."""
        rare = weights @ self.targets + self.pseudo
        return rare / (weights.sum(-1) + self.n_classes * self.pseudo)


def parameter(text: str, name: str) -> float:
    """Returns a parameter that a model's text tells; LightGBM before 4.7 keeps none in a booster made of text."""
    found = re.search(rf"^\[{name}: (.*)\]$", text, re.MULTILINE)
    assert found is not None, name
    return float(found[1])


def leaves_of(fitted: TreesFit, columns: NumpyArray) -> NumpyArray:
    """Returns the leaf of rows [n, d] in each tree, int64 [T, n]."""
    return fitted.trees.all_labels.leaves(columns).T


def bags(m: int, n_trees: int, seed: int, fraction: float) -> NumpyArray:
    """Returns which of m labels each tree was grown on, bool [T, m], as LightGBM draws them."""
    if fraction >= 1:
        return np.ones((n_trees, m), dtype=bool)
    out = np.empty((n_trees, m), dtype=bool)
    for block, first in enumerate(range(0, m, BAG_BLOCK)):
        width = min(BAG_BLOCK, m - first)
        drawn = _numbers(seed + block, n_trees * width).reshape(n_trees, width)
        out[:, first : first + width] = drawn < fraction
    return out


def _numbers(seed: int, count: int) -> NumpyArray:
    """Returns numbers in [0, 1) of LightGBM's generator, float64 [count]."""
    state, states = seed & MASK, np.empty(count, dtype=np.int64)
    for i in range(count):
        state = (MULTIPLIER * state + INCREMENT) & MASK
        states[i] = state
    return ((states >> 16) & 0x7FFF) / 32768.0
