"""The weight decay a graph wants, chosen by leave-one-out loss: no label is held out for it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from torch import Tensor
from torch.nn import functional as F

from calirare.calibration import Target, target_weights
from calirare.errors import InputError

# Kipf & Welling's (2017) 5e-4 and its doubles: dense features with few labels want more of it.
WEIGHT_DECAYS = (5e-4, 1e-3, 2e-3, 4e-3, 8e-3)


def loo_loss(logits: Tensor, labels: Tensor, target: Target = "balanced") -> float:
    """Returns the mean negative log-likelihood of leave-one-out logits for a target population.

    Of the network's own logits, before any map: the map comes after and would hide what it mends.

    Args:
        logits: of labelled nodes that represent the population, each under the model without its own label
            (`leave_one_out.own_logits.OwnLogits`), [n, k].
        labels: int64 [n].
        target: the population, see `calibration.target_weights`.

    Returns:
        The loss.
    """
    losses = F.cross_entropy(logits, labels, reduction="none")
    return float((target_weights(labels, logits.shape[1], target) * losses).mean())


def choose_weight_decay(loss: Callable[[float], float], candidates: Sequence[float] = WEIGHT_DECAYS) -> float:
    """Returns the weight decay with the lowest leave-one-out loss.

    Args:
        loss: trains a network with a weight decay and gives its `loo_loss`.
        candidates: weight decays to try, in this order; of equal losses the first wins.

    Returns:
        One of the candidates.

    Raises:
        ValueError: there is no candidate.
        InputError: no loss is finite.
    """
    if not candidates:
        raise ValueError("choose_weight_decay: candidates must name at least one weight decay, got none")
    losses = {decay: loss(decay) for decay in candidates}
    finite = {decay: value for decay, value in losses.items() if math.isfinite(value)}
    if not finite:
        raise InputError(
            f"weight decay auto: no leave-one-out loss is finite, got {losses}: lower the learning rate or scale the "
            "features"
        )
    return min(finite, key=lambda decay: finite[decay])
