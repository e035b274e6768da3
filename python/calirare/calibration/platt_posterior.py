"""The posterior of a Platt map with separate slope, class ratios and class shares, and its derivatives."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

SHARE_STEPS, SHARE_TOLERANCE = 10_000, 1e-14


@dataclass(frozen=True, eq=False)
class PlattPosterior:
    """Minus the logarithm of the posterior, per label, and its derivatives; theta is as in `PriorPlattCalibrator`.

    Attributes:
        away: z - r, float64 [m, k].
        labels: int64 [m].
        weights: how many labels each counts for, float64 [m].
        offsets: what sampling adds to each label's logits, float64 [m, k].
        representative: 1 where lambda belongs to a label's logits, else 0, float64 [m].
        counts: of Dirichlet's prior, float64 [k].
        slope_precision: of log s.
        ratio_precision: of differences of alpha.
    """

    away: Tensor
    labels: Tensor
    weights: Tensor
    offsets: Tensor
    representative: Tensor
    counts: Tensor
    slope_precision: float
    ratio_precision: float

    def start(self) -> Tensor:
        """Returns the analytic correction with the shares of the representative labels, [2 k - 1]."""
        k = self.away.shape[1]
        seen = self.counts.index_add(0, self.labels, self.weights * self.representative)
        return torch.cat([seen.new_zeros(k), (seen[1:] / seen[0]).log()])

    def log_shares(self) -> Tensor:
        """Returns lambda as the representative labels tell it by their numbers alone, relative to class 0, [k - 1].

        It maximises sum_i w_i log(pi_y rho_iy / sum_c pi_c rho_ic) + sum_c counts_c log pi_c with rho_i the rates that
        label i was drawn at, by minorisation: every step solves for the pi whose expected numbers are those seen.
        """
        some = self.representative > 0
        weights, rates = self.weights[some], self.offsets[some].exp()
        seen = self.counts.index_add(0, self.labels[some], weights)
        shares = seen / seen.sum()
        for _ in range(SHARE_STEPS):
            drawn = weights / (rates @ shares)
            new = seen / (drawn @ rates + self.counts.sum())
            new = new / new.sum()
            moved, shares = float((new - shares).abs().max()), new
            if moved < SHARE_TOLERANCE:
                break
        return (shares[1:] / shares[0]).log()

    def loss(self, theta: Tensor) -> Tensor:
        """Returns the loss; its unit is one label, so that rounding does not grow with their number."""
        of_labels = F.cross_entropy(self._logits(theta), self.labels, reduction="none")
        of_shares = torch.log_softmax(self._vectors(theta)[1], 0)
        prior = self._precision() @ theta @ theta / 2 - self.counts @ of_shares
        return (self.weights @ of_labels + prior) / self._total()

    def derivatives(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        """Returns gradient [q] and Hessian [q, q] of the loss."""
        p, scaled, share = self._p(theta), theta[0].exp() * self.away, torch.softmax(self._vectors(theta)[1], 0)
        error = self.weights[:, None] * (p - F.one_hot(self.labels, p.shape[1]))
        slope = (scaled * error).sum()
        of_lambda = (self.representative @ error) + self.counts.sum() * share - self.counts
        gradient = torch.cat([slope[None], error.sum(0)[1:], of_lambda[1:]]) + self._precision() @ theta
        hessian = self.information(theta)
        hessian[0, 0] += slope
        return gradient / self._total(), hessian / self._total()

    def information(self, theta: Tensor) -> Tensor:
        """Returns the expected information of the labels plus that of the priors, positive definite [q, q].

        With P_i = diag(p_i) - p_i p_i^T it is sum_i w_i J_i^T P_i J_i, J_i = [s (z_i - r), I, representative_i I].
        """
        p, scaled = self._p(theta), theta[0].exp() * self.away
        k, share = p.shape[1], torch.softmax(self._vectors(theta)[1], 0)
        centred = self.weights[:, None] * p * (scaled - (p * scaled).sum(1, keepdim=True))
        every, some = _spread(p, self.weights), _spread(p, self.weights * self.representative)
        out = self._precision()
        out[0, 0] += (centred * scaled).sum()
        cross = torch.cat([centred.sum(0)[1:], (self.representative @ centred)[1:]])
        out[0, 1:] += cross
        out[1:, 0] += cross
        out[1:k, 1:k] += every
        out[1:k, k:] += some
        out[k:, 1:k] += some
        out[k:, k:] += some + self.counts.sum() * (torch.diag(share) - torch.outer(share, share))[1:, 1:]
        return out

    def _total(self) -> float:
        return float(self.weights.sum() + self.counts.sum())

    def _vectors(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        """Returns alpha and lambda with the 0 of class 0, each [k]."""
        k, zero = self.away.shape[1], theta.new_zeros(1)
        return torch.cat([zero, theta[1:k]]), torch.cat([zero, theta[k:]])

    def _logits(self, theta: Tensor) -> Tensor:
        alpha, shares = self._vectors(theta)
        return theta[0].exp() * self.away + alpha + self.representative[:, None] * shares + self.offsets

    def _p(self, theta: Tensor) -> Tensor:
        return torch.softmax(self._logits(theta), 1)

    def _precision(self) -> Tensor:
        """Returns the inverse of the priors' covariance, [q, q]; (I + 1 1^T) / 2 is for those to class 0."""
        k = self.away.shape[1]
        out = self.away.new_zeros(2 * k - 1, 2 * k - 1)
        out[0, 0] = self.slope_precision
        out[1:k, 1:k] = 2 * self.ratio_precision * (torch.eye(k - 1).to(out) - 1 / k)
        return out


def _spread(p: Tensor, weights: Tensor) -> Tensor:
    """Returns sum_i w_i (diag(p_i) - p_i p_i^T) without class 0, [k - 1, k - 1]."""
    weighted = weights[:, None] * p
    return (torch.diag(weighted.sum(0)) - weighted.T @ p)[1:, 1:]
