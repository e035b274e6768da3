"""Kernel density calibration error: Dirichlet kernels on the simplex, Beta kernels on [0, 1]."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal

import numpy as np
import torch

from calirare._util.arrays import Array, as_scores, check_count
from calirare._util.keywords import known_keywords
from calirare.metrics.binning import power_mean
from calirare.metrics.inputs import Scalar, check_norm, check_rows, read
from calirare.metrics.predictions import Predictions, confidence_and_correct

Kind = Literal["canonical", "classwise", "confidence"]

# Rows worked on at a time: memory O(ROWS n) instead of O(n^2), unless gradients are wanted.
ROWS = 1024
# Bandwidths that `kde_bandwidth` tries, from a kernel as narrow as .01 in probability to one wider than [0, 1].
CANDIDATES = tuple(float(10 ** (k / 4)) for k in range(-16, 1))
# Points the choice of the bandwidth rests on.
MAX_POINTS = 1000


@known_keywords
def kde_calibration_error(
    y_true: Array,
    p: Array,
    *,
    kind: Kind = "canonical",
    norm: float = 1,
    bandwidth: float | None = None,
    weights: Array | None = None,
) -> Scalar:
    """L_p calibration error with E[y | f] estimated by kernels (Popordanoska, Sayer and Blaschko 2022).

    CE_p^p = 1/n sum_j || sum_{i != j} k(f_j; f_i) y_i / sum_{i != j} k(f_j; f_i) - f_j ||_p^p, with the Dirichlet
    kernel k(x; f_i) = Dir(x; f_i / h + 1), which is the Beta kernel for two classes. The value is the p-th root.

    Args:
        y_true: as for `ece`.
        p: as for `ece`, n >= 2.
        kind: "canonical" compares whole probability vectors (with two classes, and only then, one coordinate is
            enough and taken); "classwise" is the mean over classes, or labels, of the error of each probability;
            "confidence" is the error of the predicted class's probability.
        norm: p >= 1, finite.
        bandwidth: h > 0; None takes `kde_bandwidth` of what is compared.
        weights: sample weights [n] >= 0 of the kernels and of the mean, or None; at least two must be positive.

    Returns:
        The error >= 0: a float for numpy input, a 0-dim tensor for torch input. Differentiable in the probabilities, in
        the kernels as well as in the differences, the bandwidth held fixed.

    Raises:
        TypeError: dtype is wrong.
        ValueError: shape or range is wrong, or "canonical" is asked of multi-label data (their probabilities do not lie
            on a simplex).

    Cost: O(n^2 C) time; memory O(n), or O(n^2) with gradients: give it minibatches then.
    """
    name = "kde_calibration_error"
    check_norm(name, norm)
    if math.isinf(norm):
        raise ValueError(f"{name}: norm must be finite, got inf")
    if bandwidth is not None:
        _check_bandwidth(name, bandwidth)
    data = _weighted_rows(read(name, y_true, p, weights))
    if len(data.probabilities) < 2:
        of = "" if weights is None else " of positive weight"
        raise ValueError(f"{name}: p must have at least 2 rows{of}, got 1")
    pairs = _comparisons(name, data, kind)
    errors = [_error(points, target, data.weights, norm, bandwidth) for points, target in pairs]
    return data.result(torch.stack(errors).mean())


@known_keywords
def kde_bandwidth(points: Array, *, candidates: tuple[float, ...] = CANDIDATES, max_points: int = MAX_POINTS) -> float:
    """Returns which of the candidates, > 0, makes the points most likely, each under the kernels of all others.

    The points are [n] in [0, 1], or [n, C] with rows that sum to one; of more than `max_points` >= 2 so many are
    drawn, the same in any order of the rows. TypeError for a wrong dtype, ValueError for a wrong shape or range.
    """
    x = as_scores("kde_bandwidth", "points", points, ndim=(1, 2)).detach()
    if x.ndim == 2:
        check_rows("kde_bandwidth", x)
    if len(x) < 2:
        raise ValueError("kde_bandwidth: points must have at least 2 rows, got 1")
    check_count("kde_bandwidth", "max_points", max_points, least=2)
    if not candidates:
        raise ValueError("kde_bandwidth: candidates must hold at least one bandwidth, got none")
    for candidate in candidates:
        _check_bandwidth("kde_bandwidth", candidate)
    return _likeliest(_on_simplex(x), candidates, max_points)


def _comparisons(function: str, data: Predictions, kind: Kind) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Pairs of points on a simplex [n, C] and what their first coordinates should foretell, [n, <= C]."""
    p = data.probabilities.double()
    if kind == "confidence" or (kind == "canonical" and data.n_classes == 2 and data.kind != "multilabel"):
        if kind == "canonical":
            scores, hits = (p if data.kind == "binary" else p[:, 1]), data.labels
        else:
            confidence, hits = confidence_and_correct(data)
            scores = confidence.double()
        if data.kind != "multilabel":
            return [(_on_simplex(scores), hits.double()[:, None])]
        return [(_on_simplex(scores[:, k]), hits[:, k : k + 1].double()) for k in range(p.shape[1])]
    if kind == "canonical":
        if data.kind == "multilabel":
            raise ValueError(f"{function}: kind must be 'classwise' or 'confidence' for multi-label data, got {kind!r}")
        return [(p, data.one_hot().double())]
    if kind == "classwise":
        p, hits = data.class_probabilities().double(), data.one_hot()
        return [(_on_simplex(p[:, k]), hits[:, k : k + 1].double()) for k in range(p.shape[1])]
    raise ValueError(f"{function}: kind must be 'canonical', 'classwise' or 'confidence', got {kind!r}")


