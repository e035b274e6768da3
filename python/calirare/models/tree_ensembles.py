"""Ensembles of trees grown by LightGBM: boosted log-odds, and forests of randomised trees with smoothed leaves."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np

from calirare._util.array_files import NumpyArray

if TYPE_CHECKING:
    from lightgbm import Booster

Kind = Literal["boosting", "extra"]
BLOCK = 1 << 16  # rows of one call of LightGBM: bounds what it copies
PSEUDO = 1.0  # labels added to each class where shares are taken (Laplace): no share is 0 or 1
SHRINKAGE = 0.5  # labels of the prior in each leaf of a forest


@dataclass(frozen=True, eq=False)
class Ensemble:
    """Trees that give logits, as LightGBM's own text.

    Boosting: z_c = log(prior_c) + sum of the trees of class c; for two classes z_1 is the log-odds and z_0 = 0.

    A forest: p_c = prior_c + mean over the trees of sum_i w_i (y_ic - prior_c) / (sum_i w_i + a), i over the labels in
    the leaf: the share of class c in the leaf, where the prior counts as a = `SHRINKAGE` more labels. Hence
    p_c >= a prior_c / (W + a), W the weight of all labels, and log p_c is finite; rounding is held to that bound.

    Attributes:
        kind: "boosting" or "extra".
        texts: LightGBM's models: one, or of a forest with more than two classes one per class.
        prior: shares of the classes, smoothed by `PSEUDO` labels each, float64 [k].
        weight: W, of a forest.
        threads: of prediction; the logits do not depend on it.
    """

    kind: Kind
    texts: tuple[str, ...]
    prior: NumpyArray
    weight: float
    threads: int = 1

    @cached_property
    def boosters(self) -> tuple[Booster, ...]:
        """LightGBM's models, read from their texts."""
        from lightgbm import Booster

        return tuple(Booster(model_str=text) for text in self.texts)

    @property
    def n_columns(self) -> int:
        """Columns the trees were grown on."""
        return self.boosters[0].num_feature()

    def logits(self, columns: NumpyArray) -> NumpyArray:
        """Returns the logits of rows [n, d], float64 [n, k]."""
        out = np.zeros((columns.shape[0], self.prior.size))
        for first in range(0, columns.shape[0], BLOCK):
            rows = columns[first : first + BLOCK]
            out[first : first + BLOCK] = self._boosted(rows) if self.kind == "boosting" else self._voted(rows)
        return out

    def _output(self, booster: Booster, rows: NumpyArray, raw: bool) -> NumpyArray:
        """Returns the sum of the trees (raw), or of a forest their mean, which LightGBM does not call raw."""
        return np.asarray(booster.predict(rows, raw_score=raw, num_threads=self.threads), dtype=np.float64)

    def _boosted(self, rows: NumpyArray) -> NumpyArray:
        start, raw = np.log(self.prior), self._output(self.boosters[0], rows, True)
        return start + raw if raw.ndim == 2 else _two_columns(start[1] - start[0] + raw)

    def _voted(self, rows: NumpyArray) -> NumpyArray:
        prior = self.prior if len(self.texts) > 1 else self.prior[1:]
        mean = np.stack([self._output(booster, rows, False) for booster in self.boosters], 1)
        least = SHRINKAGE / (self.weight + SHRINKAGE)
        share = np.clip(prior + mean, least * prior, 1 - least * (1 - prior))
        return np.log(share) if len(self.texts) > 1 else _two_columns(np.log(share[:, 0]) - np.log1p(-share[:, 0]))


def _two_columns(log_odds: NumpyArray) -> NumpyArray:
    """Returns the log-odds of class 1 [n] as the logits 0 and z [n, 2]."""
    return np.stack([np.zeros_like(log_odds), log_odds], 1)
