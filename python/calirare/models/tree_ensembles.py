"""Ensembles of trees in LightGBM's text form: boosted log-odds, and forests whose leaves are smoothed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

import numpy as np

from calirare._util.array_files import NumpyArray

if TYPE_CHECKING:
    from lightgbm import Booster
    from sklearn.tree._tree import Tree


FOREST = """tree
version=v4
num_class=1
num_tree_per_iteration=1
label_index=0
max_feature_idx={last}
objective=regression
average_output
feature_names={names}
feature_infos={infos}
tree_sizes=

"""
TREE = """Tree={i}
num_leaves={n}
num_cat=0
split_feature={features}
split_gain={gains}
threshold={thresholds}
decision_type={decisions}
left_child={left}
right_child={right}
leaf_value={values}
leaf_weight={leaf_weights}
leaf_count={leaf_counts}
internal_value={internal}
internal_weight={weights}
internal_count={counts}
is_linear=0
shrinkage=1


"""
NONE = "none"  # what LightGBM writes of a column that is constant
END = "end of trees"


def tree_text(i: int, tree: Tree, number: NumpyArray, places: NumpyArray, values: NumpyArray) -> str:
    """Returns a tree of scikit-learn: a row goes left where its number is at most the threshold, in both.

    Args:
        i: number of the tree.
        tree: the tree.
        number: of each node that is a leaf, its number among the leaves, int64 [nodes].
        places: the column that each of the tree's columns is.
        values: of the leaves, float64.
    """
    leaf = tree.children_left < 0
    split, inner = np.flatnonzero(~leaf), np.cumsum(~leaf) - 1
    down = np.where(leaf, -1 - number, inner)  # LightGBM counts leaves as -1, -2, ..
    none = np.zeros(split.size, dtype=np.int64)
    weights, counts = tree.weighted_n_node_samples, tree.n_node_samples
    return TREE.format(
        i=i,
        n=values.size,
        features=_shown(places[tree.feature[split]]),
        gains=_shown(none),
        thresholds=joined_numbers(tree.threshold[split]),
        decisions=_shown(none),
        left=_shown(down[tree.children_left[split]]),
        right=_shown(down[tree.children_right[split]]),
        values=joined_numbers(values),
        leaf_weights=joined_numbers(weights[leaf]),
        leaf_counts=_shown(counts[leaf]),
        internal=_shown(none),
        weights=joined_numbers(weights[split]),
        counts=_shown(counts[split]),
    )


def forest_text(trees: Sequence[str], n_columns: int) -> str:
    """Returns the model of averaged trees, each as `tree_text` writes it."""
    names = " ".join(f"Column_{i}" for i in range(n_columns))
    head = FOREST.format(last=n_columns - 1, names=names, infos=" ".join([NONE] * n_columns))
    return _whole(head, trees, f"{END}\n\nparameters:\n[boosting: rf]\n\nend of parameters\n")


def joined_numbers(numbers: NumpyArray) -> str:
    """Returns numbers as LightGBM's text holds them, to the last bit."""
    return " ".join(map(repr, numbers.tolist()))


def _shown(numbers: NumpyArray) -> str:
    return " ".join(map(str, numbers.tolist()))


def widened(text: str, used: NumpyArray) -> str:
    """Returns the text of a model of all columns of which the others are constant.

    To read columns by the tens of thousands is most of what LightGBM does with them, whether they may be split or not.

    Args:
        text: of a model of the columns used.
        used: which columns these are, bool [d].
    """
    places = np.flatnonzero(used)
    head, trees, tail = _parted(text)
    trees = [
        re.sub(
            r"(?m)(?<=^split_feature=).*$", lambda line: " ".join(str(places[int(i)]) for i in line[0].split()), each
        )
        for each in trees
    ]
    infos = np.full(used.size, NONE, dtype=object)
    head = re.sub(r"(?m)^feature_infos=.*$", lambda line: _infos(line[0], infos, places), head)
    head = re.sub(r"(?m)^max_feature_idx=.*$", f"max_feature_idx={used.size - 1}", head)
    names = " ".join(f"Column_{i}" for i in range(used.size))
    head = re.sub(r"(?m)^feature_names=.*$", f"feature_names={names}", head)
    tail = re.sub(r"(?m)^Column_(\d+)=", lambda found: f"Column_{places[int(found[1])]}=", tail)
    return _whole(head, trees, tail)


def with_leaf_values(text: str, values: Sequence[NumpyArray]) -> str:
    """Returns the text of a model with other leaf values of each tree."""
    head, trees, tail = _parted(text)
    changed = (
        re.sub(r"(?m)^leaf_value=.*$", f"leaf_value={joined_numbers(own)}", each)
        for each, own in zip(trees, values, strict=True)
    )
    return _whole(head, list(changed), tail)


def _whole(head: str, trees: Sequence[str], tail: str) -> str:
    """Returns what `_parted` parts, with the sizes of the trees in the head."""
    sizes = " ".join(str(len(each)) for each in trees)
    return "".join([re.sub(r"(?m)^tree_sizes=.*$", f"tree_sizes={sizes}", head), *trees, tail])


