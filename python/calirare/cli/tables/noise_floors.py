"""Noise floors of a table's binned errors: samples are put into bins once, and only what happened is drawn."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from calirare.metrics import BinStatistics, noise_floor
from calirare.metrics.binning import RankBins, adaptive_statistics, bin_sums, equal_width_bins
from calirare.metrics.inputs import read
from calirare.metrics.predictions import Predictions, confidence_and_correct, predicted_classes

ADAPTIVE_BINS = 20  # as `ace` takes by default
Error = Callable[[torch.Tensor], float]  # a measure as a function of the labels alone


@dataclass(frozen=True)
class _Filled:
    """Samples in their bins.

    Attributes:
        places: group and bin of each score as one number, int64 [n, G].
        fixed: number of samples, weight, weight x score, float64 [3, G, M].
        weights: float64 [n], or None.
    """

    places: torch.Tensor
    fixed: torch.Tensor
    weights: torch.Tensor | None

    def statistics(self, happened: torch.Tensor) -> BinStatistics:
        """Returns the sums with these outcomes, bool [n, G]."""
        weights = None if self.weights is None else self.weights[:, None].expand_as(self.places)[happened]
        size = self.fixed[0].numel()
        outcome = torch.bincount(self.places[happened], weights=weights, minlength=size).double()
        return BinStatistics(torch.cat((self.fixed, outcome.view(1, *self.fixed.shape[1:]))))


def table_noise_floors(
    names: list[str],
    probabilities: np.ndarray,
    n_bins: int,
    *,
    n_draws: int,
    seed: int,
    multilabel: bool,
    weights: np.ndarray | None,
) -> dict[str, float]:
    """Returns what each of `names`, among ece, mce, classwise_ece and ace, reads by chance.

    It is the mean that `noise_floor` gives for the same probabilities, draws, seed, kind of labels and weights, without
    binning anew for every draw. `n_bins` is for all but ace.
    """
    nobody = np.zeros(probabilities.shape if multilabel else len(probabilities), dtype=np.int64)
    data = read("table_noise_floors", nobody, probabilities, weights)
    measures = {
        "ece": lambda: _of_confidence(data, n_bins, 1),
        "mce": lambda: _of_confidence(data, n_bins, math.inf),
        "classwise_ece": lambda: _of_classes(data, n_bins),
        "ace": lambda: _adaptive(data, ADAPTIVE_BINS),
    }

    def floor(error: Error) -> float:
        def metric(labels: np.ndarray, _: np.ndarray) -> float:
            return error(torch.from_numpy(labels))

        return noise_floor(metric, probabilities, n_draws=n_draws, seed=seed, multilabel=multilabel).mean

    return {name: floor(measures[name]()) for name in names}


def _filled(scores: torch.Tensor, bins: torch.Tensor, n_bins: int, weights: torch.Tensor | None) -> _Filled:
    if scores.ndim == 1:
        scores, bins = scores[:, None], bins[:, None]
    fixed = bin_sums(bins, scores, torch.zeros_like(bins, dtype=torch.bool), n_bins, weights).sums[:3]
    return _Filled(bins + n_bins * torch.arange(bins.shape[1]), fixed, weights)


def _of_confidence(data: Predictions, n_bins: int, norm: float) -> Error:
    """Returns `ece` (norm 1) or `mce` (infinity) as a function of the labels."""
    scores, predicted = confidence_and_correct(data)[0], predicted_classes(data)
    filled = _filled(scores, equal_width_bins(scores, n_bins), n_bins, data.weights)

    def error(labels: torch.Tensor) -> float:
        right = (predicted == labels).view(filled.places.shape)
        return float(filled.statistics(right).error(norm).mean())

    return error


def _of_classes(data: Predictions, n_bins: int) -> Error:
    """Returns `classwise_ece` as a function of the labels."""
    scores = data.class_probabilities()
    filled = _filled(scores, equal_width_bins(scores, n_bins), n_bins, data.weights)
    return lambda labels: float(filled.statistics(_one_hot(data, labels)).error().mean())


def _adaptive(data: Predictions, n_bins: int) -> Error:
    """Returns `ace` as a function of the labels; samples of weight 0 are left out, as there."""
    kept = slice(None) if data.weights is None else data.weights > 0
    scores, weights = data.class_probabilities()[kept], None if data.weights is None else data.weights[kept]
    bins = RankBins.of(scores, n_bins)
    each = 1.0 if weights is None else weights[:, None]
    fixed = adaptive_statistics(scores, torch.zeros_like(scores), n_bins, weights).sums[:3]
    used = (fixed[1] > 0).sum(1)

    def error(labels: torch.Tensor) -> float:
        outcome = bins.sums(_one_hot(data, labels)[kept].double() * each)
        return float((BinStatistics(torch.cat((fixed, outcome[None]))).gap.sum(1) / used).mean())

    return error


def _one_hot(data: Predictions, labels: torch.Tensor) -> torch.Tensor:
    return labels.bool() if data.kind == "multilabel" else labels[:, None] == torch.arange(data.n_classes)
