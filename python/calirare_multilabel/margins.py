"""The margins of the copula: empirical CDFs of the scores and the continuous extension of the labels.

The document prints `F_j(f) = #{i : f <= f_i} / n`. That inequality is reversed: it is one minus the distribution
function (up to ties), it falls from 1 to 1/n, and at 1 the normal score is infinite. The rule `"printed"` keeps the
inequality and divides by n + 1, which keeps every value inside (0, 1) (the usual pseudo-observations of maximum
pseudo-likelihood; Genest, Ghoudi & Rivest 1995). Without ties all rules agree up to the mirror u -> 1 - u, which no
elliptical copula can tell apart.
"""

from __future__ import annotations

import math
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from calirare._util.errors import shown

CdfRule = Literal["printed", "empirical", "midrank"]
SWAPS = 8  # rounds of swaps before an ordinary sort takes over
CDF_RULES: tuple[CdfRule, ...] = ("printed", "empirical", "midrank")


def pseudo_observations(scores: Tensor, rule: CdfRule = "printed") -> tuple[Tensor, Tensor]:
    """Returns the empirical CDF of each column at its own values, inside (0, 1).

    Args:
        scores: float32 or float64 [n, k], finite.
        rule: "printed" counts #{i : f <= f_i} as the document does, "empirical" counts #{i : f_i <= f}, "midrank" is
            the mean rank of tied values; each is divided by n + 1.

    Returns:
        u float64 [n, k] in (0, 1), stored column by column, and the share of rows in each column whose value occurs
        more than once, float64 [k].

    Raises:
        ValueError: the rule is unknown.

    Cost: one sort per column, O(n k log n) time, O(n k) memory; columns are sorted in parallel on the CPU.
    """
    if rule not in CDF_RULES:
        raise ValueError(f"pseudo_observations: rule must be one of {', '.join(CDF_RULES)}, got {rule!r}")
    n, k = scores.shape
    columns = torch.empty(k, n, dtype=torch.float64, device=scores.device)
    tied = torch.zeros(k, dtype=torch.float64)
    if scores.device.type != "cpu":
        for j in range(k):
            columns[j], tied[j] = _column_torch(scores[:, j].contiguous(), rule)
        return columns.T, tied.to(scores.device)
    source, target = scores.detach().numpy(), columns.numpy()

    def fill(j: int) -> None:
        tied[j] = _column_numpy(np.ascontiguousarray(source[:, j]), rule, target[j])

    workers = min(k, torch.get_num_threads(), os.cpu_count() or 1)
    if workers > 1 and n * k > 100_000:  # below, starting threads costs more than it saves
        with ThreadPoolExecutor(workers) as pool:
            list(pool.map(fill, range(k)))
    else:
        for j in range(k):
            fill(j)
    return columns.T, tied


def _column_numpy(values: np.ndarray, rule: CdfRule, out: np.ndarray) -> float:
    """Writes the pseudo-observations of one column into `out` and returns the share of tied rows."""
    n = len(values)
    order, ordered = _sorted(values)
    new_value = ordered[1:] != ordered[:-1]
    if new_value.all():
        grid = np.arange(1.0, n + 1) / (n + 1)
        out[order] = grid[::-1] if rule == "printed" else grid
        return 0.0
    starts = np.concatenate(([0], np.flatnonzero(new_value) + 1))
    sizes = np.diff(starts, append=n)
    rank = {"printed": n - starts, "empirical": starts + sizes, "midrank": starts + (sizes + 1) / 2}[rule]
    out[order] = np.repeat(rank / (n + 1), sizes)
    return float(sizes[sizes > 1].sum() / n)


