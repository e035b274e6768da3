"""The EICE term of the loss, with its gradient (paper, Eq. 9, 10 and 13)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from calirare_ext import jackknife_interval

GradientPath = Literal["confidence", "scores", "residuals"]
PATHS: tuple[GradientPath, ...] = ("confidence", "scores", "residuals")


@dataclass(frozen=True)
class EiceTerm:
    """The term and its parts, all differentiable.

    Attributes:
        value: EICE, the mean over the nodes of |uncertainty - confidence|.
        uncertainty: [n].
        confidence: [n].
    """

    value: Tensor
    uncertainty: Tensor
    confidence: Tensor


def eice_term(
    logits: Tensor,
    change: Tensor,
    own_logits: Tensor,
    own_change: Tensor,
    targets: Tensor,
    *,
    coverage: float = 0.9,
    paths: tuple[GradientPath, ...] = PATHS,
) -> EiceTerm:
    """Returns L_EICE = mean_v |uncer(v) - conf(v)| as a function of the logits (paper, Algorithm 1 and Eq. 13).

    f(v; theta_-i) is the softmax of the logits at v plus their change when node i is left out, r_i = |y_i -
    f(i; theta_-i)|. The changes are constants; everything else carries the gradient of exactly this function:

    - through conf(v), with the path "confidence";
    - through the leave-one-out scores f(v; theta_-i) of the order statistics that make an end, "scores";
    - through the residuals r_i of the same models, "residuals".

    Without a path its quantity is a constant. Without any the term has no gradient, as in the authors' code.

    Args:
        logits: of the regulariser's nodes, [n, k], differentiable.
        change: how their logit differences move in each leave-one-out model, [n, k - 1, m].
        own_logits: of the labelled nodes, [m, k], differentiable.
        own_change: how each labelled node's differences move without itself, [m, k - 1].
        targets: classes of the labelled nodes, int64 [m].
        coverage: in (0, 1).
        paths: what carries the gradient.

    Returns:
        The term.

    Raises:
        ValueError: a path is unknown or the coverage is out of range.
    """
    unknown = [path for path in paths if path not in PATHS]
    if unknown:
        raise ValueError(f"eice_term: paths must be among {', '.join(PATHS)}, got {unknown[0]!r}")
    if not 0 < coverage < 1:
        raise ValueError(f"eice_term: coverage must be in (0, 1), got {coverage}")
    predicted = logits.detach().argmax(1)
    two = logits.shape[1] == 2
    watched = torch.ones_like(predicted) if two else predicted
    scores = loo_scores(logits if "scores" in paths else logits.detach(), change, watched)
    residuals = loo_residuals(own_logits if "residuals" in paths else own_logits.detach(), own_change, targets)
    lower, upper, _, _ = jackknife_interval(scores, residuals, (1 - coverage) / 2, 1 - (1 - coverage) / 2)
    midpoint = (lower + upper) / 2
    uncertainty = torch.where(predicted == 0, 1 - midpoint, midpoint) if two else midpoint
    through = logits if "confidence" in paths else logits.detach()
    confidence = torch.softmax(through, 1).gather(1, predicted[:, None]).squeeze(1)
    return EiceTerm((uncertainty - confidence).abs().mean(), uncertainty, confidence)


def loo_scores(logits: Tensor, change: Tensor, watched: Tensor) -> Tensor:
    """Returns f(v; theta_-i), the probability of the watched class in each leave-one-out model, [n, m].

    Args:
        logits: [n, k].
        change: of the logit differences, [n, k - 1, m].
        watched: int64 [n], class whose probability is f(v).

    Returns:
        Scores.
    """
    differences = (logits[:, 1:] - logits[:, :1])[:, :, None] + change
    if differences.shape[1] == 1:
        return torch.sigmoid(differences[:, 0])
    full = torch.cat([torch.zeros_like(differences[:, :1]), differences], 1)
    place = watched[:, None, None].expand(-1, 1, full.shape[2])
    return torch.softmax(full, 1).gather(1, place).squeeze(1)


def loo_residuals(own_logits: Tensor, own_change: Tensor, targets: Tensor) -> Tensor:
    """Returns r_i = |y_i - f(i; theta_-i)|, [m].

    With two classes f is the probability of class 1; with more, of the class predicted at i, and y_i says whether that
    class is right.

    Args:
        own_logits: of the labelled nodes, [m, k].
        own_change: [m, k - 1].
        targets: int64 [m].

    Returns:
        Residuals.
    """
    two = own_logits.shape[1] == 2
    watched = torch.ones_like(targets) if two else own_logits.detach().argmax(1)
    f = loo_scores(own_logits, own_change[:, :, None], watched).squeeze(1)
    return ((targets == watched).to(f.dtype) - f).abs()