def _parted(text: str) -> tuple[str, list[str], str]:
    """Returns what is before the trees, each of them, and what is after them."""
    end = text.index(END)
    starts = [found.start() for found in re.finditer(r"(?m)^Tree=", text[:end])] + [end]
    trees = [text[first:last] for first, last in pairwise(starts)]
    return text[: starts[0]], trees, text[end:]


def _infos(line: str, infos: NumpyArray, places: NumpyArray) -> str:
    name, _, own = line.partition("=")
    infos[places] = own.split(" ")
    return f"{name}={' '.join(infos)}"


Kind = Literal["boosting", "extra"]
BLOCK = 1 << 16  # rows of one call of LightGBM: bounds what it copies
PSEUDO = 1.0  # labels added to each class where shares are taken (Laplace): no share is 0 or 1
SHRINKAGE = 0.5  # labels of the prior in each leaf of a forest


@dataclass(frozen=True, eq=False)
class Ensemble:
    """Trees that give logits, as LightGBM's own text, which also makes their leaves and Shapley values.

    Boosting: z_c = log(prior_c) + sum of the trees of class c; for two classes z_1 is the log-odds and z_0 = 0.

    A forest: p_c = prior_c + mean over the trees of sum_i w_i (y_ic - prior_c) / (sum_i w_i + a), i over the labels in
    the leaf: the share of class c in the leaf, where the prior counts as a = `SHRINKAGE` more labels. Hence
    p_c >= a prior_c / (W + a), W the weight of all labels, and log p_c is finite; rounding is held to that bound.

    Attributes:
        kind: "boosting" or "extra".
        text: LightGBM's model; of a forest the leaf values in it are those of class 1.
        prior: shares of the classes, smoothed by `PSEUDO` labels each, float64 [k].
        weight: W, of a forest.
        threads: of prediction; the logits do not depend on it.
        values: of a forest the leaf values of all trees, one tree after the other, float64 [leaves, k]; else None.
    """

    kind: Kind
    text: str
    prior: NumpyArray
    weight: float
    threads: int = 1
    values: NumpyArray | None = None

    @cached_property
    def booster(self) -> Booster:
        """LightGBM's model, read from its text."""
        from lightgbm import Booster

        return Booster(model_str=self.text)

    @cached_property
    def firsts(self) -> NumpyArray:
        """Where each tree's leaves begin among those of all trees, and where they end, int64 [T + 1]."""
        sizes = re.findall(r"(?m)^num_leaves=(\d+)$", self.text)
        return np.cumsum([0, *map(int, sizes)])

    def leaves(self, columns: NumpyArray) -> NumpyArray:
        """Returns the leaf of each row [n, d] in each tree, counted within the tree, int64 [n, T]."""
        found = np.asarray(self.booster.predict(columns, pred_leaf=True, num_threads=self.threads))
        return found.reshape(columns.shape[0], -1).astype(np.int64)

    def leaf_values(self, c: int = 1) -> tuple[NumpyArray, ...]:
        """Returns the leaf values of each tree, those of class c of a forest, T arrays float64."""
        if self.values is None:
            every = re.findall(r"(?m)^leaf_value=(.*)$", self.text)
            return tuple(np.array(numbers.split(), dtype=np.float64) for numbers in every)
        return tuple(np.split(self.values[:, c], self.firsts[1:-1]))

    def booster_of(self, c: int) -> Booster:
        """Returns LightGBM's model with the leaf values of class c of a forest."""
        from lightgbm import Booster

        return Booster(model_str=with_leaf_values(self.text, self.leaf_values(c)))

    def logits(self, columns: NumpyArray) -> NumpyArray:
        """Returns the logits of rows [n, d], float64 [n, k]."""
        out = np.zeros((columns.shape[0], self.prior.size))
        for first in range(0, columns.shape[0], BLOCK):
            rows = columns[first : first + BLOCK]
            out[first : first + BLOCK] = self._boosted(rows) if self.values is None else self._averaged(rows)
        return out

    def _boosted(self, rows: NumpyArray) -> NumpyArray:
        raw = np.asarray(self.booster.predict(rows, raw_score=True, num_threads=self.threads), dtype=np.float64)
        start = np.log(self.prior)
        return start + raw if raw.ndim == 2 else _two_columns(start[1] - start[0] + raw)

    def _averaged(self, rows: NumpyArray) -> NumpyArray:
        assert self.values is not None
        two = self.prior.size == 2
        prior, values = (self.prior[1:], self.values[:, 1:]) if two else (self.prior, self.values)
        leaves, total = self.leaves(rows), np.zeros((rows.shape[0], prior.size))
        for first, own in zip(self.firsts, leaves.T, strict=False):
            total += values[first + own]
        least = SHRINKAGE / (self.weight + SHRINKAGE)
        share = np.clip(prior + total / leaves.shape[1], least * prior, 1 - least * (1 - prior))
        return _two_columns(np.log(share[:, 0]) - np.log1p(-share[:, 0])) if two else np.log(share)


def _two_columns(log_odds: NumpyArray) -> NumpyArray:
    """Returns the log-odds of class 1 [n] as the logits 0 and z [n, 2]."""
    return np.stack([np.zeros_like(log_odds), log_odds], 1)