def _weighted_rows(data: Predictions) -> Predictions:
    """Leaves out rows of weight 0, which no kernel should see."""
    if data.weights is None or bool((data.weights > 0).all()):
        return data
    kept = data.weights > 0
    return replace(data, probabilities=data.probabilities[kept], labels=data.labels[kept], weights=data.weights[kept])


def _on_simplex(x: torch.Tensor) -> torch.Tensor:
    x = x.double()
    return torch.stack((x, 1 - x), 1) if x.ndim == 1 else x


def _error(
    points: torch.Tensor, target: torch.Tensor, weights: torch.Tensor | None, norm: float, bandwidth: float | None
) -> torch.Tensor:
    if bandwidth is None:
        bandwidth = _likeliest(points.detach(), CANDIDATES, MAX_POINTS)
    if weights is None:
        weights = points.new_ones(len(points))
    gaps = []
    for start in range(0, len(points), ROWS):
        rows = slice(start, start + ROWS)
        # Only ratios of kernels matter: a softmax never underflows.
        expected = torch.softmax(_log_kernel(points, rows, bandwidth) + weights.log(), dim=1) @ target
        gaps.append((expected - points[rows, : target.shape[1]]).abs())
    gap = torch.cat(gaps)
    share = (weights / weights.sum())[:, None].expand_as(gap)
    return power_mean(share.flatten(), gap.flatten(), norm)


def _log_kernel(points: torch.Tensor, rows: slice, bandwidth: float) -> torch.Tensor:
    """Log Dir(x_j; x_i / h + 1) for j in `rows` and all i, [rows, n]; minus infinity where i = j."""
    tiny = torch.finfo(points.dtype).tiny
    inside = points[rows].clamp(min=tiny).log()  # 0 log 0 = 0: a kernel centred at 0 has density there
    alpha = points / bandwidth + 1
    constant = torch.lgamma(alpha.sum(1)) - torch.lgamma(alpha).sum(1)
    log_kernel = inside @ (alpha - 1).T + constant
    own = torch.arange(len(points), device=points.device)
    return log_kernel.masked_fill(own[rows][:, None] == own, -math.inf)


def _likeliest(points: torch.Tensor, candidates: tuple[float, ...], max_points: int) -> float:
    if len(points) > max_points:
        # The same part whatever the order of the rows: drawn from the sorted ones.
        drawn = np.sort(np.random.default_rng(0).permutation(len(points))[:max_points])
        order = np.lexsort(points.cpu().numpy().T)
        points = points[torch.from_numpy(order[drawn]).to(points.device)]
    everything = slice(0, len(points))
    scores = [float(torch.logsumexp(_log_kernel(points, everything, h), dim=1).sum()) for h in candidates]
    return candidates[max(range(len(candidates)), key=scores.__getitem__)]


def _check_bandwidth(function: str, bandwidth: float) -> None:
    if not 0 < bandwidth < math.inf:
        raise ValueError(f"{function}: bandwidth must be positive and finite, got {bandwidth}")
