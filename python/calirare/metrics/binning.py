"""Bins: which sample falls where, and the sums per bin that every binned calibration error is made of."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch

from calirare._util.arrays import EQUAL

N_BINS = 15  # the default of every measure and picture; torchmetrics' too
PAPER_BINS = 20  # of the paper's tables: the class ACEs
ROUNDED = 1e-9  # of a bin


def equal_width_bins(scores: torch.Tensor, n_bins: int) -> torch.Tensor:
    """Returns the bin ((m-1)/M, m/M] of each score in [0, 1], counted from 0, int64; a score of 0 is in the first.

    The edges are m/M rounded to the scores' own dtype, so that float32 0.3 lies on the edge 3/10 as float64 0.3 does.
    """
    inner = (torch.arange(1, n_bins, dtype=torch.float64) / n_bins).to(scores)
    return torch.bucketize(scores.detach().contiguous(), inner)


def equal_frequency_bins(n: int, n_bins: int, device: torch.device) -> torch.Tensor:
    """Returns the bin of each rank, int64 [n], of n sorted samples cut into M bins of sizes that differ by at most one.

    Larger bins come first; with n < M the last M - n bins stay empty.
    """
    size, rest = divmod(n, n_bins)
    rank = torch.arange(n, device=device)
    split = rest * (size + 1)
    late = rest + (rank - split) // max(size, 1)
    return torch.where(rank < split, rank // (size + 1), late)


def equal_mass_bins(scores: torch.Tensor, n_bins: int, weights: torch.Tensor | None) -> torch.Tensor:
    """Returns each score's bin of M with equal weight, int64 [n]; equal scores share the bin of their middle.

    A middle that falls on an end, but for the rounding of sums of weights, lies behind it.
    """
    groups = torch.unique(scores.detach(), return_inverse=True)[1]
    mass = torch.bincount(groups, weights=weights).double()
    middle = mass.cumsum(0) - mass / 2
    return (middle * n_bins / mass.sum() + ROUNDED).long().clamp(max=n_bins - 1)[groups]


def power_mean(share: torch.Tensor, gap: torch.Tensor, norm: float) -> torch.Tensor:
    """Returns (sum_m share_m gap_m^p)^(1/p) over the last dimension, or the largest gap for p = infinity.

    Both are float [..., M], >= 0; a share of 0 belongs to a gap of 0.
    """
    if math.isinf(norm):
        return gap.amax(-1)
    if norm == 1:
        return (share * gap).sum(-1)
    largest = gap.detach().amax(-1, keepdim=True)
    unit = torch.where(largest > 0, largest, 1.0)  # powers of gaps below one underflow for a large p: taken off first
    return unit[..., 0] * (share * (gap / unit) ** norm).sum(-1) ** (1 / norm)


@dataclass(frozen=True)
class BinStatistics:
    """Sums per bin from which accuracy, mean confidence and every binned error follow.

    The sums of two parts of the data add up (`+`) to those of the whole. `confidence_statistics`
    makes them.

    Attributes:
        sums: float64 [4, G, M]: number of samples, weight, weight x score, weight x outcome, for G groups (one, or one
            per class) and M bins.
    """

    sums: torch.Tensor

    def __add__(self, other: BinStatistics) -> BinStatistics:
        if self.sums.shape != other.sums.shape:
            shapes = f"{tuple(self.sums.shape)}, got {tuple(other.sums.shape)}"
            raise ValueError(f"BinStatistics: sums must have the same shape {shapes}")
        return BinStatistics(self.sums + other.sums)

    @property
    def count(self) -> torch.Tensor:
        """Samples per bin, float64 [G, M]."""
        return self.sums[0]

    @property
    def weight(self) -> torch.Tensor:
        """Weight per bin, float64 [G, M]; equal to `count` if no weights were given."""
        return self.sums[1]

    @property
    def share(self) -> torch.Tensor:
        """|B_m| / n, float64 [G, M]; rows sum to one."""
        return self.weight / self.weight.sum(1, keepdim=True)

    @property
    def confidence(self) -> torch.Tensor:
        """conf(B_m), float64 [G, M]; 0 in an empty bin."""
        return self.sums[2] / self._divisor

    @property
    def accuracy(self) -> torch.Tensor:
        """acc(B_m), float64 [G, M]; 0 in an empty bin."""
        return self.sums[3] / self._divisor

    @property
    def gap(self) -> torch.Tensor:
        """|acc(B_m) - conf(B_m)|, float64 [G, M]; 0 in an empty bin."""
        return ((self.sums[3] - self.sums[2]) / self._divisor).abs()

    @property
    def _divisor(self) -> torch.Tensor:
        return torch.where(self.weight > 0, self.weight, 1.0)

    def error(self, norm: float = 1) -> torch.Tensor:
        """Returns (sum_m |B_m|/n |acc(B_m) - conf(B_m)|^p)^(1/p) per group, [G]; the largest gap for p = infinity."""
        return power_mean(self.share, self.gap, norm)


def equal_width_statistics(
    scores: torch.Tensor, outcomes: torch.Tensor, n_bins: int, weights: torch.Tensor | None = None
) -> BinStatistics:
    """Returns the sums per bin ((m-1)/M, m/M] of scores [n] or [n, G] in [0, 1] and outcomes of the same shape.

    Gradients flow into the scores; weights are float64 [n] or None.
    """
    return bin_sums(equal_width_bins(scores, n_bins), scores, outcomes, n_bins, weights)


def adaptive_statistics(
    scores: torch.Tensor, outcomes: torch.Tensor, n_bins: int, weights: torch.Tensor | None
) -> BinStatistics:
    """Returns the sums per bin of samples in the order of their score, equal numbers in each; one group.

    A tie (samples of equal score, in float64 but for rounding) may be cut by the end of a bin. Each of its samples then
    counts with the tie's mean values: the expected ones over random orders of the tie, so that no result depends on the
    order of the rows. Gradients flow into the scores.

    Args:
        scores: [n].
        outcomes: [n].
        n_bins: M.
        weights: float64 [n] or None; samples of weight 0, which would move the bins of the others, are left out.
    """
    if weights is not None:
        kept = weights > 0
        scores, outcomes, weights = scores[kept], outcomes[kept], weights[kept]
    ordered, order = torch.sort(scores.detach(), stable=True)
    rounding = EQUAL if ordered.dtype == torch.float64 else 0.0
    rises = ordered[1:] > ordered[:-1] + rounding * ordered[:-1].abs()
    ties = torch.cat([rises.new_zeros(1), rises]).cumsum(0)
    sizes, bins, sums = torch.bincount(ties), equal_frequency_bins(len(order), n_bins, order.device), []
    ones = torch.ones_like(scores, dtype=torch.float64)
    each = ones if weights is None else weights
    for values in (ones, each, each * scores, each * outcomes):
        values = values[order]
        if len(sizes) < len(order):
            values = (values.new_zeros(len(sizes)).index_add(0, ties, values) / sizes)[ties]
        sums.append(values.new_zeros(n_bins).index_add(0, bins, values))
    return BinStatistics(torch.stack(sums)[:, None])


def equal_mass_statistics(
    scores: torch.Tensor, outcomes: torch.Tensor, n_bins: int, weights: torch.Tensor | None
) -> BinStatistics:
    """Returns the sums per bin of equal weight, one group; scores and outcomes are [n]."""
    return bin_sums(equal_mass_bins(scores, n_bins, weights), scores, outcomes, n_bins, weights)


def bin_sums(
    bins: torch.Tensor, scores: torch.Tensor, outcomes: torch.Tensor, n_bins: int, weights: torch.Tensor | None = None
) -> BinStatistics:
    """Returns the sums of scores and outcomes of each bin; all are [n] or [n, G], bins int64 in 0..M-1.

    Gradients flow into the scores. On CUDA the sums are added in order of arrival: the last digits may vary.
    """
    groups = 1 if bins.ndim == 1 else bins.shape[1]
    if groups > 1:
        bins = bins + n_bins * torch.arange(groups, device=bins.device)
    flat, happened = bins.reshape(-1), outcomes.reshape(-1)
    size = groups * n_bins
    count_by_outcome = torch.bincount(torch.add(happened.long(), flat, alpha=2), minlength=2 * size)
    count_by_outcome = count_by_outcome.view(size, 2).double()
    count = count_by_outcome.sum(1)
    if weights is None:
        weight, outcome = count, count_by_outcome[:, 1]
        score = _segment_sum(flat, scores.reshape(-1).double(), size)
    else:
        weights = weights if groups == 1 else weights[:, None].expand(-1, groups).reshape(-1)
        weight = _segment_sum(flat, weights, size)
        score = _segment_sum(flat, weights * scores.reshape(-1), size)
        outcome = _segment_sum(flat, weights * happened, size)
    return BinStatistics(torch.stack((count, weight, score, outcome)).reshape(4, groups, n_bins))


def _segment_sum(index: torch.Tensor, values: torch.Tensor, size: int) -> torch.Tensor:
    if values.requires_grad:
        return values.new_zeros(size).index_add(0, index, values)
    return torch.bincount(index, weights=values, minlength=size)


def binomial_interval(hits: np.ndarray, trials: np.ndarray, level: float) -> tuple[np.ndarray, np.ndarray]:
    """Returns the ends of Clopper and Pearson's interval of a share, float64; hits and trials may be fractions."""
    from scipy.special import betaincinv

    tail = (1 - level) / 2
    rest = trials - hits
    some, others = np.where(hits > 0, hits, 1.0), np.where(rest > 0, rest, 1.0)
    low = np.where(hits > 0, betaincinv(some, rest + 1, tail), 0.0)
    high = np.where(rest > 0, betaincinv(hits + 1, others, 1 - tail), 1.0)
    return low, high
