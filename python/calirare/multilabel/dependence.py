"""The dependence between the scores: a correlation matrix of normal scores that can always be factored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

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
        raise ValueError(f'normal_score_dependence: shrinkage must be "auto" or lie in [0, 1], got {shrinkage!r}')
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
