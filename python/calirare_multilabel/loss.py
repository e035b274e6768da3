"""Losses for multi-label training: cross-entropy, focal loss and CMLCC, risk + beta * CE_p^p."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from calirare_multilabel.families import LabelModel, fit_gaussian
from calirare_multilabel.inputs import as_hot, check_norm
from calirare_multilabel.margins import Shrinkage, smooth_cdf

LossName = Literal["bce", "focal", "cmlcc"]
LOSS_NAMES: tuple[LossName, ...] = ("bce", "focal", "cmlcc")


def smooth_canonical_error(
    logits: Tensor,
    labels: Tensor,
    *,
    p: float = 1,
    bandwidth: float = 1.0,
    label_model: LabelModel = "density",
    shrinkage: Shrinkage = "auto",
) -> Tensor:
    """Returns CE_p^p per label of a minibatch, differentiable in the logits.

    The document's estimator (Eq. 1) with the Gaussian copula and with `smooth_cdf` in place of the empirical CDF. The
    gradient flows through f itself and through the conditional expectation (ranks, correlations, loadings). The CDF is
    taken over the logits: a copula does not see an increasing transformation, and logits have an even scale. Labels
    that are never or always present in the batch say nothing about calibration there and are left out of the mean.

    Args:
        logits: float32 or float64 [n, K], n >= 2, finite; f = sigmoid(logits).
        labels: multi-hot [n, K], bool or 0/1 of any type.
        p: order of the norm, >= 1; for p = 1 the derivative at a gap of 0 is 0.
        bandwidth: of the smooth CDF, see there.
        label_model: see `fit_gaussian`.
        shrinkage: see `normal_score_dependence`.

    Returns:
        Scalar, dtype of `logits`: mean over the labels that vary; 0 (with zero gradient) where none does.

    Raises:
        ValueError: a shape, a label or an option is wrong.

    Precision: correlations and their factorisation in float64.
    Cost: O(n^2 K + n K^2) time and O(n^2 K) scratch for a batch of n.
    """
    check_norm("smooth_canonical_error", p, "p")
    if logits.dim() != 2 or logits.shape != labels.shape:
        raise ValueError(
            f"smooth_canonical_error: labels must have the shape of logits, {list(logits.shape)}, "
            f"got {list(labels.shape)}"
        )
    check_rows("smooth_canonical_error", logits)
    hot = as_hot("smooth_canonical_error", labels.detach(), "labels")
    z = torch.special.ndtri(smooth_cdf(logits, bandwidth).double())
    fit = fit_gaussian(z, hot, shrinkage=shrinkage, label_model=label_model)
    gap = (fit.conditional_mean(z) - logits.double().sigmoid()).abs()
    per_label = (gap if p == 1 else gap**p).mean(0)
    varies = ~fit.degenerate
    return ((per_label * varies).sum() / varies.sum().clamp_min(1)).to(logits.dtype)


def check_rows(function: str, logits: Tensor) -> None:
    """Raises a ValueError where a batch [n, K] has fewer than two rows to rank."""
    if len(logits) < 2:
        raise ValueError(
            f"{function}: logits must have at least 2 rows, a calibration error is a property of several, got "
            f"{len(logits)}: leave the last batch out (DataLoader(drop_last=True)) or add it to another"
        )


def focal_loss(logits: Tensor, labels: Tensor, gamma: float = 2.0) -> Tensor:
    """Returns the focal loss per label decision, mean of -(1 - p_t)^gamma log p_t (Lin et al. 2017), a scalar.

    Args:
        logits: float [n, K].
        labels: multi-hot [n, K], dtype of `logits`.
        gamma: >= 0; 0 is cross-entropy.

    Raises:
        ValueError: gamma is negative.
    """
    if gamma < 0:
        raise ValueError(f"focal_loss: gamma must be at least 0, got {gamma}")
    entropy = F.binary_cross_entropy_with_logits(logits, labels, reduction="none")
    # Below the floor the power's derivative would be infinite for gamma < 1 and the product with entropy 0 a NaN.
    miss = (-torch.expm1(-entropy)).clamp_min(torch.finfo(logits.dtype).tiny ** 0.5)
    return (miss**gamma * entropy).mean() if gamma else entropy.mean()


class CMLCCLoss(nn.Module):
    """Risk + beta * CE_p^p: cross-entropy regularised by the canonical calibration error of the batch.

    Both terms are means over the labels, so that beta weighs them as in the document, where both are sums.

    Args:
        beta: weight of the calibration error, >= 0, finite.
        p: order of the norm, >= 1.
        bandwidth: of the smooth CDF.
        label_model: "density" (the document's loss, with which the experiments were made) or "threshold", as
            `canonical_calibration_error` has it; see `CopulaOptions`.

    Raises:
        ValueError: beta is negative or not finite.

    Example:
        >>> import torch
        >>> logits = torch.randn(64, 4, generator=torch.Generator().manual_seed(0), requires_grad=True)
        >>> labels = (torch.arange(256).reshape(64, 4) % 3 == 0).float()
        >>> CMLCCLoss(beta=1.0)(logits, labels).backward()
        >>> bool((logits.grad != 0).all())
        True
    """

    def __init__(
        self, beta: float, *, p: float = 1, bandwidth: float = 1.0, label_model: LabelModel = "density"
    ) -> None:
        super().__init__()
        if not 0 <= beta < math.inf:
            raise ValueError(f"CMLCCLoss: beta must be at least 0 and finite, got {beta}")
        check_norm("CMLCCLoss", p, "p")
        self.beta, self.p, self.bandwidth, self.label_model = beta, p, bandwidth, label_model

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Returns the loss of a minibatch, a scalar, of logits float [n, K], n >= 2, and 0/1 labels [n, K]."""
        labels = as_hot("CMLCCLoss", labels, "labels")
        risk = F.binary_cross_entropy_with_logits(logits, labels.to(logits.dtype))
        if self.beta == 0:
            return risk
        check_rows("CMLCCLoss", logits)
        if not bool(torch.isfinite(logits.detach()).all()):
            raise ValueError("CMLCCLoss: logits must be finite, got NaN or infinity: look at the learning rate")
        error = smooth_canonical_error(logits, labels, p=self.p, bandwidth=self.bandwidth, label_model=self.label_model)
        return risk + self.beta * error
