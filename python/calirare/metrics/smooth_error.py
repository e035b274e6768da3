"""Smooth and soft calibration errors: a kernel, or soft bins, in place of bins with edges."""

from __future__ import annotations

import math

import torch

from calirare._util.arrays import Array, check_count
from calirare._util.keywords import known_keywords
from calirare.metrics.binning import power_mean
from calirare.metrics.inputs import Scalar, check_norm, read, read_event
from calirare.metrics.predictions import confidence_and_correct

# Cells of [0, 1]. Residuals are split between the two nearest cell centres; a value is good to about one cell.
GRID = 4096
# Cells per width of the kernel. Splitting a residual between cells h apart adds at most h^2/4 to its variance and so
# 1/2 h^2/4 |K''|_1 = 0.13 (h/s)^2 to the error, since |K''|_1 = 4 phi(1) / s^2: with 32 cells half of 1/4096.
CELLS_PER_WIDTH = 32
SMALLEST_BANDWIDTH = 1e-4


@known_keywords
def smooth_calibration_error(
    y_true: Array, p: Array, *, bandwidth: float | None = None, weights: Array | None = None
) -> Scalar:
    """The smECE of Blasiok and Nakkiran (2023) for one event's probabilities.

    smECE_s = integral over [0, 1] of |1/n sum_i (y_i - f_i) K_s(t, f_i)| dt, where K_s is the Gaussian kernel of width
    s reflected at 0 and 1. It falls as s grows; without a bandwidth the value is the s at which smECE_s = s: no
    setting is left, small changes of the scores change it little, and it bounds the distance to calibration.

    Args:
        y_true: 1 where the event happened, else 0, [n].
        p: its predicted probabilities, [n], in [0, 1].
        bandwidth: s >= 1e-4; None takes the fixed point.
        weights: sample weights [n] >= 0, or None.

    Returns:
        The error in [0, 1]: a float for numpy input, a 0-dim tensor for torch input; differentiable in `p` (at the
        fixed point by the implicit function theorem).

    Raises:
        TypeError: dtype is wrong, or `y_true` and `p` are exchanged.
        ValueError: shape or range is wrong.

    Precision: the residuals lie on 4,096 cells, on more where a bandwidth below 1/128 is given: a cell is at most a
        32nd of it; absolute error below 1/4096.
    Cost: O(n + 4096) time per bandwidth tried, O(n) memory; 524,288 cells for a bandwidth of 1e-4.
    """
    data = read_event("smooth_calibration_error", y_true, p, weights)
    _check_bandwidth("smooth_calibration_error", bandwidth)
    return data.result(_error(data.probabilities, data.labels, data.weights, bandwidth))


@known_keywords
def smooth_ece(y_true: Array, p: Array, *, bandwidth: float | None = None, weights: Array | None = None) -> Scalar:
    """`smooth_calibration_error` of the confidence: how far the predicted class's probability is from its accuracy.

    Takes and raises what `ece` does, with `bandwidth` as in `smooth_calibration_error`, and returns what that does; the
    mean over labels if multi-label.
    """
    data = read("smooth_ece", y_true, p, weights)
    _check_bandwidth("smooth_ece", bandwidth)
    confidence, correct = confidence_and_correct(data)
    if data.kind != "multilabel":
        return data.result(_error(confidence, correct, data.weights, bandwidth))
    columns = zip(confidence.unbind(1), correct.unbind(1), strict=True)
    return data.result(torch.stack([_error(c, hit, data.weights, bandwidth) for c, hit in columns]).mean())


def _check_bandwidth(function: str, bandwidth: float | None) -> None:
    if bandwidth is not None and not SMALLEST_BANDWIDTH <= bandwidth < math.inf:
        raise ValueError(
            f"{function}: bandwidth must be positive, at least {SMALLEST_BANDWIDTH:g} and finite, got {bandwidth}: "
            "give a wider one, or leave it out"
        )


def _error(
    scores: torch.Tensor, outcomes: torch.Tensor, weights: torch.Tensor | None, bandwidth: float | None
) -> torch.Tensor:
    spectrum = _spectrum(scores.double(), outcomes.double(), weights, _cells(bandwidth))
    if bandwidth is not None:
        return _smoothed(spectrum, torch.tensor(bandwidth, dtype=torch.float64, device=scores.device))
    with torch.no_grad():
        width = _fixed_point(spectrum)
    if not scores.requires_grad:
        return width
    # s = F(s, scores)  =>  ds = dF / (1 - dF/ds), and dF/ds <= 0 keeps the divisor at one or more.
    free = width.clone().requires_grad_()
    value = _smoothed(spectrum, free)
    (slope,) = torch.autograd.grad(value, free, retain_graph=True)
    value = _smoothed(spectrum, width)
    return width + (value - value.detach()) / (1 - slope)


def _cells(bandwidth: float | None) -> int:
    """Number of cells: a power of two, fine enough for a given bandwidth."""
    if bandwidth is None or bandwidth * GRID >= CELLS_PER_WIDTH:
        return GRID
    return 1 << math.ceil(math.log2(CELLS_PER_WIDTH / bandwidth))


def _spectrum(scores: torch.Tensor, outcomes: torch.Tensor, weights: torch.Tensor | None, grid: int) -> torch.Tensor:
    """Cosine coefficients of the residuals' measure (1/n) sum_i (y_i - f_i) delta(t - f_i)."""
    residual = outcomes - scores
    residual = residual / len(scores) if weights is None else residual * weights / weights.sum()
    # Position among the cell centres (g + 1/2) / grid; what falls off an end is reflected onto the last cell.
    position = scores * grid - 0.5
    left = position.detach().floor()
    fraction = position - left
    left = left.long()
    cells = residual.new_zeros(grid)
    cells = cells.index_add(0, left.clamp(min=0), residual * (1 - fraction))
    cells = cells.index_add(0, (left + 1).clamp(max=grid - 1), residual * fraction)
    # The even extension turns the reflecting kernel into a circular convolution.
    return torch.fft.rfft(torch.cat((cells, cells.flip(0))))


def _smoothed(spectrum: torch.Tensor, width: torch.Tensor) -> torch.Tensor:
    """Integral of |residual * kernel|: frequency k on [0, 1] is cos(pi k t), damped by exp(-(pi k s)^2 / 2)."""
    k = torch.arange(len(spectrum), dtype=torch.float64, device=spectrum.device)
    damped = spectrum * torch.exp(-((math.pi * k * width) ** 2) / 2)
    grid = len(spectrum) - 1
    return torch.fft.irfft(damped, n=2 * grid)[:grid].abs().sum()


def _fixed_point(spectrum: torch.Tensor) -> torch.Tensor:
    """The s in [0, 1] with smECE_s = s: smECE_s falls from the finely binned error at 0 to at most 1."""
    low = spectrum.real.new_zeros(())
    high = torch.ones_like(low)
    for _ in range(40):
        middle = (low + high) / 2
        above = _smoothed(spectrum, middle) > middle
        low, high = torch.where(above, middle, low), torch.where(above, high, middle)
    return (low + high) / 2


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
