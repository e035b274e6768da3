"""How well a score finds a class: areas under curves, and what the highest scores hold.

With two classes the class is class 1 unless `cls` is given. With more classes and no `cls` a measure is the mean over
those that occur, each against the others. All are computed from one ranking, as their resamples are;
areas are scikit-learn's to rounding.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from calirare._util.arrays import Array
from calirare._util.errors import shown
from calirare.metrics.inputs import (
    Predictions,
    Scalar,
    class_members,
    present_classes,
    read,
)
from calirare.metrics.ranked import Ranked, Ranking, worth_of

# Which samples are positives, their scores and their weights (above zero) or None.
Event = tuple[np.ndarray, np.ndarray, np.ndarray | None]
Budget = int | float


def auprc(y_true: Array, p: Array, cls: int | None = None, *, weights: Array | None = None) -> Scalar:
    """Area under the curve of precision over recall, as average precision (scikit-learn's).

    AP = sum over the distinct scores, from the highest, of the gain in recall times the precision there. A random
    score has the prevalence: compare with that.

    Args:
        y_true: int [n].
        p: [n, C] with rows that sum to one, or [n] = P(class 1). Only their order counts.
        cls: the class, in 0..C-1; None: class 1 of two, else the mean over those that occur.
        weights: sample weights [n] >= 0, or None.

    Returns:
        In [0, 1]: a float for numpy input, a 0-dim tensor for torch input; not differentiable. Computed on the CPU.

    Raises:
        TypeError: dtype is wrong, or `y_true` and `p` are exchanged.
        ValueError: shape or range is wrong, or no sample has the class.

    Example:
        >>> round(auprc([1, 0, 1, 0], [0.9, 0.8, 0.7, 0.1]), 4)
        0.8333
    """
    return _mean_over_events("auprc", y_true, p, cls, weights, Ranking.auprc)


def auroc(y_true: Array, p: Array, cls: int | None = None, *, weights: Array | None = None) -> Scalar:
    """Area under the receiver operating characteristic (scikit-learn's).

    P(a sample of the class is ranked above another), ties counted half: a random score has .5, whatever the
    prevalence. For a rare class it stays high where most alerts are false: read `auprc` first.

    Takes, returns and raises what `auprc` does, and ValueError where every sample has the class.
    """
    return _mean_over_events("auroc", y_true, p, cls, weights, Ranking.auroc, negatives=True)


def precision_at(
    y_true: Array, p: Array, budget: Budget, cls: int | None = None, *, weights: Array | None = None
) -> Scalar:
    """Proportion of the class among the samples with the highest scores: how many alerts are right.

    Args:
        y_true: as for `auprc`.
        p: as for `auprc`.
        budget: how many samples are looked at: a whole number from 1 to n, or as a float a proportion in (0, 1].
            Samples of weight w count w times. Where the last place is shared by equal scores, the expected value of a
            random choice among them counts; so does the part of a sample that a proportion leaves.
        cls: as for `auprc`.
        weights: sample weights [n] >= 0, or None.

    Returns:
        In [0, 1], as `auprc`.

    Raises:
        TypeError: dtype is wrong, the budget is no number, or `y_true` and `p` are exchanged.
        ValueError: shape or range is wrong, or no sample has the class.

    Example:
        >>> precision_at([1, 0, 1, 0], [0.9, 0.5, 0.5, 0.1], 2)
        0.75
    """

    def precision(ranking: Ranking) -> float:
        places = _places("precision_at", ranking, budget)
        return ranking.hits(places) / places

    return _mean_over_events("precision_at", y_true, p, cls, weights, precision)


def recall_at(
    y_true: Array, p: Array, budget: Budget, cls: int | None = None, *, weights: Array | None = None
) -> Scalar:
    """Proportion of the class that is among the samples with the highest scores.

    Takes, returns and raises what `precision_at` does. A random score has the budget's proportion.
    """

    def recall(ranking: Ranking) -> float:
        return ranking.hits(_places("recall_at", ranking, budget)) / float(ranking.found[-1])

    return _mean_over_events("recall_at", y_true, p, cls, weights, recall)


def event_of(function: str, data: Predictions, cls: int, *, order: bool = False) -> Event:
    """Returns class `cls` against the others, of predictions on the CPU, without samples of weight 0.

    With `order` scores only have the order of the class's probabilities: 1 - p is 1 for every small p, -p is not.
    TypeError where `cls` is no integer, ValueError where there is no such class or no sample of it.
    """
    happened = class_members(function, data, cls).numpy()
    backwards = order and data.kind == "binary" and cls == 0
    scores = (-data.probabilities.detach() if backwards else data.class_probabilities()[:, cls]).numpy()
    if data.weights is None:
        return happened, scores, None
    weights = data.weights.numpy()
    kept = weights > 0
    return happened[kept], scores[kept], weights[kept]


def worth_of_rarer(event: Event) -> float:
    """Returns how many samples of equal weight the rarer side is worth; the positives where there are no others."""
    happened, _, weights = event
    sides = (happened, ~happened) if not happened.all() else (happened,)
    return min(worth_of(None if weights is None else weights[side], int(side.sum())) for side in sides)


def check_budget(function: str, budget: Budget) -> None:
    """Refuses what is neither a whole number >= 1 nor, as a float, a proportion in (0, 1]."""
    if isinstance(budget, bool) or not isinstance(budget, int | float | np.integer | np.floating):
        raise TypeError(f"{function}: budget must be a whole number or a proportion, got {shown(budget)}")
    if isinstance(budget, int | np.integer):
        if budget < 1:
            raise ValueError(f"{function}: budget must be at least 1 sample, got {budget}")
    elif not 0 < budget <= 1:
        raise ValueError(
            f"{function}: budget must be a proportion in (0, 1] where it is a float, got {budget}: a number of samples "
            "is an integer"
        )


def places_of(budget: Budget, ranking: Ranking) -> float:
    """Returns the weight that a checked budget looks at."""
    return float(budget) if isinstance(budget, int | np.integer) else float(budget) * ranking.total


def _places(function: str, ranking: Ranking, budget: Budget) -> float:
    check_budget(function, budget)
    places = places_of(budget, ranking)
    if places > ranking.total:
        raise ValueError(f"{function}: budget must be at most the {ranking.total:g} samples there are, got {budget}")
    return places


def _mean_over_events(
    function: str,
    y_true: Array,
    p: Array,
    cls: int | None,
    weights: Array | None,
    measure: Callable[[Ranking], float],
    negatives: bool = False,
) -> Scalar:
    """Returns the mean of a measure over the requested classes; of those that have negatives where these are needed."""
    data = read(function, y_true, p, weights)
    classes = [cls] if cls is not None else [1] if data.n_classes == 2 else present_classes(data)
    events = [event_of(function, data.on_cpu(), k, order=True) for k in classes]
    if negatives:
        events = [event for event in events if not event[0].all()]
        if not events:
            raise ValueError(f"{function}: y_true must also hold samples of another class, got none")
    values = [measure(Ranked.of(*event).ranking()) for event in events]
    return data.result(torch.tensor(np.mean(values), dtype=torch.float64))
