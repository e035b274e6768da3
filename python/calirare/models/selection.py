"""What a graph wants, chosen by leave-one-out loss, no label held out for it: the weight decay and the hops."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeVar

from torch import Tensor
from torch.nn import functional as F

from calirare._util.errors import InputError
from calirare.calibration import Target, target_weights

# Kipf & Welling's (2017) 5e-4 and its doubles: dense features with few labels want more of it.
WEIGHT_DECAYS = (5e-4, 1e-3, 2e-3, 4e-3, 8e-3)
# How often features are propagated before the first weights: 1 is a plain GCN, see `propagation.propagation`.
HOPS = (1, 2, 3)
Candidate = TypeVar("Candidate", int, float)


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


def choose(loss: Callable[[Candidate], float], candidates: Sequence[Candidate], what: str) -> Candidate:
    """Returns the candidate with the lowest leave-one-out loss.

    Args:
        loss: trains a network with a candidate and gives its `loo_loss`.
        candidates: such as `WEIGHT_DECAYS`, tried in this order; of equal losses the first wins.
        what: they are, for messages.

    Raises:
        InputError: no loss is finite.
    """
    losses = {candidate: loss(candidate) for candidate in candidates}
    finite = {candidate: value for candidate, value in losses.items() if math.isfinite(value)}
    if not finite:
        raise InputError(
            f"{what} auto: no leave-one-out loss is finite, got {losses}: lower the learning rate or scale the features"
        )
    return min(finite, key=lambda candidate: finite[candidate])