def _sorted(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns an order that sorts the values, equal ones in any order, and the sorted values.

    NumPy sorts 64-bit integers several times as fast as it finds the order of numbers. The bits of numbers in [0, 2)
    are in the numbers' own order, so their upper ones and the place are sorted as one integer; neighbours that differ
    in the lower bits alone are then few and put right by swaps.
    """
    place_bits = np.uint64((len(values) - 1).bit_length())
    if values.min() >= 0 and values.max() < 2:
        keys = (values.astype(np.float64) + 0.0).view(np.uint64) << np.uint64(2)  # + 0.0 turns -0 into 0
        keys = keys >> place_bits << place_bits | np.arange(len(values), dtype=np.uint64)
        keys.sort()
        order = (keys & ((np.uint64(1) << place_bits) - np.uint64(1))).view(np.int64)
        ordered = values[order]
        for _ in range(SWAPS):
            wrong = np.flatnonzero(ordered[1:] < ordered[:-1])
            if len(wrong) == 0:
                return order, ordered
            first = wrong[np.diff(wrong, prepend=-2) > 1]  # of adjoining pairs one at a time
            for part in (order, ordered):
                part[first], part[first + 1] = part[first + 1], part[first]
    order = np.argsort(values)
    return order, values[order]


def _column_torch(values: Tensor, rule: CdfRule) -> tuple[Tensor, Tensor]:
    """Returns what `_column_numpy` computes, on any device."""
    n = len(values)
    _, inverse, sizes = torch.unique(values, return_inverse=True, return_counts=True)
    ends = sizes.cumsum(0)
    rank = {"printed": n - ends + sizes, "empirical": ends, "midrank": ends - (sizes - 1) / 2}[rule]
    return (rank.double() / (n + 1))[inverse], sizes[sizes > 1].sum() / n


def smooth_cdf(values: Tensor, bandwidth: float) -> Tensor:
    """Returns a differentiable CDF of each column at its own values.

    The empirical CDF is a step function: its gradient is zero wherever it exists, so nothing can be trained through
    it. Here each step becomes a normal CDF, `F_j(f) = 1/n sum_i Phi((f - f_i) / h_j)`, with h_j = bandwidth times the
    standard deviation of column j times n^(-1/5). The sum contains the value itself (Phi(0) = 1/2), which keeps F in
    [1/(2n), 1 - 1/(2n)]; for h -> 0 it is (rank - 1/2) / n.

    Args:
        values: float32 or float64 [n, k], n >= 2; any strictly increasing function of the scores serves, logits are
            best because their scale is even.
        bandwidth: > 0; about 1 is the normal reference rule.

    Returns:
        u [n, k], dtype of `values`, in (0, 1), differentiable in `values` with the bandwidth's own dependence on them.

    Raises:
        ValueError: the bandwidth is not positive, or n < 2.

    Cost: O(n^2 k) time, and memory where gradients are recorded; meant for minibatches.
    """
    n = values.shape[0]
    if not (bandwidth > 0 and math.isfinite(bandwidth)):
        raise ValueError(f"smooth_cdf: bandwidth must be positive, got {bandwidth}")
    if n < 2:
        raise ValueError(f"smooth_cdf: values must have at least 2 rows, got {n}")
    columns = values.T.contiguous()
    centred = columns - columns.mean(1, keepdim=True)
    # A column without spread gives 0/0 in the gradient of the root: the floor keeps it finite and the CDF at 1/2.
    floor = torch.finfo(values.dtype).tiny ** 0.5
    spread = (centred.square().mean(1, keepdim=True) + floor).sqrt()
    scaled = centred / (spread * (math.sqrt(2) * bandwidth * n**-0.2))
    return _PairwiseNormalCdf.apply(scaled).T


class _PairwiseNormalCdf(torch.autograd.Function):
    """u_ki = mean_j Phi(sqrt(2) (x_ki - x_kj)) for x [k, n]; the derivative is a symmetric kernel, made anew."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return 0.5 + 0.5 * (x[:, :, None] - x[:, None, :]).erf_().mean(2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        g = grads[0] / (math.sqrt(math.pi) * x.shape[1])
        kernel = (x[:, :, None] - x[:, None, :]).square_().neg_().exp_()
        return g * kernel.sum(2) - (kernel @ g[:, :, None]).squeeze(2)


def label_scores(positive_rate: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the normal scores of the two label values, y = 0 and y = 1, float [k], from p(1), float [k], in (0, 1).

    The document spreads each label over an interval of width 1, which puts them at Phi^-1(p(0)/2) and
    Phi^-1(p(0) + p(1)/2); the second is computed as -Phi^-1(p(1)/2), exact for rare labels.
    """
    return torch.special.ndtri((1 - positive_rate) / 2), -torch.special.ndtri(positive_rate / 2)


Shrinkage = float | Literal["auto"]
JITTER_START, JITTER_STOP = 1e-10, 1e-2  # of a matrix with unit diagonal
SMALLEST_PIVOT = 1e-5  # its square is far above rounding (1e-16) and far below any correlation that means something


@dataclass(frozen=True, eq=False)
class Dependence:
    """The correlation of the normal scores and how it was made safe.

    Attributes:
        correlation: (1 - shrinkage) R + (shrinkage + jitter) I, float64 [k, k].
        factor: its lower Cholesky factor, float64 [k, k].
        standardised: normal scores with mean 0 and variance 1 per column (0 in a column without spread), [n, k].
        shrinkage: weight of the identity, in [0, 1], scalar tensor.
        jitter: what had to be added to the diagonal for the Cholesky factorisation to succeed; 0 mostly.
    """

    correlation: Tensor
    factor: Tensor
    standardised: Tensor
    shrinkage: Tensor
    jitter: float


def normal_score_dependence(z: Tensor, shrinkage: Shrinkage = "auto") -> Dependence:
    """Estimates the correlation matrix of a Gaussian copula from normal scores.

    The correlation of normal scores (van der Waerden) is the pseudo-likelihood estimate up to terms that vanish with
    n. "auto" pulls it towards the identity by the analytic weight of Schaefer & Strimmer (2005, target D with unit
    variances), `sum Var(r_ij) / sum r_ij^2`, which is O(1/n): it matters for n near or below k and vanishes otherwise.

    Args:
        z: normal scores, float64 [n, k], n >= 2.
        shrinkage: "auto" or a weight in [0, 1].

    Returns:
        The estimate; differentiable in `z`.

    Raises:
        ValueError: the weight is out of range, or the matrix cannot be factored with the largest jitter.

    Cost: O(n k^2) time, O(n k) memory.
    """
    n, k = z.shape
    centred = z - z.mean(0)
    variance = centred.square().mean(0)
    constant = (variance <= 1e-20).detach()
    standardised = centred * torch.where(constant, torch.zeros_like(variance), variance.clamp_min(1e-20).rsqrt())
    gram = standardised.T @ standardised / n
    eye = torch.eye(k, dtype=z.dtype, device=z.device)
    off = gram * (1 - eye)
    if shrinkage == "auto":
        square = standardised.square()
        noise = ((square.T @ square / n - gram.square()) * (1 - eye)).sum() / n
        signal = off.square().sum()
        weight = torch.where(signal > 0, noise / signal.clamp_min(1e-300), torch.ones_like(signal)).clamp(0, 1)
    elif isinstance(shrinkage, float | int) and 0 <= shrinkage <= 1:
        weight = torch.as_tensor(float(shrinkage), dtype=z.dtype, device=z.device)
    else:
        raise ValueError(f'normal_score_dependence: shrinkage must be "auto" or lie in [0, 1], got {shown(shrinkage)}')
    correlation, factor, jitter = _factor((1 - weight) * off + eye)
    return Dependence(correlation, factor, standardised, weight, jitter)


def _factor(matrix: Tensor) -> tuple[Tensor, Tensor, float]:
    """Returns the matrix, possibly with a larger diagonal, its Cholesky factor and what was added."""
    jitter, eye = 0.0, torch.eye(len(matrix), dtype=matrix.dtype, device=matrix.device)
    while True:
        raised = matrix + jitter * eye if jitter else matrix
        factor, info = torch.linalg.cholesky_ex(raised)
        # A factor whose smallest pivot is rounding noise solves nothing: ask for pivots above the noise.
        if int(info) == 0 and float(factor.detach().diagonal().min()) > SMALLEST_PIVOT:
            return raised, factor, jitter
        if jitter >= JITTER_STOP:
            raise ValueError(
                f"normal_score_dependence: the correlation matrix must be factorable with a jitter of at "
                f"most {JITTER_STOP:g}, got a matrix that is not: check the scores for NaN"
            )
        jitter = max(10 * jitter, JITTER_START)
