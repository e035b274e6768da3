"""How many threads a piece of work is worth."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

# Multiply-adds per step below which a second thread gains less than it loses: some 0.5 ms of work per operator.
# Measured on a busy machine: 200 epochs on Cora took 7 s of processor time with one thread and 50 s with two, which
# spun while they waited for each other.
SMALL = 8_000_000


@contextmanager
def threads_for(work: float) -> Iterator[None]:
    """Runs a block on one thread when its steps are small, and gives torch its threads back afterwards.

    Args:
        work: multiply-adds of one step.

    Yields:
        Nothing.
    """
    before = torch.get_num_threads()
    if before == 1 or work >= SMALL:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
