"""The copula families behind one face: fitted once, asked for E[y | f] row by row."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol, cast

import torch
from torch import Tensor

from calirare_multilabel.margins import CDF_RULES, CdfRule, Dependence, Shrinkage, label_scores, normal_score_dependence


@dataclass(frozen=True, eq=False)
class Conditional:
    """E[y | f] of a fitted copula at the rows it was fitted on.

    Attributes:
        at: rows -> float64 [rows, K], a new tensor each time.
        shrinkage: weight of the identity in the correlation of the scores.
        jitter: what was added to its diagonal.
        constant_scores: columns without spread.
        degrees_of_freedom: of a t copula, else None.
    """

    at: Callable[[slice], Tensor]
    shrinkage: float = 0.0
    jitter: float = 0.0
    constant_scores: tuple[int, ...] = ()
    degrees_of_freedom: float | None = None


class Family(Protocol):
    """Another copula family than the document's Gaussian one, such as those of calirare-lab."""

    def fit(self, u: Tensor, labels: Tensor, shrinkage: Shrinkage) -> Conditional:
        """Fits the copula to pseudo-observations, float64 [n, k] in (0, 1), with spread, and labels, bool [n, K]."""


@dataclass(frozen=True)
class CopulaOptions:
    """Which copula, and how it is fitted.

    Attributes:
        family: None is the document's Gaussian one.
        cdf: "printed", "empirical" or "midrank"; they differ only where scores are tied, except that the printed,
            mirrored rule also changes what an asymmetric family such as a vine sees.
        label_model: "threshold" (labels as thresholded latent normals: consistent where such a Gaussian copula holds,
            and for that family only) or "density" (the document's formula, which settles at a wrong value); None:
            "threshold" for the Gaussian family, "density" for others.
        shrinkage: weight of the identity in the correlation of the scores, "auto" or in [0, 1].

    Raises:
        TypeError: the family is none.
        ValueError: an option is unknown, or two do not go together.
    """

    family: Family | None = None
    cdf: CdfRule = "printed"
    label_model: LabelModel | None = None
    shrinkage: Shrinkage = "auto"

    def __post_init__(self) -> None:
        """Checks the options."""
        if self.label_model is None:
            object.__setattr__(self, "label_model", "threshold" if self.family is None else "density")
        for name, value, known in (("cdf", self.cdf, CDF_RULES), ("label_model", self.label_model, LABEL_MODELS)):
            if value not in known:
                raise ValueError(f"CopulaOptions: {name} must be one of {', '.join(known)}, got {value!r}")
        if self.family is None:
            return
        if not hasattr(self.family, "fit"):
            raise TypeError(f"CopulaOptions: family must be None (Gaussian) or have a fit, got {self.family!r}")
        if self.label_model == "threshold":
            raise ValueError(f'CopulaOptions: label_model must be "density" for {self.family}, got "threshold"')


def fit_conditional(u: Tensor, labels: Tensor, options: CopulaOptions) -> Conditional:
    """Fits a copula to pseudo-observations and labels.

    Columns without spread say nothing of the labels: they are left out, whatever the family (in a t copula no column is
    independent of the others).

    Args:
        u: pseudo-observations of the scores, float64 [n, k], in (0, 1); overwritten by the Gaussian family.
        labels: multi-hot, bool [n, K].
        options: family and fit.

    Returns:
        The conditional expectation.
    """
    low, high = torch.aminmax(u, dim=0)
    constant = tuple((low == high).nonzero().flatten().tolist())
    if constant:
        if len(constant) == u.shape[1]:
            rates = labels.double().mean(0).expand(labels.shape)
            return Conditional(lambda rows: rates[rows].clone(), constant_scores=constant)
        u = u.T[low != high].T  # stored column by column as before
    if options.family is not None:
        return dataclasses.replace(options.family.fit(u, labels, options.shrinkage), constant_scores=constant)
    z = torch.special.ndtri(u, out=u)
    fit = fit_gaussian(z, labels, shrinkage=options.shrinkage, label_model=cast(LabelModel, options.label_model))
    part = fit.dependence
    return Conditional(lambda rows: fit.conditional_mean(z[rows]), float(part.shrinkage), part.jitter, constant)


