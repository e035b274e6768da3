"""How well a score finds a class: areas under curves, the curve itself, and what the highest scores hold.

With two classes the class is class 1 unless `cls` is given. With more classes, or labels, and no `cls` a measure is
the mean over those that occur, each against the others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch

from calirare._util.arrays import Array, check_count
from calirare._util.errors import shown
from calirare.metrics.inputs import (
    Predictions,
    Scalar,
    class_members,
    class_task,
    present_classes,
    read,
    refuse_multilabel,
    single_label_tasks,
)
from calirare.metrics.ranked import Ranked, Ranking, expanded_tails, worth_of

# Which samples are positives, their scores and their weights (above zero) or None.
Event = tuple[np.ndarray, np.ndarray, np.ndarray | None]
Budget = int | float


def auprc(y_true: Array, p: Array, cls: int | None = None, *, weights: Array | None = None) -> Scalar:
    """Area under the curve of precision over recall, as average precision (scikit-learn's).

    AP = sum over the distinct scores, from the highest, of the gain in recall times the precision there. A score that
    knows nothing reads the prevalence: read it beside that.

    Args:
        y_true: int [n], or [n, K] of 0 and 1 for multi-label.
        p: [n, C] with rows that sum to one, or [n] = P(class 1), or [n, K] of labels. Only their order counts.
        cls: the class, in 0..C-1, or the label, in 0..K-1; None: class 1 of two, else the mean over those that occur.
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

    def of_event(event: Event) -> float:
        from sklearn.metrics import average_precision_score

        return float(average_precision_score(event[0], event[1], sample_weight=event[2]))

    return _mean_over_events("auprc", y_true, p, cls, weights, of_event)


def auroc(y_true: Array, p: Array, cls: int | None = None, *, weights: Array | None = None) -> Scalar:
    """Area under the receiver operating characteristic (scikit-learn's).

    P(a sample of the class is ranked above one of the rest), ties counted half: .5 knows nothing, whatever the
    prevalence. Of a rare class it stays high where most alerts are false: read `auprc` first.

    Takes, returns and raises what `auprc` does, and ValueError where every sample has the class.
    """

    def of_event(event: Event) -> float:
        from sklearn.metrics import roc_auc_score

        return float(roc_auc_score(event[0], event[1], sample_weight=event[2]))

    return _mean_over_events("auroc", y_true, p, cls, weights, of_event, rest=True)


def precision_at(
    y_true: Array, p: Array, budget: Budget, cls: int | None = None, *, weights: Array | None = None
) -> Scalar:
    """Share of the class among the samples with the highest scores: how many alerts are hits.

    Args:
        y_true: as for `auprc`.
        p: as for `auprc`.
        budget: how many samples are looked at: a whole number from 1 to n, or as a float a share in (0, 1]. Samples of
            weight w count w times, for a number and for a share. Where the last place is shared by equal scores,
            what is expected of a random choice among them counts; so does the part of a sample that a share leaves.
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

    def of_event(event: Event) -> float:
        ranking, places = _places("precision_at", event, budget)
        return ranking.hits(places) / places

    return _mean_over_events("precision_at", y_true, p, cls, weights, of_event)


def recall_at(
    y_true: Array, p: Array, budget: Budget, cls: int | None = None, *, weights: Array | None = None
) -> Scalar:
    """Share of the class that is among the samples with the highest scores.

    Takes, returns and raises what `precision_at` does. A score that knows nothing reads the budget's share.
    """

    def of_event(event: Event) -> float:
        ranking, places = _places("recall_at", event, budget)
        return ranking.hits(places) / float(ranking.positive.sum())

    return _mean_over_events("recall_at", y_true, p, cls, weights, of_event)


def lift_at(y_true: Array, p: Array, budget: Budget, cls: int | None = None, *, weights: Array | None = None) -> Scalar:
    """How many times as many hits the highest scores hold as a random choice: precision over prevalence.

    Takes and raises what `precision_at` does. Returns a number >= 0; 1 knows nothing.
    """

    def of_event(event: Event) -> float:
        ranking, places = _places("lift_at", event, budget)
        return ranking.hits(places) / places / ranking.prevalence

    return _mean_over_events("lift_at", y_true, p, cls, weights, of_event)


def event_of(function: str, data: Predictions, cls: int, *, order: bool = False) -> Event:
    """Returns class `cls` against the rest, or label `cls`, of predictions on the CPU, without samples of weight 0.

    With `order` scores are in the order of the class's probabilities alone: 1 - p is 1 for every small p, -p is not.
    TypeError where `cls` is no integer, ValueError where there is no such class or no sample of it.
    """
    task, cls = class_task(function, data, cls)
    happened = class_members(function, task, cls).numpy()
    backwards = order and task.kind == "binary" and cls == 0
    scores = (-task.probabilities.detach() if backwards else task.class_probabilities()[:, cls]).numpy()
    if task.weights is None:
        return happened, scores, None
    weights = task.weights.numpy()
    kept = weights > 0
    return happened[kept], scores[kept], weights[kept]


def check_budget(function: str, budget: Budget) -> None:
    """Refuses what is neither a whole number >= 1 nor, as a float, a share in (0, 1]."""
    if isinstance(budget, bool) or not isinstance(budget, int | float | np.integer | np.floating):
        raise TypeError(f"{function}: budget must be a whole number or a share, got {shown(budget)}")
    if isinstance(budget, int | np.integer):
        if budget < 1:
            raise ValueError(f"{function}: budget must be at least 1 sample, got {budget}")
    elif not 0 < budget <= 1:
        raise ValueError(
            f"{function}: budget must be a share in (0, 1] where it is a float, got {budget}: a number of samples is "
            "an integer"
        )


def places_of(budget: Budget, ranking: Ranking) -> float:
    """Returns the weight that a checked budget looks at."""
    return float(budget) if isinstance(budget, int | np.integer) else float(budget) * ranking.total


def _places(function: str, event: Event, budget: Budget) -> tuple[Ranking, float]:
    check_budget(function, budget)
    ranking = Ranked.of(*event).ranking()
    places = places_of(budget, ranking)
    if places > ranking.total:
        raise ValueError(f"{function}: budget must be at most the {ranking.total:g} samples there are, got {budget}")
    return ranking, places


def _mean_over_events(
    function: str,
    y_true: Array,
    p: Array,
    cls: int | None,
    weights: Array | None,
    measure: Callable[[Event], float],
    rest: bool = False,
) -> Scalar:
    """Mean of a measure over the classes that are asked for; `rest`: each must have samples that are not of it."""
    data = read(function, y_true, p, weights)
    events = _events(function, data.on_cpu(), cls)
    if rest:
        events = [event for event in events if not event[0].all()]
        if not events:
            raise ValueError(f"{function}: y_true must also hold samples of another class, got none")
    return data.result(torch.tensor(np.mean([measure(event) for event in events]), dtype=torch.float64))


def _events(function: str, data: Predictions, cls: int | None) -> list[Event]:
    if cls is not None:
        return [event_of(function, data, cls, order=True)]
    if data.kind == "multilabel":
        tasks = single_label_tasks(data)
        there = [k for k, task in enumerate(tasks) if 1 in present_classes(task)]
        if not there:
            raise ValueError(f"{function}: y_true must hold a 1, got zeros only")
        return [event_of(function, data, k, order=True) for k in there]
    if data.n_classes == 2:
        return [event_of(function, data, 1, order=True)]
    return [event_of(function, data, k, order=True) for k in present_classes(data)]


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
