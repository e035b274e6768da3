"""Ensembles of trees in LightGBM's text form: boosted log-odds, and forests whose leaves are smoothed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np

from calirare._util.array_files import NumpyArray
from calirare.models.tree_texts import with_leaf_values

if TYPE_CHECKING:
    from lightgbm import Booster

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
