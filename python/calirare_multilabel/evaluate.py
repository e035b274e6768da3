"""All measures of a multi-label prediction: calibration by several estimators, kernels among them, and accuracy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Literal, get_args

import torch
from torch import Tensor

from calirare._util.arrays import Array, check_count
from calirare._util.errors import shown
from calirare.metrics.binning import N_BINS, bin_sums, equal_width_bins
from calirare_multilabel.estimator import canonical_calibration_error
from calirare_multilabel.families import CopulaOptions
from calirare_multilabel.inputs import as_matrix, check_norm, read

Measure = Callable[[Tensor, Tensor], float]
SMALLEST_PROBABILITY = 1e-12
# Above so many rows the kernel estimators, or their noise floors, are left out.
KDE_ROWS, KDE_FLOOR_ROWS = 5_000, 1_000


def marginal_ece(y_true: Array, p: Array, *, n_bins: int = N_BINS) -> float:
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
        "copula_threshold" (the default of `canonical_calibration_error`), "copula" (the document's), "marginal_ece",
        and with product Beta kernels "kde", "kde_residual" and "kde_marginal".
    """
    printed = CopulaOptions(label_model="density")
    measures: dict[str, Measure] = {
        "copula_threshold": lambda y, f: canonical_calibration_error(y, f, norm=norm).mean,
        "copula": lambda y, f: canonical_calibration_error(y, f, norm=norm, options=printed).mean,
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


def noise_floor(measure: Measure, p: Array, *, repeats: int = 20, seed: int = 0) -> tuple[float, float]:
    """Returns what a calibration error reads for a model that is perfectly calibrated.

    Labels are drawn as Bernoulli(f), each by itself: then E[y | f] = f and the true error is 0, and what remains is
    noise and bias of the measure at this number of rows. Where labels depend on each other given f, the mean holds and
    the standard deviation is too small for a test.

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


# Kernel estimators of canonical calibration error: the comparators that do not know about copulas.
#
# Beta kernels live on [0, 1] and have no boundary bias (Chen 1999); their product over the labels is the multi-label
# counterpart of the Dirichlet kernel of Popordanoska, Sayer & Blaschko (2022). Each row is left out of its own one.
Mode = Literal["canonical", "marginal"]
Target = Literal["labels", "residuals"]
Rule = Literal["likelihood", "regression"]
BANDWIDTHS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
EDGE = 1e-6  # scores are moved this far away from 0 and 1, where a Beta kernel is 0 or infinite
CHUNK_ENTRIES = 4_000_000


@dataclass(frozen=True, eq=False)
class KernelError:
    """A kernel estimate of canonical or marginal calibration error.

    Attributes:
        per_label: mean over the rows of |E[y_j|.] - f_j|^p, float64 [K].
        bandwidths: the bandwidth used, one for all labels or one per label.
    """

    per_label: Tensor
    bandwidths: tuple[float, ...]

    @property
    def value(self) -> float:
        """Sum over the labels, comparable with `CanonicalError.value`."""
        return float(self.per_label.sum())

    @property
    def mean(self) -> float:
        """Mean over the labels."""
        return float(self.per_label.mean())


def kde_calibration_error(
    y_true: Array,
    p: Array,
    *,
    norm: float = 1,
    mode: Mode = "canonical",
    target: Target = "labels",
    bandwidth: float | Rule = "likelihood",
) -> KernelError:
    """Estimates E ||E[y|f] - f||_p^p ("canonical") or sum_j E |E[y_j|f_j] - f_j|^p ("marginal") with Beta kernels.

    The kernel of row i at f has the parameters f_i / h + 1 and (1 - f_i) / h + 1. With target "labels" the kernel mean
    of y estimates E[y|f] (Popordanoska et al. 2022, Eq. 9); with "residuals" the kernel mean of y - f estimates the gap
    at once, which errs towards no gap, instead of towards the mean label, where rows are far apart (many labels).

    Args:
        y_true: labels y, [n, K], each 0 or 1.
        p: probabilities f, [n, K], in [0, 1], n >= 2.
        norm: order of the norm, >= 1.
        mode: one kernel over all labels, or each label by itself.
        target: what the kernel averages.
        bandwidth: h > 0; "likelihood" takes the h of `BANDWIDTHS` with the largest leave-one-out likelihood of the
            scores, "regression" the one with the smallest leave-one-out squared error of the target.

    Returns:
        The estimate.

    Raises:
        TypeError: they do not hold real numbers.
        ValueError: shapes, ranges or options are wrong.

    Precision: float64, weights in log space.
    Cost: O(n^2 K) time per bandwidth, O(n) memory beside chunks of fixed size.
    """
    check_norm("kde_calibration_error", norm)
    gap, used = kernel_gap(y_true, p, mode=mode, target=target, bandwidth=bandwidth)
    return KernelError((gap.abs() ** norm).mean(0), used)


def kernel_gap(
    y_true: Array,
    p: Array,
    *,
    mode: Mode = "canonical",
    target: Target = "labels",
    bandwidth: float | Rule = "likelihood",
) -> tuple[Tensor, tuple[float, ...]]:
    """Returns E[y|f] - f at every row, float64 [n, K], and the bandwidths used, one or K (`kde_calibration_error`)."""
    name = "kde_calibration_error"
    for what, given, known in (("mode", mode, get_args(Mode)), ("target", target, get_args(Target))):
        if given not in known:
            raise ValueError(f"{name}: {what} must be one of {', '.join(known)}, got {given!r}")
    hot, f = read(name, y_true, p)
    if len(f) < 2:
        raise ValueError(f"{name}: p must have at least 2 rows, got {len(f)}")
    f = f.double()
    aim = hot.double() - f if target == "residuals" else hot.double()
    groups = [slice(None)] if mode == "canonical" else [slice(j, j + 1) for j in range(f.shape[1])]
    gaps, used = [], []
    for columns in groups:
        estimate, h = _kernel_means(name, f[:, columns], aim[:, columns], bandwidth)
        gaps.append(estimate if target == "residuals" else estimate - f[:, columns])
        used.append(h)
    return torch.cat(gaps, 1), tuple(used)


def _kernel_means(name: str, f: Tensor, aim: Tensor, bandwidth: float | Rule) -> tuple[Tensor, float]:
    """Returns the leave-one-out kernel mean of `aim` at every row, [n, k], and the bandwidth used."""
    if isinstance(bandwidth, float | int):
        if not bandwidth > 0:
            raise ValueError(f"{name}: bandwidth must be positive, got {bandwidth}")
        return _smooth(f, aim, float(bandwidth))[0], float(bandwidth)
    quality: dict[str, Callable[[Tensor, float], float]] = {
        "likelihood": lambda means, likelihood: likelihood,
        "regression": lambda means, likelihood: -float((means - aim).square().mean()),
    }
    if bandwidth not in quality:
        raise ValueError(f'{name}: bandwidth must be positive, "likelihood" or "regression", got {shown(bandwidth)}')
    best: tuple[float, Tensor, float] | None = None
    for h in BANDWIDTHS:
        means, likelihood = _smooth(f, aim, h)
        score = quality[bandwidth](means, likelihood)
        if best is None or score > best[0]:
            best = (score, means, h)
    assert best is not None
    return best[1], best[2]


def _smooth(f: Tensor, aim: Tensor, h: float) -> tuple[Tensor, float]:
    """Returns leave-one-out kernel means [n, k] and the mean leave-one-out log density of the rows."""
    f = f.clamp(EDGE, 1 - EDGE)
    a, b = f / h, (1 - f) / h  # kernel parameters less 1
    norm = ((a + 1).lgamma() + (b + 1).lgamma() - (a + b + 2).lgamma()).sum(1)
    means, total, n = torch.empty_like(aim), 0.0, len(f)
    for rows in _chunks(n):
        log_kernel = f[rows].log() @ a.T + (-f[rows]).log1p() @ b.T - norm
        own = torch.arange(rows.start, rows.stop, device=f.device)
        log_kernel[own - rows.start, own] = -torch.inf
        top = log_kernel.amax(1, keepdim=True)
        weight = (log_kernel - top).exp_()
        mass = weight.sum(1, keepdim=True)
        means[rows] = weight @ aim / mass
        total += float((mass.log() + top).sum())
    return means, total / n


def _chunks(n: int) -> Iterator[slice]:
    step = max(1, CHUNK_ENTRIES // n)
    for start in range(0, n, step):
        yield slice(start, min(start + step, n))
