"""The posterior of a Platt map with separate slope, class ratios and class shares, and its derivatives."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache, cached_property

import torch
from torch import Tensor
from torch.nn import functional as F

from calirare.calibration.minimisers import newton_minimum

REACH = 12  # log-odds beyond which the residual of the form stays as it is there


@dataclass(frozen=True, eq=False)
class PlattPosterior:
    """Minus the logarithm of the posterior, per label, and its derivatives; theta is as in `PriorPlattCalibrator`.

    Everything depends on three vectors of k numbers, the log-slopes u, alpha and lambda; `spread` says how theta makes
    them. With t_ic = exp(u_c) L_ic the logits of label i are t_i + alpha + representative_i lambda + offsets_i.

    Attributes:
        away: L, log-probabilities of z - r above those of equal classes, float64 [m, k], see `log_shares_of`.
        labels: int64 [m].
        offsets: what sampling adds to each label's logits, float64 [m, k].
        representative: 1 where lambda belongs to a label's logits, else 0, float64 [m].
        counts: of Dirichlet's prior, float64 [k].
        slope_precision: of log s.
        log_slope: the mean of its prior.
        ratio_precision: of differences of alpha.
        form_precision: of differences of the classes' log-slopes; None: all are the same.
    """

    away: Tensor
    labels: Tensor
    offsets: Tensor
    representative: Tensor
    counts: Tensor
    slope_precision: float
    ratio_precision: float
    form_precision: float | None = None
    log_slope: float = 0.0

    def start(self) -> Tensor:
        """Returns the analytic correction with the shares of the representative labels, [q]."""
        k = self.away.shape[1]
        rest = 0 if self.form_precision is None else k - 1
        return torch.cat([self.away.new_zeros(k), self.log_shares(), self.away.new_zeros(rest)])

    def log_shares(self) -> Tensor:
        """Returns lambda as the representative labels show it by their numbers, relative to class 0, [k - 1]."""
        seen = self.counts.index_add(0, self.labels, self.representative)
        return (seen[1:] / seen[0]).log()

    def loss(self, theta: Tensor) -> Tensor:
        """Returns the loss; its unit is one label, so that rounding does not grow with their number."""
        _, logits, shares = self._parts(theta)
        of_labels, of_shares = F.cross_entropy(logits, self.labels, reduction="none"), torch.log_softmax(shares, 0)
        away = self._from_prior(theta)
        prior = self._precision @ away @ away / 2 - self.counts @ of_shares
        return (of_labels.sum() + prior) / self._total

    def derivatives(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        """Returns gradient [q] and Hessian [q, q] of the loss."""
        spread, at = self._spread, self._at(theta)
        t, p, share = at
        error = p - self._targets
        slopes = (t * error).sum(0)
        of_lambda = (self.representative @ error) + self._counted * share - self.counts
        gradient = spread @ torch.cat([slopes, error.sum(0), of_lambda])
        gradient = gradient + self._precision @ self._from_prior(theta)
        bent = spread[:, : len(slopes)]  # a slope is exp(u), so that the Hessian is more than the information
        hessian = self._information(*at) + (bent * slopes) @ bent.T
        return gradient / self._total, hessian / self._total

    def information(self, theta: Tensor) -> Tensor:
        """Returns the expected information of the labels plus that of the priors, positive definite [q, q].

        With P_i = diag(p_i) - p_i p_i^T it is sum_i w_i J_i^T P_i J_i, J_i = [diag(t_i), I, representative_i I].
        """
        return self._information(*self._at(theta))

    def _at(self, theta: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Returns sloped logits t [m, k], probabilities [m, k] and the population's shares [k]."""
        t, logits, shares = self._parts(theta)
        return t, torch.softmax(logits, 1), torch.softmax(shares, 0)

    def _information(self, t: Tensor, p: Tensor, share: Tensor) -> Tensor:
        k, spread, (ones, representative) = p.shape[1], self._spread, self._constant_factors
        factors = torch.stack([t, ones, representative])  # [3, m, k]
        likely = p * factors  # first: a logit may be as far away as its class is unlikely
        squares = torch.einsum("amk,bmk->abk", likely, factors)
        means = likely.transpose(0, 1).reshape(len(p), 3 * k)
        full = torch.diag_embed(squares).permute(0, 2, 1, 3).reshape(3 * k, 3 * k)
        full = full - means.T @ means
        return spread @ full @ spread.T + self._of_priors(share)

    def _of_priors(self, share: Tensor) -> Tensor:
        """Returns the curvature of the priors where the population has these shares, [q, q]."""
        of_lambda = self._spread[:, -self.away.shape[1] :]
        counted = self._counted * (torch.diag(share) - torch.outer(share, share))
        return of_lambda @ counted @ of_lambda.T + self._precision

    def likeliest(self, theta: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
        """Returns where theta and a residual of the log-odds of class 1 are likeliest together, and the information.

        Linearised at theta, the maximum without a residual: with rows J_i = [gradient of label i's log-odds, phi_i] and
        a move d = (change of theta, w) the log-odds are those at theta plus J_i d, the prior of theta is the quadratic
        that touches it there, and w ~ N(0, I). That is a logistic regression, with one minimum.

        Args:
            theta: the maximum without a residual, of two classes, [q].
            residual: features phi of each label, see `residual_features`, [m, r]. Of more classes there is none, r = 0.

        Returns:
            d, 0 where r is 0, [q + r], and its information there, [q + r, q + r].
        """
        r, q = residual.shape[1], len(theta)
        if not r:
            return torch.zeros_like(theta), self.information(theta)
        t, logits, shares = self._parts(theta)
        sign, (below, above) = self.away.new_tensor([-1.0, 1.0]), logits.T
        parts = [sign * t, sign.expand_as(self.away), self.representative[:, None] * sign]
        rows = torch.cat([torch.cat(parts, 1) @ self._spread.T, residual], 1)
        odds, y = above - below, self.labels.to(theta)
        prior = torch.block_diag(self._of_priors(torch.softmax(shares, 0)), torch.eye(r).to(theta))
        pull = rows.T @ (torch.sigmoid(odds) - y)
        pull[q:] = 0  # at its maximum theta's prior pulls as the labels do, the other way

        def loss(move: Tensor) -> Tensor:
            at = odds + rows @ move
            return ((F.softplus(at) - y * at).sum() - pull @ move + move @ prior @ move / 2) / self._total

        def derivatives(move: Tensor) -> tuple[Tensor, Tensor]:
            p = torch.sigmoid(odds + rows @ move)
            gradient = rows.T @ (p - y) - pull + prior @ move
            hessian = rows.T @ ((p * (1 - p))[:, None] * rows) + prior
            return gradient / self._total, hessian / self._total

        move = newton_minimum(loss, theta.new_zeros(q + r), derivatives)
        return move, self._total * derivatives(move)[1]

    @cached_property
    def _counted(self) -> Tensor:
        return self.counts.sum()

    @cached_property
    def _total(self) -> float:
        return float(len(self.labels) + self._counted)

    @cached_property
    def _targets(self) -> Tensor:
        return F.one_hot(self.labels, self.away.shape[1])

    @cached_property
    def _constant_factors(self) -> tuple[Tensor, Tensor]:
        """Derivatives of each label's logits by alpha and by lambda, [m, k]."""
        ones = torch.ones_like(self.away)
        return ones, self.representative[:, None] * ones

    def _parts(self, theta: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Returns sloped logits t [m, k], the logits that they become [m, k], and lambda [k]."""
        slopes, alpha, shares = (theta @ self._spread).split(self.away.shape[1])
        t = slopes.exp() * self.away
        return t, t + alpha + self.representative[:, None] * shares + self.offsets, shares

    @cached_property
    def _spread(self) -> Tensor:
        """The matrix by which theta makes (u, alpha, lambda), [q, 3 k]."""
        return spread(self.away.shape[1], self.form_precision is not None).to(self.away)

    def _from_prior(self, theta: Tensor) -> Tensor:
        """Returns theta less the mean of its prior, that of lambda aside."""
        return torch.cat([theta[:1] - self.log_slope, theta[1:]])

    @cached_property
    def _precision(self) -> Tensor:
        """The inverse of the priors' covariance, [q, q]; (I + 1 1^T) / 2 is for those to class 0."""
        k = self.away.shape[1]
        to_first = 2 * (torch.eye(k - 1).to(self.away) - 1 / k)
        parts = [self.away.new_full((1, 1), self.slope_precision), self.ratio_precision * to_first]
        parts.append(torch.zeros_like(to_first))
        if self.form_precision is not None:
            parts.append(self.form_precision * to_first)
        return torch.block_diag(*parts)


@cache
def spread(k: int, with_form: bool) -> Tensor:
    """Returns the matrix by which theta makes (u, alpha, lambda), float64 [q, 3 k].

    u_c = log s + form_c - mean of form, alpha and lambda as they are, each with the 0 of class 0.
    """
    free = torch.eye(k, dtype=torch.float64)[1:]
    rows = [torch.ones(1, k, dtype=torch.float64), free, free]
    columns = [0, 1, 2]
    if with_form:
        rows.append(free - 1 / k)
        columns.append(0)
    out = torch.zeros(sum(len(row) for row in rows), 3 * k, dtype=torch.float64)
    start = 0
    for row, column in zip(rows, columns, strict=True):
        out[start : start + len(row), column * k : (column + 1) * k] = row
        start += len(row)
    return out


def log_shares_of(logits: Tensor) -> Tensor:
    """Returns L_c = log softmax(z)_c + log k, [n, k]: 0 in every class where z favours none."""
    return torch.log_softmax(logits, 1) + math.log(logits.shape[1])


def residual_features(log_odds: Tensor, sd: float) -> Tensor:
    """Returns features phi of a smooth function of the log-odds, float64 [n, r]: it is phi @ w with w ~ N(0, I).

    Gaussian bumps at every whole number make it a Gaussian process, within 2 % with the covariance
    sd^2 exp(-(x - x')^2 / 2); beyond `REACH` it is constant.
    """
    knots = torch.arange(-REACH, REACH + 1, dtype=torch.float64, device=log_odds.device)
    at = log_odds.clamp(-REACH, REACH)[:, None]
    return sd * (2 / math.pi) ** 0.25 * torch.exp(-((at - knots) ** 2))
