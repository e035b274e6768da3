"""Which labels each leaf of LightGBM's trees was made of, so that its value can be made again without some of them.

A tree sees a random part of the labels, its bag, which no model file tells. LightGBM draws it by a linear congruential
generator for each block of 1,024 rows (`bagging.hpp`, `random.h`), so it is drawn again here from the model's own seed;
the leaf values made of it are held beside those in the file. A round of boosting that finds nothing to split draws a
bag, and leaves no tree: of few labels many do.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import numpy as np

from calirare._util.array_files import NumpyArray
from calirare.models import TREE_PSEUDO, TreesFit

BAG_BLOCK = 1024  # rows that share a generator
REPRODUCED = 1e-4  # error of leaf values up to which they are those of the file: LightGBM's gradients are float32
MULTIPLIER, INCREMENT, MASK = 214013, 2531011, 0xFFFFFFFF


@dataclass(frozen=True, eq=False)
class Leaves:
    """Trees of two classes as their labels and some other rows fall into them.

    Attributes:
        boosted: whether trees were grown one upon the other; else they are averaged.
        of_labels: leaf of each label in each tree, int64 [T, m].
        bags: labels each tree was grown on, bool [T, m].
        values: of each tree's leaves, as stored, T arrays.
        targets: 0 or 1, float64 [m].
        weights: of the labels' losses, of mean 1, float64 [m].
        pseudo: labels added to each class where the prior is taken.
        penalty: lambda of the leaf values.
        rate: learning rate; 1 of a forest.
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

    @classmethod
    def of(cls, fitted: TreesFit, columns: NumpyArray) -> Leaves:
        """Returns the leaves of trees that were grown on all labels.

        Args:
            fitted: the trees, of two classes.
            columns: of the labelled nodes, float32 [m, d].
        """
        ensemble = fitted.trees.all_labels
        booster, boosted = ensemble.boosters[0], ensemble.kind == "boosting"
        weights = fitted.sample_weights.double().cpu().numpy()
        n_trees, rounds = booster.num_trees(), fitted.trees.rounds
        draws = max(n_trees, rounds) if boosted else n_trees
        drawn = bags(columns.shape[0], draws, int(booster.params["bagging_seed"]), booster.params["bagging_fraction"])
        found = cls(
            boosted,
            leaves_of(fitted, columns),
            drawn[:n_trees],
            tuple(
                np.array(numbers.split(), dtype=np.float64)
                for numbers in re.findall(r"^leaf_value=(.*)$", ensemble.texts[0], re.MULTILINE)
            ),
            fitted.targets.double().cpu().numpy(),
            weights / weights.mean(),
            TREE_PSEUDO,
            float(booster.params["lambda_l2"]),
            float(booster.params["learning_rate"]) if boosted else 1.0,
        )
        return found if draws == n_trees else replace(found, bags=found._of_their_rounds(drawn))

    def _of_their_rounds(self, drawn: NumpyArray) -> NumpyArray:
        """Returns the bag of each tree, of those left the first that makes its leaf values.

        Where none does, the bags are of another version of LightGBM: then the first ones, one for each tree.
        """
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

    def prior(self, weights: NumpyArray) -> NumpyArray:
        """Returns the share of class 1 under weights [.., m], smoothed, [..]."""
        rare = weights @ self.targets + self.pseudo
        return rare / (weights.sum(-1) + 2 * self.pseudo)


def leaves_of(fitted: TreesFit, columns: NumpyArray) -> NumpyArray:
    """Returns the leaf of rows [n, d] in each tree, int64 [T, n]."""
    booster = fitted.trees.all_labels.boosters[0]
    found = np.asarray(booster.predict(columns, pred_leaf=True, num_threads=1))
    return found.reshape(columns.shape[0], -1).T.astype(np.int64)


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
