"""Dictionaries with every number a run writes down: all classes, several labels, and one rare class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from calirare._util.arrays import Array, check_count
from calirare._util.errors import NotConvergedError
from calirare.metrics.calibration_errors import class_ace, classwise_ece, ece, macro_ace, mce
from calirare.metrics.detection import Budget, Event, auprc, auroc, check_budget, event_of, places_of
from calirare.metrics.event_calibration import calibration_in_the_large, equal_mass_ece, equal_mass_noise_floor
from calirare.metrics.inputs import Predictions, class_members, predicted_classes, read, refuse_multilabel
from calirare.metrics.proper_scores import brier, brier_decomposition, nll
from calirare.metrics.ranked import Ranked, Ranking, share_interval, worth_of
from calirare.metrics.resampling import class_ace_noise_floor, macro_ace_noise_floor, noise_floor
from calirare.metrics.slope import calibration_line


def calibration_report(
    y_true: Array,
    p: Array,
    *,
    minority: int = 1,
    n_bins: int = 15,
    n_ace_bins: int = 20,
    n_draws: int = 200,
    seed: int = 0,
    weights: Array | None = None,
) -> dict[str, float]:
    """Prediction quality, calibration errors and their noise floors.

    Args:
        y_true: int [n]; class `minority` must occur.
        p: [n, C] with rows that sum to one, or [n] = P(class 1).
        minority: the rare class: recall, precision and ace_minority are about it.
        n_bins: bins of ece, mce and classwise_ece.
        n_ace_bins: bins of ace_minority and macro_ace.
        n_draws: draws of the noise floors.
        seed: seed of the noise floors; the same input and seed give the same numbers.
        weights: sample weights [n] >= 0, or None.

    Returns:
        Plain floats under the keys recall, precision, accuracy, macro_f1, ace_minority, ace_minority_noise_floor,
        macro_ace, macro_ace_noise_floor, ece, ece_noise_floor, mce, classwise_ece, nll, brier. Computed on the CPU, so
        that the device does not change a digit of the sums.

    Raises:
        TypeError: dtype is wrong, or `y_true` and `p` are exchanged.
        ValueError: shape or range is wrong, the task is multi-label, or no sample has class `minority`.
    """
    name = "calibration_report"
    data = refuse_multilabel(name, read(name, y_true, p, weights).on_cpu())
    class_members(name, data, minority, "minority")
    y, q, w = data.labels, data.probabilities, data.weights
    floors: dict[str, Any] = {"n_draws": n_draws, "seed": seed}
    values = _decisions(y.numpy(), predicted_classes(data).numpy(), minority, None if w is None else w.numpy()) | {
        "ace_minority": class_ace(y, q, minority, n_ace_bins, weights=w),
        "ace_minority_noise_floor": class_ace_noise_floor(y, q, minority, n_ace_bins, weights=w, **floors).mean,
        "macro_ace": macro_ace(y, q, n_ace_bins, weights=w),
        "macro_ace_noise_floor": macro_ace_noise_floor(y, q, n_ace_bins, weights=w, **floors).mean,
        "ece": ece(y, q, n_bins, weights=w),
        "ece_noise_floor": noise_floor(lambda drawn, q: ece(drawn, q, n_bins, weights=w), q, **floors).mean,
        "mce": mce(y, q, n_bins, weights=w),
        "classwise_ece": classwise_ece(y, q, n_bins, weights=w),
        "nll": nll(y, q, weights=w),
        "brier": brier(y, q, weights=w),
    }
    return {name: float(value) for name, value in values.items()}


def _decisions(y: np.ndarray, predicted: np.ndarray, minority: int, weights: np.ndarray | None) -> dict[str, Any]:
    """Returns recall and precision of the minority, accuracy and macro-F1 of the predicted classes."""
    from sklearn.metrics import accuracy_score, f1_score, precision_score, recall_score

    if weights is not None:  # a class of weight 0 alone is absent
        y, predicted, weights = (each[weights > 0] for each in (y, predicted, weights))
    given: dict[str, Any] = {"sample_weight": weights, "average": "macro", "zero_division": 0.0}
    return {
        "recall": recall_score(y, predicted, labels=[minority], **given),
        "precision": precision_score(y, predicted, labels=[minority], **given),
        "accuracy": accuracy_score(y, predicted, sample_weight=weights),
        "macro_f1": f1_score(y, predicted, **given),
    }


def marginal_report(
    y_true: Array, p: Array, *, n_bins: int = 15, n_draws: int = 200, seed: int = 0, weights: Array | None = None
) -> dict[str, float]:
    """Prediction quality and marginal calibration of a multi-label model.

    Args:
        y_true: [n, K] of 0 and 1.
        p: [n, K], each label's own.
        n_bins: bins of the calibration errors.
        n_draws: draws of the noise floor.
        seed: seed of the noise floor.
        weights: sample weights [n] >= 0, or None.

    Returns:
        Plain floats: hamming_loss, subset_accuracy, macro_ace, macro_ace_noise_floor, ece, mce, classwise_ece,
        classwise_ece_noise_floor, nll, brier. The calibration errors are means over labels.

    Raises:
        TypeError: dtype is wrong, or `y_true` and `p` are exchanged.
        ValueError: shape or range is wrong, or there is one label per sample.
    """
    name = "marginal_report"
    data = read(name, y_true, p, weights).on_cpu()
    if data.kind != "multilabel":
        raise ValueError(f"{name}: y_true must be [n, K] of 0 and 1, got shape {tuple(data.labels.shape)}")
    y, q, w = data.labels, data.probabilities, data.weights
    wrong = (q > 0.5) != y.bool()
    floors: dict[str, Any] = {"n_draws": n_draws, "seed": seed}
    floor = noise_floor(lambda drawn, q: classwise_ece(drawn, q, n_bins, weights=w), q, multilabel=True, **floors)
    values: dict[str, Any] = {
        "hamming_loss": data.mean(wrong.double()),
        "subset_accuracy": data.mean((~wrong.any(1)).double()),
        "macro_ace": macro_ace(y, q, weights=w),
        "macro_ace_noise_floor": macro_ace_noise_floor(y, q, weights=w, **floors).mean,
        "ece": ece(y, q, n_bins, weights=w),
        "mce": mce(y, q, n_bins, weights=w),
        "classwise_ece": classwise_ece(y, q, n_bins, weights=w),
        "classwise_ece_noise_floor": floor.mean,
        "nll": nll(y, q, weights=w),
        "brier": brier(y, q, weights=w),
    }
    return {key: float(value) for key, value in values.items()}


Key = tuple[Budget | None, str]  # of a share: the budget, or None of an area, and its name
BUDGETS: tuple[Budget, ...] = (0.01, 100)


def detection_report(
    y_true: Array,
    p: Array,
    *,
    cls: int = 1,
    budgets: Sequence[Budget] = BUDGETS,
    level: float = 0.95,
    n_draws: int = 1000,
    seed: int = 0,
    stratify: bool = True,
    weights: Array | None = None,
) -> dict[str, Any]:
    """How well the class is found by its probability: AUPRC, AUROC, and what fits into budgets, with intervals.

    The intervals have the spread of data sets drawn with replacement from samples that are sorted once, as Student's
    intervals of the log-odds, which hold for few of the class too (percentiles are too narrow there); lift's is
    precision's over the prevalence. They take the samples as independent.

    Args:
        y_true: int [n]; class `cls` must occur.
        p: [n, C] with rows that sum to one, or [n] = P(class 1).
        cls: the class, against the rest.
        budgets: each a number of samples (an integer; more than there are look at all) or a share (a float), as
            `precision_at` takes it.
        level: of the intervals, in (0, 1).
        n_draws: data sets drawn.
        seed: seed of the draws; the same input and seed give the same numbers.
        stratify: keep the numbers of the class and of the rest, and so the prevalence.
        weights: sample weights [n] >= 0, drawn along with their samples, or None.

    Returns:
        Plain numbers: n, n_rare, prevalence; auprc and auroc, each with _lower and _upper; macro_auprc, the mean over
        classes, where there are more than two; budgets, a list with budget, nodes (the samples it looks at), share
        (theirs of all), precision, recall and lift, each with _lower and _upper; level and draws. auroc is None where
        every sample has the class.

    Raises:
        TypeError: dtype is wrong, a budget is no number, or `y_true` and `p` are exchanged.
        ValueError: shape or range is wrong, the task is multi-label, or no sample has the class.
    """
    name = "detection_report"
    check_count(name, "n_draws", n_draws)
    if not 0 < level < 1:
        raise ValueError(f"{name}: level must lie in (0, 1), got {level}")
    for budget in budgets:
        check_budget(name, budget)
    data = refuse_multilabel(name, read(name, y_true, p, weights).on_cpu())
    event = event_of(name, data, cls, order=True)
    ranked = Ranked.of(*event)
    ranking, both = ranked.ranking(), not bool(event[0].all())
    shares = _shares(ranking, budgets, both) | _areas(data, cls, both)
    drawn = [_shares(draw, budgets, both) for draw in ranked.resampled(n_draws, seed, stratify=stratify)]
    told = _with_ends(shares, drawn, _worth(event, both), ranking, level)
    return {
        "n": len(event[0]),
        "n_rare": int(event[0].sum()),
        "prevalence": ranking.prevalence,
        **told[None],
        **({} if both else {"auroc": None}),
        **({} if data.n_classes == 2 else {"macro_auprc": _macro_auprc(data)}),
        "budgets": [_looked_at(budget, ranking) | told[budget] | _lift(told[budget], ranking) for budget in budgets],
        "level": level,
        "draws": n_draws,
    }


def rare_report(
    y_true: Array,
    p: Array,
    *,
    cls: int = 1,
    n_bins: int = 15,
    level: float = 0.95,
    n_draws: int = 200,
    seed: int = 0,
    weights: Array | None = None,
) -> dict[str, float | None]:
    """Is P(class) right: everything that is asked of one class's probability.

    Args:
        y_true: int [n]; class `cls` must occur.
        p: [n, C] with rows that sum to one, or [n] = P(class 1).
        cls: the class, against the rest.
        n_bins: bins of equal numbers of `equal_mass_ece`, and of equal width of the Brier score's parts.
        level: of the interval of mean_p_over_share, in (0, 1).
        n_draws: draws of the noise floor.
        seed: seed of the noise floor; the same input and seed give the same numbers.
        weights: sample weights [n] >= 0, or None.

    Returns:
        Plain numbers: n, n_rare; mean_p, observed_share and mean_p_over_share with _lower and _upper
        (`calibration_in_the_large`); ece with ece_noise_floor and ece_noise_floor_std (`equal_mass_ece`); slope,
        intercept and intercept_at_slope_1 (`calibration_line`, None where it is not defined: all of `p` equal, or it
        separates the class from the rest); log_loss, brier, and its brier_reliability, brier_resolution,
        brier_uncertainty and brier_within_bin.

    Raises:
        TypeError: dtype is wrong, or `y_true` and `p` are exchanged.
        ValueError: shape or range is wrong, the task is multi-label, or no sample has the class.
    """
    name = "rare_report"
    data = refuse_multilabel(name, read(name, y_true, p, weights).on_cpu())
    happened, q, w = event_of(name, data, cls)
    y = happened.astype(np.int64)
    large = calibration_in_the_large(y, q, level=level, weights=w)
    floor = equal_mass_noise_floor(q, n_bins, n_draws=n_draws, seed=seed, weights=w)
    parts = brier_decomposition(y, q, n_bins, weights=w)._asdict()
    values: dict[str, Any] = {
        "mean_p": large.mean_p,
        "observed_share": large.share,
        "mean_p_over_share": large.ratio,
        "mean_p_over_share_lower": large.lower,
        "mean_p_over_share_upper": large.upper,
        "ece": equal_mass_ece(y, q, n_bins, weights=w),
        "ece_noise_floor": floor.mean,
        "ece_noise_floor_std": floor.std,
        "log_loss": nll(y, q, weights=w),
        "brier": brier(y, q, weights=w),
        **{f"brier_{part}": value for part, value in parts.items()},
    }
    counts = {"n": len(y), "n_rare": int(y.sum())}
    return counts | _line(y, q, w) | {key: float(value) for key, value in values.items()}


def _line(y: np.ndarray, p: np.ndarray, weights: np.ndarray | None) -> dict[str, float | None]:
    """Slope and intercepts, None where the likeliest line is not finite."""
    names = ("slope", "intercept", "intercept_at_slope_1")
    try:
        line = calibration_line(y, p, weights=weights)
    except (ValueError, NotConvergedError):  # the input is checked: what is left is that no line is the likeliest
        return dict.fromkeys(names)
    return dict(zip(names, line, strict=True))


def _areas(data: Predictions, cls: int, both: bool) -> dict[Key, float]:
    """Returns the areas as scikit-learn computes them."""
    measures = {"auprc": auprc, "auroc": auroc} if both else {"auprc": auprc}
    given = (data.labels, data.probabilities, cls)
    return {(None, name): float(area(*given, weights=data.weights)) for name, area in measures.items()}


def _macro_auprc(data: Predictions) -> float:
    return float(auprc(data.labels, data.probabilities, weights=data.weights))


def _places(budget: Budget, ranking: Ranking) -> float:
    """Returns the weight a budget looks at: all there is, if it is more."""
    return min(places_of(budget, ranking), ranking.total)


def _looked_at(budget: Budget, ranking: Ranking) -> dict[str, float]:
    places = _places(budget, ranking)
    return {"budget": budget, "nodes": places, "share": places / ranking.total}


def _shares(ranking: Ranking, budgets: Sequence[Budget], both: bool) -> dict[Key, float]:
    """Returns the areas, under None, and what each budget holds."""
    shares: dict[Key, float] = {(None, "auprc"): ranking.auprc()}
    if both:
        shares[None, "auroc"] = ranking.auroc()
    for budget in budgets:
        places = _places(budget, ranking)
        hits = ranking.hits(places)
        shares[budget, "precision"], shares[budget, "recall"] = hits / places, hits / float(ranking.found[-1])
    return shares


def _worth(event: Event, both: bool) -> float:
    """Returns how many equal samples the rarer side is worth."""
    happened, _, weights = event
    sides = (happened, ~happened) if both else (happened,)
    return min(worth_of(None if weights is None else weights[side], int(side.sum())) for side in sides)


def _with_ends(
    shares: dict[Key, float], drawn: list[dict[Key, float]], worth: float, ranking: Ranking, level: float
) -> dict[Budget | None, dict[str, float]]:
    """Returns each budget's shares, and under None the areas, with the ends of their intervals."""
    ends: dict[Key, tuple[float, float]] = {}
    for (budget, name), value in shares.items():
        trials = worth if budget is None or name == "recall" else max(_places(budget, ranking), 1.0)
        draws = np.array([draw[budget, name] for draw in drawn])
        ends[budget, name] = share_interval(value, draws, level, worth, trials)
    for budget in {key[0] for key in shares if key[0] is not None}:
        ends |= _joined(budget, shares, ends, ranking)
    told: dict[Budget | None, dict[str, float]] = {}
    for (budget, name), value in shares.items():
        low, high = ends[budget, name]
        told.setdefault(budget, {}).update({name: value, f"{name}_lower": low, f"{name}_upper": high})
    return told


def _joined(
    budget: Budget, shares: dict[Key, float], ends: dict[Key, tuple[float, float]], ranking: Ranking
) -> dict[Key, tuple[float, float]]:
    """Returns the intervals of a budget's precision and recall, which both count its hits: of the hits the wider one.

    Where all alerts are hits, resamples hold as many, and recall would seem certain; and the other way round. Where the
    budget looks at all there is, both are.
    """
    places, positives = _places(budget, ranking), float(ranking.found[-1])
    sizes = {(budget, "precision"): places, (budget, "recall"): positives}
    if places == ranking.total:
        return {key: (shares[key], shares[key]) for key in sizes}
    low = min(ends[key][0] * size for key, size in sizes.items())
    high = min(places, positives, max(ends[key][1] * size for key, size in sizes.items()))
    return {key: (low / size, high / size) for key, size in sizes.items()}


def _lift(shares: dict[str, float], ranking: Ranking) -> dict[str, float]:
    """Returns the lift with its ends: precision's over the prevalence."""
    ends = ("", "_lower", "_upper")
    return {f"lift{end}": shares[f"precision{end}"] / ranking.prevalence for end in ends}
