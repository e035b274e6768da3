"""All measures of a multi-label prediction: calibration by several estimators, and accuracy."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from calirare._util.arrays import Array, check_count
from calirare._util.keywords import known_keywords
from calirare.metrics.binning import bin_sums, equal_width_bins
from calirare.multilabel.estimator import canonical_calibration_error
from calirare.multilabel.families import CopulaOptions
from calirare.multilabel.inputs import as_matrix, read
from calirare.multilabel.kde import kde_calibration_error

Measure = Callable[[Tensor, Tensor], float]
SMALLEST_PROBABILITY = 1e-12
# Above so many rows the kernel estimators, or their noise floors, are left out.
KDE_ROWS, KDE_FLOOR_ROWS = 5_000, 1_000


@known_keywords
def marginal_ece(y_true: Array, p: Array, *, n_bins: int = 15) -> float:
    """Returns the expected calibration error of each label by itself, averaged over the labels.

    Per label sum_m |B_m|/n |mean y - mean f| over equal-width bins ((m-1)/M, m/M]. Label dependence plays no part.

    Args:
        y_true: labels y, [n, K], each 0 or 1.
        p: probabilities f, [n, K], in [0, 1].
        n_bins: M >= 1.

    Returns:
        In [0, 1].

    Raises:
        TypeError: they do not hold real numbers, or n_bins is no integer.
        ValueError: shapes or ranges are wrong.
    """
    hot, f = read("marginal_ece", y_true, p)
    check_count("marginal_ece", "n_bins", n_bins)
    return float(bin_sums(equal_width_bins(f, n_bins), f, hot, n_bins).error().mean())


@known_keywords
def accuracy_measures(y_true: Array, p: Array, *, threshold: float = 0.5) -> dict[str, float]:
    """Returns Hamming loss, subset accuracy, macro and micro F1, negative log-likelihood and Brier score.

    Args:
        y_true: labels y, [n, K], each 0 or 1.
        p: probabilities f, [n, K], in [0, 1].
        threshold: a label is predicted where its score is above it.

    Returns:
        "hamming_loss" (share of wrong label decisions), "subset_accuracy" (share of rows without a wrong one),
        "macro_f1" (mean over labels; a label neither present nor predicted counts 0), "micro_f1", "nll" and "brier"
        (means over rows and labels).

    Raises:
        TypeError: they do not hold real numbers.
        ValueError: shapes or ranges are wrong.
    """
    hot, f = read("accuracy_measures", y_true, p)
    predicted = f > threshold
    wrong = predicted != hot
    hits, either = (predicted & hot).sum(0).double(), predicted.sum(0) + hot.sum(0)
    f = f.double()
    chance = torch.where(hot, f, 1 - f).clamp_min(SMALLEST_PROBABILITY)
    return {
        "hamming_loss": float(wrong.double().mean()),
        "subset_accuracy": float((~wrong.any(1)).double().mean()),
        "macro_f1": float((2 * hits / either.clamp_min(1)).mean()),
        "micro_f1": float(2 * hits.sum() / either.sum().clamp_min(1)),
        "nll": float(-chance.log().mean()),
        "brier": float((f - hot.double()).square().mean()),
    }


def calibration_measures(n_rows: int, *, norm: float = 1, max_kde_rows: int = KDE_ROWS) -> dict[str, Measure]:
    """Returns the calibration errors of a report, each a function of y_true and p, all per label.

    Args:
        n_rows: rows they will be asked for.
        norm: order of the norm of the canonical errors.
        max_kde_rows: above, the kernel estimators, which are quadratic in the rows, are left out.

    Returns:
        "copula" (the document's), "copula_threshold" (its repaired form), "marginal_ece", and with product Beta kernels
        "kde", "kde_residual" and "kde_marginal".
    """
    threshold = CopulaOptions(label_model="threshold")
    measures: dict[str, Measure] = {
        "copula": lambda y, f: canonical_calibration_error(y, f, norm=norm).mean,
        "copula_threshold": lambda y, f: canonical_calibration_error(y, f, norm=norm, options=threshold).mean,
        "marginal_ece": marginal_ece,
    }
    if n_rows <= max_kde_rows:
        residual = partial(kde_calibration_error, norm=norm, target="residuals", bandwidth="regression")
        measures |= {
            "kde": lambda y, f: kde_calibration_error(y, f, norm=norm).mean,
            "kde_residual": lambda y, f: residual(y, f, mode="canonical").mean,
            "kde_marginal": lambda y, f: residual(y, f, mode="marginal").mean,
        }
    return measures


@known_keywords
def noise_floor(measure: Measure, p: Array, *, repeats: int = 20, seed: int = 0) -> tuple[float, float]:
    """Returns what a calibration error reads for a model that is perfectly calibrated.

    Labels are drawn as Bernoulli(f), each by itself: then E[y | f] = f and the true error is 0, and what remains is
    noise and bias of the measure at this number of rows.

    Args:
        measure: a function of y_true and p.
        p: probabilities f, [n, K], in [0, 1].
        repeats: draws, >= 2.
        seed: of the draws.

    Returns:
        Mean and standard deviation over the draws.

    Raises:
        TypeError: they do not hold real numbers, or repeats is no integer.
        ValueError: fewer than two draws, or bad probabilities.
    """
    check_count("noise_floor", "repeats", repeats, least=2)
    f = as_matrix("noise_floor", "p", p)
    _, f = read("noise_floor", torch.zeros_like(f, dtype=torch.bool), f)
    f = f.cpu().double()
    random = torch.Generator().manual_seed(seed)
    draws = [measure(torch.rand(f.shape, generator=random, dtype=f.dtype) < f, f) for _ in range(repeats)]
    values = torch.tensor(draws, dtype=torch.float64)
    return float(values.mean()), float(values.std())


@known_keywords
def multilabel_report(
    y_true: Array, p: Array, *, norm: float = 1, floors: int = 0, seed: int = 0, max_kde_rows: int = KDE_ROWS
) -> dict[str, float]:
    """Returns every measure of this module for one set of predictions, by name.

    Args:
        y_true: labels y, [n, K], each 0 or 1.
        p: probabilities f, [n, K], in [0, 1].
        norm: order of the norm of the canonical errors.
        floors: draws for the noise floor of each calibration error, "<measure>_floor"; 0 leaves them out, and above
            `KDE_FLOOR_ROWS` rows those of the kernel estimators are left out.
        seed: of those draws.
        max_kde_rows: above, the kernel estimators are left out.

    Raises:
        TypeError: they do not hold real numbers.
        ValueError: shapes or ranges are wrong.
    """
    hot, f = read("multilabel_report", y_true, p)
    report = {}
    for name, measure in calibration_measures(len(f), norm=norm, max_kde_rows=max_kde_rows).items():
        report[name] = measure(hot, f)
        if floors and (len(f) <= KDE_FLOOR_ROWS or not name.startswith("kde")):
            report[f"{name}_floor"], _ = noise_floor(measure, f, repeats=floors, seed=seed)
    return report | accuracy_measures(hot, f)
