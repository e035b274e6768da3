"""What the labels leave open: intervals of P(class) at a node, and of the number of nodes of a class in a set."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from calirare._util.amounts import count_of
from calirare.calibration.base import balance_of, check_logits
from calirare.calibration.platt_posterior import spread
from calirare.calibration.prior_platt import PriorPlattCalibrator

COVERAGE = 0.9  # of intervals, unless another one is given
DRAWS = 20_000  # an end of a 95 % interval then moves by about a percent of the interval's width from seed to seed
APART = "expected counts also correct P(rare) towards the labels"  # where they differ from sums of P
TOLD = 0.1  # of an interval: what a sum is away from the expected number before it is said
LITTLE = 0.05  # nodes: what is never said
CERTAIN = 1e-9  # expected nodes that are not of a group's likelier class: below, none is drawn
MOST_LOG_P = -1e-3  # beyond which no P is moved
BLOCK = 1 << 14  # rows at a time: the gradient of each, of two classes 29 numbers, should stay in the caches


@dataclass(frozen=True)
class ExpectedCount:
    """An expected number with the ends of its interval.

    Attributes:
        expected: where calibrator and residual are likeliest together; without a residual the sum of probabilities.
        low: lower end.
        high: upper end.
    """

    expected: float
    low: float
    high: float

    @classmethod
    def of(cls, expected: float, draws: np.ndarray, coverage: float) -> ExpectedCount:
        """Returns a number with the interval that holds so many of its samples."""
        low, high = np.quantile(draws, [0.5 - coverage / 2, 0.5 + coverage / 2])
        return cls(float(expected), float(low), float(high))

    def __str__(self) -> str:
        """Returns "94 (71 to 120)"."""
        return f"{count_of(self.expected)} ({count_of(self.low)} to {count_of(self.high)})"


def are_apart(total: float, expected: float, low: float, high: float) -> bool:
    """Returns whether a sum of P is away from an expected number by more than a little of its interval."""
    return abs(total - expected) > max(TOLD * (high - low), LITTLE)


def log_odds(fitted: PriorPlattCalibrator, logits: Tensor, *, cut: bool = True) -> tuple[Tensor, Tensor]:
    """Returns log P / (1 - P) of class 1 of each node, [n], and its gradient, [n, q + r], both float64.

    With eta the mapped logits and q the softmax of those of the other classes, it is eta_1 - logsumexp(others) and its
    gradient that of eta_1 less the mean of the others' under q: in theta, then in the residual's numbers. Without `cut`
    it is the one that doubt is weighed with, see `PriorPlattCalibrator.bend`.
    """
    eta = fitted.calibrated_logits(logits.double())
    others = eta.clone()
    others[:, 1] = -torch.inf
    away = torch.softmax(others, 1).neg()
    odds = eta[:, 1] - others.logsumexp(1)
    away[:, 1] = 1.0
    bent = fitted.bend(logits, cut=cut)[:, None] * away
    moved = torch.cat([bent * fitted.sloped(logits), bent, (1 - balance_of(fitted.target)) * away], 1)
    of_theta = moved @ spread(logits.shape[1], fitted.form_sd is not None).to(moved).T
    return odds, torch.cat([of_theta, bent[:, 1:2] * fitted.residual(logits)], 1)


def likeliest_log_odds(fitted: PriorPlattCalibrator, logits: Tensor) -> tuple[Tensor, Tensor]:
    """Returns `log_odds` where map and residual are likeliest together, to first order, and the gradient.

    P(class) is that of the map alone. Where labels speak against its form the two differ, and expected numbers
    follow this one.
    """
    odds, gradient = log_odds(fitted, logits, cut=False)
    if fitted.move_ is None:
        return odds, gradient
    move = gradient @ fitted.move_.to(odds)
    if not fitted.scales_p:
        return odds + move, gradient
    log_p = scaled(odds, move).clamp(max=MOST_LOG_P)
    rest = -torch.expm1(log_p)
    return log_p - rest.log(), gradient * (torch.sigmoid(-odds) / rest)[:, None]


def scaled(odds: Tensor, by: Tensor) -> Tensor:
    """Returns log P of log-odds that are moved, where the move is one of log P: linear there."""
    return torch.nn.functional.logsigmoid(odds) + torch.sigmoid(-odds) * by


def count_draws(
    fitted: PriorPlattCalibrator,
    logits: Tensor,
    groups: Tensor,
    n_groups: int,
    *,
    n_draws: int = DRAWS,
    seed: int = 0,
    weights: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the number of nodes of class 1 to expect in each group of nodes, [g], and draws of it, [n_draws, g].

    Expected are the sums of P(class) where map and residual are likeliest together (`likeliest_log_odds`). Each draw
    takes a map from its posterior there, the same for all groups, and then the nodes' classes given the map. The map
    enters by the log-odds of each group's mean probability (by its logarithm where the map scales P), jointly normal
    (delta method); the classes by a binomial number with the mean and variance of a sum of independent ones, sum p and
    sum p (1 - p). Classes that depend on one another beyond their logits would spread further.

    Args:
        fitted: the fitted map.
        logits: [n, k].
        groups: of each node, int64 [n] in [0, n_groups).
        n_groups: number of groups; one may be empty.
        n_draws: number of draws.
        seed: of numpy's default generator.
        weights: what each node counts, >= 0, [n]; None: 1. Their unit should be the mean over the nodes of class 1,
            each weighted by its weight: a sum of numbers of that size varies as a number of nodes does.
    """
    assert fitted.covariance_ is not None
    each = torch.ones(len(logits)) if weights is None else torch.from_numpy(weights)
    size, total, squares, jacobian = _moments(fitted, logits, groups, n_groups, each.to(logits.device))
    mean = total / np.maximum(size, 1)
    spread = size * mean * (1 - mean)
    certain = spread < CERTAIN  # of an empty group too: its mean is 0
    rise = jacobian / np.where(certain, np.inf, total if fitted.scales_p else spread)[:, None]
    inner = np.where(certain, 0.5, mean)
    covariance = rise @ fitted.covariance_.cpu().numpy() @ rise.T
    rng = np.random.default_rng(seed)
    values, vectors = np.linalg.eigh(covariance)
    noise = rng.standard_normal((n_draws, len(size))) @ (vectors * np.sqrt(values.clip(0))).T
    if fitted.scales_p:
        drawn = np.minimum(inner * np.exp(noise), 1)
    else:
        drawn = 1 / (1 + np.exp(-(np.log(inner) - np.log1p(-inner) + noise)))
    shares = np.where(certain, mean, drawn)
    trials = np.where(squares > 0, np.minimum(np.ceil(total**2 / np.maximum(squares, 1e-300)), np.ceil(size)), 0)
    trials = np.maximum(trials, np.where(trials > 0, np.ceil(shares * size), 0))  # where more are likely, all of them
    p = np.minimum(shares * size / np.maximum(trials, 1), 1.0)
    return total, rng.binomial(trials.astype(np.int64), p).astype(np.float64)


