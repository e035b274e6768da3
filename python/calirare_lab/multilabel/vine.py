"""A regular vine copula, through pyvinecopulib (2.8 MB): an option for dependence no elliptical copula describes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from calirare_multilabel.families import Conditional
from calirare_multilabel.margins import Shrinkage

SMALLEST_DENSITY = 1e-300


@dataclass(frozen=True)
class VineCopula:
    """A regular vine of pair copulas as a family of `CopulaOptions`; has no correlation that could be shrunk."""

    def fit(self, u: Tensor, labels: Tensor, shrinkage: Shrinkage) -> Conditional:
        """Returns the conditional expectation (`fit_vine`)."""
        expectation = fit_vine(u, labels)
        return Conditional(lambda rows: expectation[rows].clone())


def fit_vine(u: Tensor, labels: Tensor) -> Tensor:
    """Fits one vine per label to (y_j, f_1..f_k) and returns E[y_j | f] at every row.

    The density of the scores alone cancels in the document's ratio, so one vine and two evaluations per label suffice:
    `p(1) c(F(1), u) / (p(0) c(F(0), u) + p(1) c(F(1), u))`. Pair copulas are chosen by AIC from the
    parametric families.

    Args:
        u: pseudo-observations of the scores, float64 [n, k], in (0, 1).
        labels: multi-hot, bool [n, K].

    Returns:
        float64 [n, K].

    Raises:
        ImportError: pyvinecopulib is not installed.

    Cost: one vine of k + 1 variables per label, O(k^2) pair copulas each: meant for some ten labels.
    """
    try:
        import pyvinecopulib as vines
    except ImportError as error:
        raise ImportError("the vine copula needs pyvinecopulib: pip install pyvinecopulib") from error
    n = len(u)
    controls = vines.FitControlsVinecop(family_set=vines.families.parametric)
    table = np.asfortranarray(np.column_stack([np.empty(n), u.cpu().numpy()]))
    rate = labels.sum(0).cpu().numpy() / n
    out = np.empty((n, labels.shape[1]))
    for j, p in enumerate(rate):
        if p in (0.0, 1.0):
            out[:, j] = p
            continue
        low, high = extended_label_cdf(torch.tensor([0.0, 1.0], dtype=torch.float64), torch.tensor(p)).tolist()
        table[:, 0] = np.where(labels[:, j].cpu().numpy(), high, low)
        vine = vines.Vinecop.from_data(table, controls=controls)
        log_density = []
        for value in (low, high):
            table[:, 0] = value
            log_density.append(np.log(np.maximum(vine.pdf(table), SMALLEST_DENSITY)))
        odds = np.log(p) - np.log1p(-p) + log_density[1] - log_density[0]
        out[:, j] = torch.sigmoid(torch.from_numpy(odds)).numpy()
    return torch.from_numpy(out).to(u.device)


def extended_label_cdf(values: Tensor, positive_rate: Tensor) -> Tensor:
    """Returns the CDF of a label made continuous by spreading each value over an interval of width 1.

    The document's piecewise linear F: 0 below -1/2, p(0) (y + 1/2) up to 1/2, p(0) + p(1) (y - 1/2) up to 3/2, 1 above:
    a kernel estimate with a uniform kernel. Only y = 0 and y = 1 enter the estimator, where it is p(0)/2 and
    p(0) + p(1)/2.

    Args:
        values: y, float [...].
        positive_rate: p(1), in [0, 1], broadcast against `values`.

    Returns:
        F(y), the broadcast shape.
    """
    zero_rate = 1 - positive_rate
    lower = zero_rate * (values + 0.5).clamp(0, 1)
    return lower + positive_rate * (values - 0.5).clamp(0, 1)
