"""The curve of precision over recall, with its bootstrap band."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from calirare._util.arrays import Array, check_count
from calirare._util.keywords import known_keywords
from calirare.metrics.detection import Event, event_of
from calirare.metrics.detection_intervals import expanded_tails, worth_of
from calirare.metrics.inputs import read
from calirare.metrics.predictions import refuse_multilabel
from calirare.metrics.ranked import Ranked, Ranking

GRID = 101  # recalls at which the band is drawn


class PrecisionRecall(NamedTuple):
    """Precision over recall.

    Attributes:
        recall: after each distinct score, from the highest down, float64 [m], ascending.
        precision: among the samples of at least that score, [m].
        threshold: the score, [m].
        band_recall: where the band is known, [101] from 0 to 1.
        band_lower: lower end of the precision at that recall, [101].
        band_upper: upper end, [101].
        prevalence: what a score that knows nothing reads everywhere.
    """

    recall: np.ndarray
    precision: np.ndarray
    threshold: np.ndarray
    band_recall: np.ndarray
    band_lower: np.ndarray
    band_upper: np.ndarray
    prevalence: float


@known_keywords
def precision_recall_curve(
    y_true: Array,
    p: Array,
    *,
    cls: int = 1,
    level: float = 0.95,
    n_draws: int = 200,
    seed: int = 0,
    weights: Array | None = None,
) -> PrecisionRecall:
    """Precision over recall of one class (scikit-learn's), and the band that resampling gives the precision.

    Args:
        y_true: int [n]; class `cls` must occur.
        p: [n, C] with rows that sum to one, or [n] = P(class 1).
        cls: the class, against the rest.
        level: of the band, at each recall on its own, in (0, 1).
        n_draws: data sets drawn, with as many of the class and of the rest as there are.
        seed: seed of the draws.
        weights: sample weights [n] >= 0, or None.

    Returns:
        Curve and band, as numpy arrays.

    Raises:
        TypeError: dtype is wrong, or `y_true` and `p` are exchanged.
        ValueError: shape or range is wrong, the task is multi-label, or no sample has the class.
    """
    from sklearn.metrics import precision_recall_curve as of_scores

    name = "precision_recall_curve"
    check_count(name, "n_draws", n_draws)
    if not 0 < level < 1:
        raise ValueError(f"{name}: level must lie in (0, 1), got {level}")
    event = event_of(name, refuse_multilabel(name, read(name, y_true, p, weights).on_cpu()), cls)
    precision, recall, threshold = of_scores(event[0], event[1], sample_weight=event[2])
    ranked, grid = Ranked.of(*event), np.linspace(0, 1, GRID)
    drawn = np.array([_precision_at_recall(r, grid) for r in ranked.resampled(n_draws, seed, stratify=True)])
    lower, upper = np.quantile(drawn, expanded_tails(level, _worth(event)), axis=0)
    ends = (grid, lower, upper, ranked.ranking().prevalence)
    # scikit-learn's go up with the threshold and end in a point at recall 0 that belongs to no score.
    return PrecisionRecall(recall[-2::-1], precision[-2::-1], threshold[::-1].astype(np.float64), *ends)


def _precision_at_recall(ranking: Ranking, recall: np.ndarray) -> np.ndarray:
    """Returns the precision where each recall is first reached."""
    reached, precision = ranking.curve()
    return precision[np.searchsorted(reached, np.minimum(recall, reached[-1]))]


def _worth(event: Event) -> float:
    """Returns how many equal samples the class's are worth."""
    happened, _, weights = event
    return worth_of(None if weights is None else weights[happened], int(happened.sum()))
