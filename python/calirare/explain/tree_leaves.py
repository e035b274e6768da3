"""Which labels each leaf of trees was made of, so that its value can be made again without some of them.

A tree of a forest sees all labels. A boosted tree sees a random part, its bag, which no model file holds. LightGBM
draws it by a linear congruential generator for each block of 1,024 rows (`bagging.hpp`, `random.h`), so it is drawn
again here from the model's own seed; the leaf values made of it are compared with those in the file. A round of
boosting that finds nothing to split draws a bag, and leaves no tree: of few labels many do.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
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
        values: of each tree's leaves, as stored, T arrays; of boosting with k > 2 classes each round has k trees, one
            after the other.
        classes: of the labels, int64 [m].
        weights: of the labels' losses, of mean 1, float64 [m].
        pseudo: labels added to each class where the prior is taken.
        penalty: lambda of the leaf values.
        rate: learning rate; 1 of a forest.
        n_classes: k.
        of: the class whose trees these are; of boosting with k > 2 classes they are of all.
    """

    boosted: bool
    of_labels: NumpyArray
    bags: NumpyArray
    values: tuple[NumpyArray, ...]
    classes: NumpyArray
    weights: NumpyArray
    pseudo: float
    penalty: float
    rate: float
    n_classes: int = 2
    of: int = 1

    @classmethod
    def from_trees(cls, fitted: TreesFit, columns: NumpyArray, of: int = 1) -> Leaves:
        """Returns the leaves of trees that were grown on all labels.

        Args:
            fitted: the trees.
            columns: of the labelled nodes, float32 [m, d].
            of: of a forest the class whose trees are meant.
        """
        ensemble, weights = fitted.trees.all_labels, fitted.sample_weights.double().cpu().numpy()
        boosted, at = ensemble.kind == "boosting", leaves_of(fitted, columns)
        found = cls(
            boosted,
            at,
            np.ones((len(at), columns.shape[0]), dtype=bool),
            ensemble.leaf_values(of),
            fitted.targets.cpu().numpy(),
            weights / weights.mean(),
            TREE_PSEUDO,
            parameter(ensemble.text, "lambda_l2") if boosted else TREE_SHRINKAGE,
            parameter(ensemble.text, "learning_rate") if boosted else 1.0,
            fitted.n_classes,
            of,
        )
        if not boosted:
            return found
        rounds = len(at) // found.per_round
        seed, fraction = int(parameter(ensemble.text, "bagging_seed")), parameter(ensemble.text, "bagging_fraction")
        drawn = bags(columns.shape[0], max(rounds, fitted.trees.rounds), seed, fraction)
        taken = drawn if len(drawn) == rounds else found._of_their_rounds(drawn)
        return replace(found, bags=np.repeat(taken, found.per_round, 0))

    def _of_their_rounds(self, drawn: NumpyArray) -> NumpyArray:
        """Returns the bag of each round, of those left the first that makes its trees' leaf values."""
        q, n_rounds = self.per_round, self.n_trees // self.per_round
        scores, taken = np.repeat(self.start(self.totals)[None], self.weights.size, 0), [-1]
        for t in range(n_rounds):
            terms, trees = self.terms(scores), range(t * q, (t + 1) * q)
            split = [i for i in trees if self.values[i].size > 1]  # a tree without a split is of the first round
            left = range(taken[-1] + 1, len(drawn) - n_rounds + t + 1)
            found = next((r for r in left if self._makes(split, drawn[r], terms)), None)
            if found is None:
                return drawn[:n_rounds]
            taken.append(found)
            for c, i in enumerate(trees):
                scores[:, c] += self.values[i][self.of_labels[i]]
        return drawn[taken[1:]]

    def _makes(self, trees: list[int], bag: NumpyArray, terms: Terms) -> bool:
        """Returns whether a bag of labels makes the leaf values of trees of a round, of terms [m, q]."""
        for i in trees:
            c, places, size = i % self.per_round, self.of_labels[i][bag], self.values[i].size
            sums = [np.bincount(places, self.weights[bag] * part[bag, c], size) for part in terms]
            made = -self.rate * sums[0] / (sums[1] + self.penalty)
            if np.abs(made - self.values[i]).max() > REPRODUCED:
                return False
        return True

    def terms(self, scores: NumpyArray, classes: NumpyArray | None = None) -> Terms:
        """Returns gradient and curvature of labels' losses by their scores [.., m, q], as LightGBM takes them.

        Args:
            scores: of the labels by the trees so far; of two classes the log-odds.
            classes: of other labels, int64 [m]; None: of these.
        """
        classes = self.classes if classes is None else classes
        if self.per_round == 1:
            p = 1 / (1 + np.exp(-scores))
            return p - (classes == self.of)[:, None], p * (1 - p)
        p = np.exp(scores - scores.max(-1, keepdims=True))
        p /= p.sum(-1, keepdims=True)
        return p - np.eye(self.n_classes)[classes], self.n_classes / (self.n_classes - 1) * p * (1 - p)

    def start(self, totals: NumpyArray) -> NumpyArray:
        """Returns the scores that the first trees start from where the classes weigh this much [.., k], [.., q]."""
        if self.per_round == 1:
            prior = self.prior(totals)[..., None]
            return np.asarray(np.log(prior) - np.log1p(-prior))
        smoothed = totals + self.pseudo
        return np.asarray(np.log(smoothed / smoothed.sum(-1, keepdims=True)))

    @property
    def targets(self) -> NumpyArray:
        """1 of the labels of the trees' own class, else 0, float64 [m]."""
        return (self.classes == self.of).astype(np.float64)

    @property
    def per_round(self) -> int:
        """Trees of a round and scores of a node, q: 1 of a forest or of two classes, else k."""
        return self.n_classes if self.boosted and self.n_classes > 2 else 1

    @property
    def n_trees(self) -> int:
        """T."""
        return len(self.values)

    @property
    def totals(self) -> NumpyArray:
        """Weight of all labels of each class, [k]."""
        return np.bincount(self.classes, self.weights, self.n_classes)

    def totals_without(self, sets: Sequence[NumpyArray]) -> NumpyArray:
        """Returns the same without each set of labels (places, int64), [s, k]."""
        left = np.concatenate([np.zeros(0, dtype=np.int64), *sets])
        places = np.repeat(np.arange(len(sets)), list(map(len, sets))) * self.n_classes + self.classes[left]
        lost = np.bincount(places, self.weights[left], len(sets) * self.n_classes)
        return np.asarray(self.totals - lost.reshape(-1, self.n_classes))

    def prior(self, totals: NumpyArray) -> NumpyArray:
        """Returns the smoothed proportion of the trees' own class where the classes weigh this much [.., k], [..]."""
        return np.asarray((totals[..., self.of] + self.pseudo) / (totals.sum(-1) + self.n_classes * self.pseudo))


def parameter(text: str, name: str) -> float:
    """Returns a parameter of a model's text; LightGBM before 4.7 keeps none in a booster made of text."""
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
    powers = np.cumprod(np.full(count, MULTIPLIER, dtype=np.uint32), dtype=np.uint32)  # modulo 2^32, as all of it
    sums = np.cumsum(np.append(np.uint32(1), powers[:-1]), dtype=np.uint32)
    states = powers * np.uint32(seed & MASK) + np.uint32(INCREMENT) * sums
    return ((states >> 16) & 0x7FFF) / 32768.0