# The Gaussian copula: fit per label and the conditional probability it gives.
#
# With normal scores z = Phi^-1(u) the copula density of (y_j, f_1..f_k) over that of (f_1..f_k) is
# `N(z_y; m, s^2) / N(z_y; 0, 1)` with `m = r_j^T R^-1 z` and `s^2 = 1 - r_j^T R^-1 r_j`. A label takes two values only:
# the document's sums over i hold two different terms, n(0) times the one at y = 0 and n(1) times the one at y = 1:
#
#     E[y_j | f] = p(1) w(1) / (p(0) w(0) + p(1) w(1)),   log w(v) = -(z_v - m)^2 / (2 s^2) + z_v^2 / 2,
#
# which is a logistic function of the normal scores. One product with a k x k matrix replaces the double sum.
LabelModel = Literal["density", "threshold"]
LABEL_MODELS: tuple[LabelModel, ...] = ("density", "threshold")
LARGEST_EXPLAINED = 1 - 1e-6  # largest share of a latent label that the scores may explain


@dataclass(frozen=True, eq=False)
class GaussianFit:
    """A Gaussian copula of (y_j, f_1..f_k) for every label j, the scores' part shared.

    Attributes:
        dependence: correlation of the scores.
        label_correlation: r_j in column j, correlation of label j with each score, float64 [k, K].
        loadings: R^-1 r_j in column j, float64 [k, K].
        residual_variance: s_j^2, float64 [K], in (0, 1].
        positive_rate: p_j(1), float64 [K].
        degenerate: labels that are never or always present, bool [K]; their conditional probability is their rate.
        label_model: "density" is the document's formula, "threshold" the repaired one (see `fit_gaussian`).
    """

    dependence: Dependence
    label_correlation: Tensor
    loadings: Tensor
    residual_variance: Tensor
    positive_rate: Tensor
    degenerate: Tensor
    label_model: LabelModel

    def conditional_mean(self, z: Tensor) -> Tensor:
        """Returns E[y_j | f], float64 [m, K] in [0, 1], at rows of normal scores z, float64 [m, k]."""
        weights, offset = self._linear()
        argument = torch.addmm(offset, z, weights)
        inside = argument.sigmoid() if self.label_model == "density" else torch.special.ndtr(argument)
        return torch.where(self.degenerate, self.positive_rate, inside) if bool(self.degenerate.any()) else inside

    def _linear(self) -> tuple[Tensor, Tensor]:
        """Returns weights [k, K] and offset [K] of the argument of the logistic or normal CDF."""
        rate = torch.where(self.degenerate, 0.5, self.positive_rate)
        variance = self.residual_variance
        if self.label_model == "threshold":
            deviation = variance.sqrt()
            return self.loadings / deviation, torch.special.ndtri(rate) / deviation
        low, high = label_scores(rate)
        # log p(1) w(1) - log p(0) w(0), with the terms in m and those without
        offset = rate.log() - (-rate).log1p() + 0.5 * (high.square() - low.square()) * (1 - 1 / variance)
        return self.loadings * ((high - low) / variance), offset


