"""The Student t copula, an option where scores are dependent in the tails."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from calirare_multilabel.families import Conditional
from calirare_multilabel.margins import Dependence, Shrinkage, normal_score_dependence

DEGREES_OF_FREEDOM = (2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 20.0, 50.0)
TIE = 1e-9  # differences of the mean log-likelihood that are rounding: one score alone has the same for every nu


@dataclass(frozen=True)
class StudentCopula:
    """The t copula as a family of `CopulaOptions`.

    Attributes:
        degrees_of_freedom: > 0 and finite; None chooses them by pseudo-likelihood.

    Raises:
        ValueError: there is no such t copula.
    """

    degrees_of_freedom: float | None = None

    def __post_init__(self) -> None:
        """Checks the degrees of freedom."""
        if self.degrees_of_freedom is not None and not 0 < self.degrees_of_freedom < math.inf:
            raise ValueError(
                f"StudentCopula: degrees_of_freedom must be positive and finite, got {self.degrees_of_freedom}: for "
                "infinitely many take the Gaussian family"
            )

    def fit(self, u: Tensor, labels: Tensor, shrinkage: Shrinkage) -> Conditional:
        """Returns the conditional expectation (`fit_student`)."""
        fit = fit_student(u, labels, degrees_of_freedom=self.degrees_of_freedom, shrinkage=shrinkage)
        part = fit.dependence
        return Conditional(fit.at, float(part.shrinkage), part.jitter, degrees_of_freedom=fit.degrees_of_freedom)


@dataclass(frozen=True, eq=False)
class StudentFit:
    """A t copula of (y_j, f_1..f_k) for every label j at the rows it was fitted on.

    Attributes:
        dependence: correlation of the scores.
        degrees_of_freedom: nu.
        log_odds: log E[y_j|f] / (1 - E[y_j|f]), float64 [n, K].
        positive_rate: p_j(1), float64 [K].
        degenerate: labels never or always present, bool [K].
    """

    dependence: Dependence
    degrees_of_freedom: float
    log_odds: Tensor
    positive_rate: Tensor
    degenerate: Tensor

    def at(self, rows: slice) -> Tensor:
        """Returns E[y_j | f] at some rows, float64 [rows, K]."""
        return torch.where(self.degenerate, self.positive_rate, self.log_odds[rows].sigmoid())


def fit_student(
    u: Tensor, labels: Tensor, *, degrees_of_freedom: float | None = None, shrinkage: Shrinkage = "auto"
) -> StudentFit:
    """Fits a t copula: correlation from normal scores, nu from a grid, then each label by maximum pseudo-likelihood.

    With t scores x = T_nu^-1(u), d = x^T R^-1 x and m = r_j^T R^-1 x, the conditional density of the label's score is a
    t density with nu + k degrees of freedom, location m and scale `s sqrt((nu + d) / (nu + k))`. Given R and nu, the
    pseudo-likelihood of all labels is maximised over b_j = R^-1 r_j / s_j, which is free because
    s_j^2 = 1 / (1 + b_j^T R b_j).

    Args:
        u: pseudo-observations, float64 [n, k], in (0, 1).
        labels: multi-hot, bool [n, K].
        degrees_of_freedom: nu > 0; None takes the best of `DEGREES_OF_FREEDOM` by the scores' pseudo-likelihood.
        shrinkage: see `normal_score_dependence`.

    Returns:
        The fit.

    Cost: O(n k K) per iteration of L-BFGS, at most 100 of them.
    """
    n, k = u.shape
    dependence = normal_score_dependence(torch.special.ndtri(u), shrinkage)
    nu = degrees_of_freedom or _choose(u, dependence)
    x = _quantile(u, nu)
    distance = (torch.linalg.solve_triangular(dependence.factor, x.T, upper=False) ** 2).sum(0)
    widening = ((nu + distance) / (nu + k)).sqrt()[:, None]
    count = labels.sum(0)
    degenerate = (count == 0) | (count == n)
    rate = count / torch.tensor(float(n), dtype=u.dtype)
    safe = torch.where(degenerate, 0.5, rate)
    low, high = _quantile((1 - safe) / 2, nu), -_quantile(safe / 2, nu)
    slopes = _fit_slopes(x, torch.where(labels, high, low), widening, dependence.correlation, nu + k)
    variance = 1 / (1 + (slopes * (dependence.correlation @ slopes)).sum(0))
    location, scale = x @ slopes * variance.sqrt(), widening * variance.sqrt()
    prior = safe.log() - (-safe).log1p()
    odds = prior + _log_t((high - location) / scale, nu + k) - _log_t((low - location) / scale, nu + k)
    odds = odds - _log_t(high, nu) + _log_t(low, nu)
    return StudentFit(dependence, nu, odds, rate, degenerate)


def _fit_slopes(x: Tensor, scores: Tensor, widening: Tensor, correlation: Tensor, dof: float) -> Tensor:
    """Returns b [k, K] that maximises the pseudo-likelihood of the label scores [n, K]."""
    slopes = torch.zeros(x.shape[1], scores.shape[1], dtype=x.dtype, device=x.device, requires_grad=True)
    search = torch.optim.LBFGS(
        [slopes], max_iter=100, tolerance_grad=1e-9, tolerance_change=1e-13, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        search.zero_grad()
        variance = 1 / (1 + (slopes * (correlation @ slopes)).sum(0))
        residual = (scores - x @ slopes * variance.sqrt()) / (widening * variance.sqrt())
        loss = -(_log_t(residual, dof) - 0.5 * variance.log()).mean(0).sum()
        loss.backward()
        return loss

    with torch.enable_grad():
        search.step(closure)
    return slopes.detach()


def _choose(u: Tensor, dependence: Dependence) -> float:
    """Returns the nu of the grid under which the scores' copula density is largest; of equal ones the largest nu."""
    k = u.shape[1]
    found = {}
    for nu in DEGREES_OF_FREEDOM:
        x = _quantile(u, nu)
        distance = (torch.linalg.solve_triangular(dependence.factor, x.T, upper=False) ** 2).sum(0)
        half = torch.tensor([(nu + k) / 2, nu / 2], dtype=u.dtype).lgamma()
        joint = half[0] - half[1] - 0.5 * k * float(np.log(nu * np.pi)) - (nu + k) / 2 * (distance / nu).log1p()
        joint = joint - dependence.factor.diagonal().log().sum()
        found[nu] = float((joint - _log_t(x, nu).sum(1)).mean())
    largest = max(found.values())
    return max(nu for nu, value in found.items() if value >= largest - TIE)


def _quantile(u: Tensor, nu: float) -> Tensor:
    from scipy.special import stdtrit

    return torch.from_numpy(np.ascontiguousarray(stdtrit(nu, u.cpu().numpy()))).to(u.device)


def _log_t(x: Tensor, nu: float) -> Tensor:
    """Returns the log density of Student's t with nu degrees of freedom."""
    half = torch.tensor([(nu + 1) / 2, nu / 2], dtype=x.dtype).lgamma()
    return half[0] - half[1] - 0.5 * float(np.log(nu * np.pi)) - (nu + 1) / 2 * (x.square() / nu).log1p()
