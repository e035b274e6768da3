"""The semiparametric estimator of canonical calibration error for multi-label predictions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from calirare._util.arrays import Array
from calirare_multilabel.families import Conditional, CopulaOptions, fit_conditional
from calirare_multilabel.inputs import check_norm, read
from calirare_multilabel.margins import pseudo_observations

CHUNK_ROWS = 32_768


@dataclass(frozen=True)
class CopulaDiagnostics:
    """What the estimator met and what it did about it.

    Attributes:
        shrinkage: weight of the identity in the correlation of the scores, in [0, 1].
        jitter: what was added to its diagonal, 0 mostly.
        constant_scores: score columns without spread; they carry no information and are left out.
        absent_labels: labels that no row has; their conditional expectation is 0.
        universal_labels: labels that every row has; their conditional expectation is 1.
        tied_share: share of rows whose score occurs again, the largest over the columns.
        degrees_of_freedom: of a Student t copula, else None.
    """

    shrinkage: float
    jitter: float
    constant_scores: tuple[int, ...]
    absent_labels: tuple[int, ...]
    universal_labels: tuple[int, ...]
    tied_share: float
    degrees_of_freedom: float | None = None


@dataclass(frozen=True, eq=False)
class CanonicalError:
    """An estimated canonical calibration error.

    Attributes:
        norm: order p of the norm.
        per_label: mean over the rows of |E[y_j|f] - f_j|^p, float64 [K].
        diagnostics: what the estimator met.
    """

    norm: float
    per_label: Tensor
    diagnostics: CopulaDiagnostics

    @property
    def value(self) -> float:
        """CE_p^p as the document defines it: summed over the labels."""
        return float(self.per_label.sum())

    @property
    def root(self) -> float:
        """CE_p, the p-th root of `value`."""
        return self.value ** (1 / self.norm)

    @property
    def mean(self) -> float:
        """CE_p^p per label, `value` / K; comparable between data sets."""
        return float(self.per_label.mean())


def canonical_calibration_error(
    y_true: Array, p: Array, *, norm: float = 1, options: CopulaOptions | None = None
) -> CanonicalError:
    """Estimates CE_p^p = E ||E[y | f(x)] - f(x)||_p^p with a copula (CMLCC document, Eq. 1).

    Margins are empirical, the copula of (y_j, f_1..f_K) is Gaussian, and a label is a latent normal above a threshold:
    consistent where such a copula holds. The document's own formula, the ratio of copula densities, settles at a wrong
    value: `CopulaOptions(label_model="density")`, see `families`; on the printed CDF see `margins`.

    Args:
        y_true: labels y, [n, K], each 0 or 1.
        p: predicted probabilities f(x), [n, K], in [0, 1], n >= 2; numpy or torch, any device.
        norm: order of the norm, >= 1.
        options: the copula family and how it is fitted; None: the defaults of `CopulaOptions`.

    Returns:
        The estimate.

    Raises:
        TypeError: they do not hold real numbers.
        ValueError: shapes or ranges are wrong, or options do not go together.

    Precision: everything after the ranks in float64, weights in log space.
    Cost: O(n K log n + n K^2) time and O(n K) memory for the Gaussian family.

    Example:
        >>> import torch
        >>> f = torch.rand(500, 3, generator=torch.Generator().manual_seed(0))
        >>> y = torch.rand(500, 3, generator=torch.Generator().manual_seed(1)) < f
        >>> canonical_calibration_error(y, f).mean < canonical_calibration_error(~y, f).mean
        True
    """
    check_norm("canonical_calibration_error", norm)
    hot, f = read("canonical_calibration_error", y_true, p)
    conditional, tied = _fit("canonical_calibration_error", f, hot, options)
    total = torch.zeros(f.shape[1], dtype=torch.float64, device=f.device)
    for rows in _chunks(len(f)):
        gap = conditional.at(rows).sub_(f[rows]).abs_()
        total += (gap if norm == 1 else gap.pow_(norm)).sum(0)
    return CanonicalError(norm, total / len(f), _diagnostics(conditional, hot, tied))


def conditional_expectation(y_true: Array, p: Array, *, options: CopulaOptions | None = None) -> Tensor:
    """Estimates E[y | f(x)] at every row, the first half of `canonical_calibration_error` with the same arguments.

    Args:
        y_true: labels y, [n, K], each 0 or 1.
        p: predicted probabilities f(x), [n, K], in [0, 1], n >= 2.
        options: None: the defaults of `CopulaOptions`.

    Returns:
        float64 [n, K], in [0, 1], on the device of `p`.

    Raises:
        TypeError: they do not hold real numbers.
        ValueError: shapes or ranges are wrong.
    """
    hot, f = read("conditional_expectation", y_true, p)
    conditional, _ = _fit("conditional_expectation", f, hot, options)
    return torch.cat([conditional.at(rows) for rows in _chunks(len(f))])


def _fit(function: str, f: Tensor, hot: Tensor, options: CopulaOptions | None) -> tuple[Conditional, float]:
    """Returns the fitted copula and the largest share of tied scores."""
    if len(f) < 2:
        raise ValueError(f"{function}: p must have at least 2 rows, got {len(f)}")
    options = options or CopulaOptions()
    u, tied = pseudo_observations(f, options.cdf)
    return fit_conditional(u, hot, options), float(tied.max())


def _diagnostics(conditional: Conditional, hot: Tensor, tied: float) -> CopulaDiagnostics:
    count = hot.sum(0)
    return CopulaDiagnostics(
        conditional.shrinkage,
        conditional.jitter,
        conditional.constant_scores,
        tuple((count == 0).nonzero().flatten().tolist()),
        tuple((count == len(hot)).nonzero().flatten().tolist()),
        tied,
        conditional.degrees_of_freedom,
    )


def _chunks(n: int) -> Iterator[slice]:
    for start in range(0, n, CHUNK_ROWS):
        yield slice(start, min(start + CHUNK_ROWS, n))