def expected_count(
    fitted: PriorPlattCalibrator, logits: Tensor, coverage: float = COVERAGE, *, seed: int = 0
) -> ExpectedCount:
    """Returns how many nodes of a set are of class 1, with an interval that the true number should lie in.

    The interval holds what the labels leave open of the map and the chance of the nodes' own classes, see
    `count_draws`.

    Args:
        fitted: the fitted map.
        logits: of the nodes, [n, k].
        coverage: in (0, 1).
        seed: of the draws.

    Raises:
        ValueError: the coverage is out of range, or the logits have other classes.
    """
    check_logits("interval", logits)
    fitted.check_classes(logits)
    if not 0 < coverage < 1:
        raise ValueError(f"interval: coverage must be in (0, 1), got {coverage}")
    group = torch.zeros(1, dtype=torch.int64, device=logits.device).expand(logits.shape[0])
    expected, draws = count_draws(fitted, logits, group, 1, seed=seed)
    return ExpectedCount.of(expected[0], draws[:, 0], coverage)


def _moments(
    fitted: PriorPlattCalibrator, logits: Tensor, groups: Tensor, n_groups: int, weights: Tensor
) -> tuple[np.ndarray, ...]:
    """Returns of each group sums of w, w p and (w p)^2, each [g], and the gradient of sum w p, [g, q + r]."""
    assert fitted.covariance_ is not None
    q = len(fitted.covariance_)
    out = logits.new_zeros(n_groups, 3 + q, dtype=torch.float64)
    for block, group, w in zip(*(each.split(BLOCK) for each in (logits, groups, weights)), strict=True):
        odds, gradient = likeliest_log_odds(fitted, block)
        p = torch.sigmoid(odds)
        sums = torch.stack([w.to(p), w * p, (w * p) ** 2], 1)
        rows = torch.cat([sums, (w * p * (1 - p))[:, None] * gradient], 1)
        out.index_add_(0, group, rows)
    size, total, squares = out[:, :3].cpu().numpy().T
    return size, total, squares, out[:, 3:].cpu().numpy()
