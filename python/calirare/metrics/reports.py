"""Dictionaries with every number a run writes down: of all classes, and of one rare class."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from calirare._util.arrays import Array
from calirare._util.errors import NotConvergedError
from calirare.metrics.binning import N_BINS
from calirare.metrics.calibration_errors import class_ace, classwise_ece, ece, macro_ace, mce
from calirare.metrics.detection import (
    Budget,
    auprc,
    check_budget,
    event_of,
    places_of,
    worth_of_rarer,
)
from calirare.metrics.event_calibration import (
    CalibrationLine,
    calibration_in_the_large,
    calibration_line,
    equal_mass_ece,
    equal_mass_noise_floor,
)
from calirare.metrics.inputs import (
    check_resampling,
    class_members,
    predicted_classes,
    read,
)
from calirare.metrics.proper_scores import brier, brier_decomposition, nll
from calirare.metrics.ranked import Ranked, Ranking, share_interval
from calirare.metrics.resampling import class_ace_noise_floor, macro_ace_noise_floor, noise_floor


def calibration_report(
    y_true: Array,
    p: Array,
    *,
    minority: int = 1,
    n_bins: int = N_BINS,
    n_draws: int = 200,
    seed: int = 0,
    weights: Array | None = None,
) -> dict[str, float]:
    """Prediction quality, and calibration errors with their expected values under perfect calibration.

    Args:
        y_true: int [n]; class `minority` must occur.
        p: [n, C] with rows that sum to one, or [n] = P(class 1).
        minority: the rare class: recall, precision and ace_minority are about it.
        n_bins: bins of ece, mce and classwise_ece.
        n_draws: draws for the values expected if calibrated (`noise_floor`).
        seed: seed of these draws; the same input and seed give the same numbers.
        weights: sample weights [n] >= 0, or None.

    Returns:
        Plain floats under the keys recall, precision, accuracy, macro_f1, ace_minority, ace_minority_noise_floor,
        macro_ace, macro_ace_noise_floor, ece, ece_noise_floor, mce, classwise_ece, nll, brier. ece and mce are about
        the confidence for [n, C], about P(class 1) for [n]. Computed on the CPU, so that the device does not change a
        digit of the sums.

    Raises:
        TypeError: dtype is wrong, or `y_true` and `p` are exchanged.
        ValueError: shape or range is wrong, or no sample has class `minority`.
    """
    name = "calibration_report"
    data = read(name, y_true, p, weights).on_cpu()
    class_members(name, data, minority, "minority")
    y, q, w = data.labels, data.probabilities, data.weights
    draws: dict[str, Any] = {"n_draws": n_draws, "seed": seed, "weights": w}
    values = _decisions(y.numpy(), predicted_classes(data).numpy(), minority, None if w is None else w.numpy()) | {
        "ace_minority": class_ace(y, q, minority, weights=w),
        "ace_minority_noise_floor": class_ace_noise_floor(y, q, minority, **draws).mean,
        "macro_ace": macro_ace(y, q, weights=w),
        "macro_ace_noise_floor": macro_ace_noise_floor(y, q, **draws).mean,
        "ece": ece(y, q, n_bins, weights=w),
        "ece_noise_floor": noise_floor(functools.partial(ece, n_bins=n_bins), q, **draws).mean,
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


Key = tuple[int | None, str]  # of a value: the place of its budget, or None of an area, and its name
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
        ValueError: shape or range is wrong, or no sample has the class.
    """
    name = "detection_report"
    check_resampling(name, n_draws, level)
    for budget in budgets:
        check_budget(name, budget)
    data = read(name, y_true, p, weights).on_cpu()
    event = event_of(name, data, cls, order=True)
    ranked = Ranked.of(*event)
    ranking, both = ranked.ranking(), not bool(event[0].all())
    places = [min(places_of(budget, ranking), ranking.total) for budget in budgets]  # all there is, if it is more
    values = _values(ranking, places, both)
    drawn = [_values(draw, places, both) for draw in ranked.resampled(n_draws, seed, stratify=stratify)]
    ends = _intervals(values, drawn, worth_of_rarer(event), places, ranking, level)
    areas: dict[str, Any] = {} if both else {"auroc": None}
    found = [{"budget": b, "nodes": at, "share": at / ranking.total} for b, at in zip(budgets, places, strict=True)]
    for (i, name), value in values.items():
        part = areas if i is None else found[i]
        part |= {name: value, f"{name}_lower": ends[i, name][0], f"{name}_upper": ends[i, name][1]}
    for part in found:
        part |= {f"lift{end}": part[f"precision{end}"] / ranking.prevalence for end in ("", "_lower", "_upper")}
    if data.n_classes > 2:
        areas["macro_auprc"] = float(auprc(data.labels, data.probabilities, weights=data.weights))
    return {
        "n": len(event[0]),
        "n_rare": int(event[0].sum()),
        "prevalence": ranking.prevalence,
        **areas,
        "budgets": found,
        "level": level,
        "draws": n_draws,
    }


