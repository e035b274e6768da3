"""Settings of a network that are chosen by leave-one-out loss."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeVar

from calirare._util.errors import InputError

# Kipf & Welling's (2017) 5e-4 and its doubles: dense features with few labels want more of it.
WEIGHT_DECAYS = (5e-4, 1e-3, 2e-3, 4e-3, 8e-3)
# How often features are propagated before the first weights: 1 is a plain GCN, see `propagation.propagation`.
HOPS = (1, 2, 3)
Candidate = TypeVar("Candidate", int, float)


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
