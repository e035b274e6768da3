"""Bins: which sample falls where, and the sums per bin that every binned calibration error is made of."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import torch


def equal_width_bins(scores: torch.Tensor, n_bins: int) -> torch.Tensor:
    """Index of the bin ((m-1)/M, m/M] of each score, counted from 0; a score of 0 belongs to the first bin.

    The edges are m/M rounded to the scores' own dtype, so that float32 0.3 lies on the edge 3/10 as float64 0.3 does.

    Args:
        scores: float [...], in [0, 1].
        n_bins: M >= 1.

    Returns:
        int64 [...], in 0..M-1.
    """
    scores = scores.detach()
    if _product_is_exact(n_bins, scores.dtype):
        return torch.ceil(scores * n_bins).sub_(1).clamp_(min=0).long()
    inner = _edges(n_bins, scores.dtype)[1:-1].to(scores.device)
    return torch.bucketize(scores.contiguous(), inner)


def _edges(n_bins: int, dtype: torch.dtype) -> torch.Tensor:
    return (torch.arange(n_bins + 1, dtype=torch.float64) / n_bins).to(dtype)


@lru_cache(maxsize=64)
def _product_is_exact(n_bins: int, dtype: torch.dtype) -> bool:
    """Whether ceil(score * M) finds every bin: rounding is monotone, so the edges and their successors decide."""
    edges = _edges(n_bins, dtype)
    number = torch.arange(n_bins + 1)
    above = torch.nextafter(edges, torch.full_like(edges, 2.0))
    on_edge = torch.ceil(edges * n_bins).long() == number
    past_edge = torch.ceil(above * n_bins).long() == number + 1
    return bool(on_edge.all()) and bool(past_edge[:-1].all())


def equal_frequency_bins(n: int, n_bins: int, device: torch.device) -> torch.Tensor:
    """Bin of each rank when n sorted samples are cut into bins whose sizes differ by at most one, larger bins first.

    Args:
        n: samples.
        n_bins: M; with n < M the last M - n bins stay empty.
        device: where the result should live.

    Returns:
        int64 [n], ascending, in 0..M-1.
    """
    size, rest = divmod(n, n_bins)
    rank = torch.arange(n, device=device)
    split = rest * (size + 1)
    late = rest + (rank - split) // max(size, 1)
    return torch.where(rank < split, rank // (size + 1), late)


@dataclass(frozen=True)
class BinStatistics:
    """Sums per bin from which accuracy, mean confidence and every binned error follow.

    Attributes:
        sums: float64 [4, G, M]: number of samples, weight, weight x score, weight x outcome, for G groups (one, or one
            per class) and M bins. Sums of parts of the data add up to the sums of the whole.
    """

    sums: torch.Tensor

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
        """(sum_m |B_m|/n |acc(B_m) - conf(B_m)|^p)^(1/p) per group; the largest gap for p = infinity.

        Args:
            norm: p >= 1, or `math.inf`.

        Returns:
            float64 [G].
        """
        if math.isinf(norm):
            return self.gap.amax(1)
        if norm == 1:
            return (self.share * self.gap).sum(1)
        return (self.share * self.gap**norm).sum(1) ** (1 / norm)


def bin_sums(
    bins: torch.Tensor, scores: torch.Tensor, outcomes: torch.Tensor, n_bins: int, weights: torch.Tensor | None = None
) -> BinStatistics:
    """Adds up one value per sample and group into its bin.

    Args:
        bins: int64 [n] or [n, G], in 0..M-1.
        scores: the shape of `bins`; gradients flow into it.
        outcomes: the shape of `bins`, bool or number.
        n_bins: M.
        weights: float64 [n], or None.

    Returns:
        The sums.
    """
    groups = 1 if bins.ndim == 1 else bins.shape[1]
    if groups > 1:
        bins = bins + n_bins * torch.arange(groups, device=bins.device)
    flat = bins.reshape(-1)
    scores = scores.reshape(-1).double()
    outcomes = outcomes.reshape(-1).double()
    size = groups * n_bins
    count = torch.bincount(flat, minlength=size).double()
    weight = count
    if weights is not None:
        weights = weights if groups == 1 else weights[:, None].expand(-1, groups).reshape(-1)
        weight = torch.bincount(flat, weights=weights, minlength=size)
        scores, outcomes = weights * scores, weights * outcomes
    score = _segment_sum(flat, scores, size)
    outcome = _segment_sum(flat, outcomes, size)
    return BinStatistics(torch.stack((count, weight, score, outcome)).reshape(4, groups, n_bins))


def _segment_sum(index: torch.Tensor, values: torch.Tensor, size: int) -> torch.Tensor:
    if values.requires_grad:
        return values.new_zeros(size).index_add(0, index, values)
    return torch.bincount(index, weights=values, minlength=size)
