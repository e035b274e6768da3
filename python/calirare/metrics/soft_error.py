"""Soft-binned ECE: every sample belongs to every bin a little, which makes the error differentiable."""

from __future__ import annotations

import torch

from calirare._util.arrays import Array, check_count
from calirare._util.keywords import known_keywords
from calirare.metrics.binning import power_mean
from calirare.metrics.inputs import Scalar, check_norm, read
from calirare.metrics.predictions import confidence_and_correct


@known_keywords
def soft_ece(
    y_true: Array,
    p: Array,
    n_bins: int = 15,
    norm: float = 2,
    *,
    temperature: float = 1e-3,
    weights: Array | None = None,
) -> Scalar:
    """Soft-binned ECE of the confidence (Karandikar et al. 2021): (sum_m S_m/n |A_m - C_m|^p)^(1/p).

    A sample's membership in bin m is softmax_m(-(c - centre_m)^2 / temperature); S_m, C_m and A_m are the total
    membership, the mean confidence and the mean correctness weighted by it. As the temperature falls it becomes `ece`.
    Gradients flow through the confidences and the memberships; which class is predicted stays fixed. At zero error the
    root has no slope: use the p-th power as a loss.

    Takes, returns and raises what `ece` does, with a finite norm and `temperature` > 0 in units of squared confidence:
    well below 1/M^2 the bins are nearly hard. Memory O(n M).
    """
    check_count("soft_ece", "n_bins", n_bins)
    check_norm("soft_ece", norm)
    if not 0 < temperature < float("inf"):
        raise ValueError(f"soft_ece: temperature must be positive and finite, got {temperature}")
    if norm == float("inf"):
        raise ValueError("soft_ece: norm must be finite, got inf")
    data = read("soft_ece", y_true, p, weights)
    confidence, correct = confidence_and_correct(data)
    if data.kind != "multilabel":
        confidence, correct = confidence[:, None], correct[:, None]
    confidence, hit = confidence.double(), correct.double()
    centres = (torch.arange(n_bins, dtype=torch.float64, device=confidence.device) + 0.5) / n_bins
    member = torch.softmax(-((confidence[..., None] - centres) ** 2) / temperature, dim=-1)
    if data.weights is not None:
        member = member * data.weights[:, None, None]
    size = member.sum(0)
    surplus = (member * (hit - confidence)[..., None]).sum(0)
    gap = surplus.abs() / torch.where(size > 0, size, 1.0)
    share = size / size.sum(1, keepdim=True)
    return data.result(power_mean(share, gap, norm).mean())