def fit_gaussian(
    z: Tensor,
    labels: Tensor,
    *,
    shrinkage: Shrinkage = "auto",
    label_model: LabelModel = "threshold",
) -> GaussianFit:
    """Fits the copula by maximum pseudo-likelihood, the scores' correlation first and then each label's.

    "density" treats the label as the document does, as a continuous variable observed at F(0) or F(1); given R the
    pseudo-likelihood is maximal at `r_j = t c / sqrt(q)`, `c = mean z z_y`, `q = c^T R^-1 c`, with t the root of a
    cubic (`likelihood_root`). "threshold" takes the label for what it is, y_j = 1 where a latent normal exceeds
    Phi^-1(p(0)): then `r_j = mean(z y) / phi(Phi^-1(p(0)))` (the biserial correlation) and the conditional probability
    is a normal CDF. Only the second is consistent, and only where a Gaussian copula holds for the latent variable.

    Args:
        z: normal scores, float64 [n, k].
        labels: multi-hot, bool [n, K].
        shrinkage: see `normal_score_dependence`; the correlations with the labels are not shrunk.
        label_model: "density" or "threshold".

    Returns:
        The fit, differentiable in `z`.

    Raises:
        ValueError: the label model is unknown, or shapes do not fit.

    Cost: O(n k (k + K)) time, O(n (k + K)) memory.
    """
    if label_model not in LABEL_MODELS:
        raise ValueError(f"fit_gaussian: label_model must be one of {', '.join(LABEL_MODELS)}, got {label_model!r}")
    if labels.shape[0] != z.shape[0]:
        raise ValueError(f"fit_gaussian: labels must have {z.shape[0]} rows, got {labels.shape[0]}")
    n = z.shape[0]
    y = labels.to(z.dtype)
    count = y.sum(0)
    dependence = normal_score_dependence(z, shrinkage)
    rate = count / n
    degenerate = (count == 0) | (count == n)
    safe = torch.where(degenerate, 0.5, rate)
    covariance = dependence.standardised.T @ y / n  # the scores are centred: so is this
    low, high = label_scores(safe)
    if label_model == "density":
        second_moment = (1 - rate) * low.square() + rate * high.square()
        scale = high - low
    else:
        second_moment = torch.ones_like(rate)
        scale = torch.exp(0.5 * torch.special.ndtri(safe).square()) * math.sqrt(2 * math.pi)
    covariance = covariance * scale
    direction = torch.cholesky_solve(covariance, dependence.factor)
    explained = (covariance * direction).sum(0)
    tiny = torch.finfo(z.dtype).tiny ** 0.5
    flat = (explained <= tiny) | degenerate
    length = torch.where(flat, torch.ones_like(explained), explained).sqrt()
    # q <= v holds for the plain correlation matrix; a shrunk one breaks it when n is near or below k.
    attainable = torch.minimum(length, (LARGEST_EXPLAINED * second_moment).sqrt())
    strength = likelihood_root(attainable, second_moment) if label_model == "density" else attainable
    factor = torch.where(flat, torch.zeros_like(strength), strength / length)
    variance = 1 - torch.where(flat, torch.zeros_like(strength), strength).square()
    return GaussianFit(dependence, covariance * factor, direction * factor, variance, rate, degenerate, label_model)


def likelihood_root(correlation: Tensor, second_moment: Tensor) -> Tensor:
    """Returns the correlation that maximises a bivariate normal likelihood with known means 0 and variances 1.

    The likelihood of x, y with mean x^2 = 1, mean y^2 = v and mean x y = c is stationary where
    `-t^3 + c t^2 - v t + c = 0`. As c^2 <= v the cubic falls throughout, so its root in [0, 1) is the maximum.

    Args:
        correlation: c >= 0, float64 [K].
        second_moment: v >= c^2, float64 [K], > 0.

    Returns:
        t in [0, 1), float64 [K]; correct derivatives up to the second order.
    """
    c, v = correlation.detach(), second_moment.detach()
    low, high = torch.zeros_like(c), torch.ones_like(c)
    for _ in range(30):  # close enough for Newton even where v is as small as 1e-8
        middle = (low + high) / 2
        above = ((c - middle) * middle - v) * middle + c > 0
        low, high = torch.where(above, middle, low), torch.where(above, high, middle)
    root = (low + high) / 2
    for _ in range(4):  # the last two, taken at the root, carry its implicit derivatives of first and second order
        value = ((correlation - root) * root - second_moment) * root + correlation
        slope = (2 * correlation - 3 * root) * root - second_moment
        root = root - value / slope
    return root
