"""Intervals of each node's true P(class), and an estimate of how far calibrated probabilities are from it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from scipy.special import stdtrit
from torch import Tensor

from calirare.calibration.base import Calibrator, check_logits

# Variance of the true log-odds: SAMPLING * jackknife variance + UNSEEN / sqrt(m). Both were chosen on simulated graphs
# (benchmarks/bench_node_intervals.py) so that intervals cover on average over graphs: a prior, not an estimate.
SAMPLING, UNSEEN = 4.0, 10.0
ERROR_SD = 0.36  # of the logarithm of an estimated error, over the same graphs
FARTHEST = 9.0  # log-odds beyond which models do not differ
ZERO_RARE = 3.0  # expected rare labels that labels without a rare one exclude at 95 % ("rule of three")
NEWTON_STEPS = 8
BLOCK = 1 << 16  # nodes at a time
ABSCISSAE, WEIGHTS = (torch.from_numpy(each) for each in np.polynomial.hermite_e.hermegauss(31))


@dataclass(frozen=True, eq=False)
class NodeProbabilities:
    """What labels leave open of each node's true P(class).

    Attributes:
        low: lower ends of the intervals, float64 [n], in [0, 1]; 0 where the labels cannot exclude it.
        high: upper ends, float64 [n]; 1 likewise.
        scatter: standard deviation of the true log-odds given the labels, float64 [n].
        error: estimated individual calibration error (EICE), the mean of |p - P| over the nodes.
        error_low: lower end of the interval of `error`.
        error_high: upper end.
        coverage: of all intervals, on average over graphs.
    """

    low: Tensor
    high: Tensor
    scatter: Tensor
    error: float
    error_low: float
    error_high: float
    coverage: float


def node_probabilities(
    calibrator: Calibrator, logits: Tensor, fold_logits: Tensor, n_labels: int, coverage: float = 0.9
) -> NodeProbabilities:
    """Returns intervals of the true P(class 1) of each node, and the estimated mean of |p - P|.

    Calibration makes p right on average over nodes of equal p. The true probabilities P of these nodes still differ
    (the grouping loss of Perez-Lebel, Le Morvan and Varoquaux, ICLR 2023). The log-odds of P are taken as normal with a
    mean that makes the mean of P equal to p. Their variance is `SAMPLING` times the grouped jackknife variance of the
    calibrated log-odds, averaged between the node and all nodes, plus `UNSEEN` / sqrt(m). Ends take the quantile of
    Student's t with K - 1 degrees of freedom. A lower end below 3 / m becomes 0, an upper one above 1 - 3 / m becomes
    1: m labels cannot tell them apart.

    On 60 simulated graphs of ten kinds the 90 % intervals cover 91 % of the nodes on average: 95 % on nine kinds, 56 %
    on the one whose pattern detectors do not find. Labels cannot show what nothing explains. `error` is within 30 % or
    .01 of the truth in 67 % of the runs (12 of 15 with 3,000 labels); its rank correlation with the truth is .87.

    Args:
        calibrator: the fitted calibrator.
        logits: of the model on all labels, [n, k].
        fold_logits: of the models without each fold of the labels, [K, n, k], K >= 2.
        n_labels: number of labels m, >= 1.
        coverage: in (0, 1).

    Raises:
        ValueError: a shape does not fit or a number is out of range.

    Time is O(K n k).
    """
    check_logits("node_probabilities", logits)
    n, k = logits.shape
    if fold_logits.ndim != 3 or fold_logits.shape[1:] != logits.shape or len(fold_logits) < 2:
        raise ValueError(f"node_probabilities: fold_logits must be [K, {n}, {k}], K >= 2, got {fold_logits.shape}")
    if n == 0 or n_labels < 1 or not 0 < coverage < 1:
        raise ValueError(
            "node_probabilities: needs a node, a label and coverage in (0, 1), got "
            f"{n} nodes, {n_labels} labels, coverage {coverage}"
        )

    def of(values: Tensor) -> Tensor:
        return calibrator.transform(values.double())[:, 1]

    p = of(logits)
    odds = torch.stack([torch.logit(of(each)).clamp(-FARTHEST, FARTHEST) for each in fold_logits])
    sampling = odds.var(0, correction=0) * (len(odds) - 1)  # grouped jackknife
    scatter = (SAMPLING * (sampling + sampling.mean()) / 2 + UNSEEN / math.sqrt(n_labels)).sqrt()
    beyond = ZERO_RARE / n_labels
    reach = float(stdtrit(len(odds) - 1, 0.5 + coverage / 2))  # Student's t: the variance is itself uncertain
    ends, total = list[Tensor](), 0.0
    for part, sd in zip(p.split(BLOCK), scatter.split(BLOCK), strict=True):
        mean = normal_log_odds(part, sd)
        ends.append(torch.sigmoid(mean + reach * torch.stack([-sd, sd])))
        total += float((_probabilities(mean, sd) - part[:, None]).abs().matmul(_weights(part)).sum())
    low, high = torch.cat(ends, 1)
    low, high = low.where(low >= beyond, 0.0), high.where(high <= 1 - beyond, 1.0)
    error, factor = total / n, math.exp(reach * ERROR_SD)
    return NodeProbabilities(low, high, scatter, error, error / factor, error * factor, coverage)


def normal_log_odds(p: Tensor, sd: Tensor) -> Tensor:
    """Returns mu with E sigmoid(mu + sd e) = p for e ~ N(0, 1), float64 [n]; the ends of p are kept off 0 and 1."""
    odds = torch.logit(p, eps=1e-9)
    mean = odds * (1 + math.pi / 8 * sd**2).sqrt()  # MacKay's approximation
    for _ in range(NEWTON_STEPS):
        q = _probabilities(mean, sd)
        value, slope = q @ _weights(p), (q * (1 - q)) @ _weights(p)
        mean = mean - ((torch.logit(value) - odds) * value * (1 - value) / slope).clamp(-2, 2)
    return mean


def _probabilities(mean: Tensor, sd: Tensor) -> Tensor:
    """Returns sigmoid(mean + sd e) at the nodes of the quadrature, [n, 31]."""
    return torch.sigmoid(mean[:, None] + sd[:, None] * ABSCISSAE.to(mean))


def _weights(like: Tensor) -> Tensor:
    return WEIGHTS.to(like) / math.sqrt(2 * math.pi)