def rare_report(
    y_true: Array,
    p: Array,
    *,
    cls: int = 1,
    n_bins: int = N_BINS,
    level: float = 0.95,
    n_draws: int = 200,
    seed: int = 0,
    weights: Array | None = None,
    groups: np.ndarray | None = None,
) -> dict[str, float | None]:
    """All measures of calibration of one class's probability.

    Args:
        y_true: int [n]; class `cls` must occur.
        p: [n, C] with rows that sum to one, or [n] = P(class 1).
        cls: the class, against the rest.
        n_bins: bins of equal numbers of `equal_mass_ece`, and of equal width of the Brier score's parts.
        level: of the interval of mean_p_over_share, in (0, 1).
        n_draws: draws for the value expected if calibrated (`noise_floor`).
        seed: seed of these draws; the same input and seed give the same numbers.
        weights: sample weights [n] >= 0, or None.
        groups: of samples that may have the class together, see `calibration_in_the_large`; or None.

    Returns:
        Plain numbers: n, n_rare; mean_p, observed_share and mean_p_over_share with _lower and _upper
        (`calibration_in_the_large`); ece with ece_noise_floor and ece_noise_floor_std (`equal_mass_ece`); slope
        and intercept (`calibration_line`, None where it is not defined: all of `p` equal, or it separates the class
        from the rest); log_loss, brier, and its brier_reliability, brier_resolution,
        brier_uncertainty and brier_within_bin.

    Raises:
        TypeError: dtype is wrong, or `y_true` and `p` are exchanged.
        ValueError: shape or range is wrong, or no sample has the class.
    """
    name = "rare_report"
    data = read(name, y_true, p, weights).on_cpu()
    happened, q, w = event_of(name, data, cls)
    y = happened.astype(np.int64)
    large = calibration_in_the_large(y, q, level=level, weights=w, groups=groups)
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
    """Slope and intercept, None where the likeliest line is not finite."""
    try:
        return calibration_line(y, p, weights=weights)._asdict()
    except (ValueError, NotConvergedError):  # the input is checked: what is left is that no line is the likeliest
        return dict.fromkeys(CalibrationLine._fields)


def _values(ranking: Ranking, places: list[float], both: bool) -> dict[Key, float]:
    """Returns the areas, and precision and recall where so much weight is looked at."""
    values: dict[Key, float] = {(None, "auprc"): ranking.auprc()}
    if both:
        values[None, "auroc"] = ranking.auroc()
    for i, at in enumerate(places):
        hits = ranking.hits(at)
        values[i, "precision"], values[i, "recall"] = hits / at, hits / float(ranking.found[-1])
    return values


def _intervals(
    values: dict[Key, float],
    drawn: list[dict[Key, float]],
    worth: float,
    places: list[float],
    ranking: Ranking,
    level: float,
) -> dict[Key, tuple[float, float]]:
    """Returns the ends of each value's interval."""
    ends: dict[Key, tuple[float, float]] = {}
    for (i, name), value in values.items():
        trials = max(places[i], 1.0) if i is not None and name == "precision" else worth
        draws = np.array([draw[i, name] for draw in drawn])
        ends[i, name] = share_interval(value, draws, level, worth, trials)
    for i, at in enumerate(places):
        positives = float(ranking.found[-1])
        sizes: dict[Key, float] = {(i, "precision"): at, (i, "recall"): positives}
        low = min(ends[key][0] * size for key, size in sizes.items())
        high = min(at, positives, max(ends[key][1] * size for key, size in sizes.items()))
        for key, size in sizes.items():
            ends[key] = (values[key], values[key]) if at == ranking.total else (low / size, high / size)
    return ends
