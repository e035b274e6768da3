"""Interval ends where many labels share a model, as the labels of a fold do: from sorted residuals alone."""

from __future__ import annotations

import torch
from torch import Tensor

STEPS = 50  # of bisection: the bracket is then 1e-15 of what it was, and the end itself a sample
MARGIN = 1e-15  # below the bracket, for what rounding took from it
LABELS_PER_MODEL = 50  # from which sorting pays: a node costs 200 searches per model, or m samples to select from
BLOCK_NODES = 65_536


def pays(n_samples: int, n_models: int) -> bool:
    """Returns whether a node's ends are found sooner here than by selection among all its samples."""
    return n_samples >= LABELS_PER_MODEL * n_models


def shared_interval(
    scores: Tensor, residuals: Tensor, models: Tensor, levels: tuple[float, float]
) -> tuple[Tensor, Tensor]:
    """Returns the ends of `calirare_ext.jackknife_interval(scores[:, models], residuals, *levels)`.

    A node's samples are f_g - r_i (lower end) and f_g + r_i (upper end) over the models g and their labels i. Sorted
    residuals of each model are its samples in order, shifted by f_g, so that how many samples lie below a number is
    one binary search per model, and an order statistic is bisected.

    Args:
        scores: f of each model, finite but for NaN, [n, G].
        residuals: r_i >= 0, finite, [s].
        models: of each residual, in [0, G), int64 [s]; s >= 1.
        levels: of the two quantiles, in [0, 1].

    Returns:
        Lower and upper ends [n], by NumPy's "linear" rule; NaN where a score is NaN.

    Precision: as `jackknife_interval`, but that samples within 1e-15 of their range may change places.
    Cost: O(n G log s) time for O(n m); O(BLOCK_NODES G) memory.
    """
    lower, upper = torch.empty_like(scores[:, 0]), torch.empty_like(scores[:, 0])
    for end, sign, level in ((lower, -1.0, levels[0]), (upper, 1.0, levels[1])):
        offsets = _sorted_by_model(sign * residuals.double(), models, scores.shape[1])
        position = level * (residuals.numel() - 1)
        low = int(position)
        ranks = torch.tensor([low, min(low + 1, residuals.numel() - 1)], device=scores.device)
        for rows, block in zip(end.split(BLOCK_NODES), scores.split(BLOCK_NODES), strict=True):
            near, far = order_statistics(block.double(), offsets, ranks).to(scores.dtype).double().unbind(1)
            rows.copy_(torch.lerp(near, far, position - low))
    return lower, upper


def _sorted_by_model(offsets: Tensor, models: Tensor, n_models: int) -> Tensor:
    """Returns each model's offsets ascending, [G, longest + 1], filled up with infinity."""
    end = offsets.new_full((1,), torch.inf)
    parts = [torch.cat([offsets[models == g].sort().values, end]) for g in range(n_models)]
    return torch.nn.utils.rnn.pad_sequence(parts, batch_first=True, padding_value=torch.inf)


def order_statistics(scores: Tensor, offsets: Tensor, ranks: Tensor) -> Tensor:
    """Returns the samples of given ranks among scores[:, g] + offsets[g, :], over all g together.

    Args:
        scores: float64 [n, G].
        offsets: ascending along each row, at least the last infinite (infinite ones are none), float64 [G, L].
        ranks: from 0, int64 [R].

    Returns:
        The samples, float64 [n, R]; NaN in rows with a NaN score.
    """
    n, wanted = scores.shape[0], ranks.numel()
    shift = scores.T.repeat_interleave(wanted, 1)  # [G, n R]
    rank = ranks.repeat(n)
    finite = offsets[offsets.isfinite()]
    high = shift.amax(0) + finite.max()
    low = shift.amin(0) + finite.min() - 1.0  # below every sample
    for _ in range(STEPS):
        middle = (low + high) / 2
        enough = torch.searchsorted(offsets, middle - shift, right=True).sum(0) > rank
        high, low = torch.where(enough, middle, high), torch.where(enough, low, middle)
    following = torch.searchsorted(offsets, low - MARGIN - shift, right=True).clamp_(max=offsets.shape[1] - 1)
    found = (offsets.gather(1, following) + shift).amin(0)
    return found.masked_fill(shift.isnan().any(0), torch.nan).view(n, wanted)
