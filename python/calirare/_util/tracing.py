"""Named ranges: what a profile's timeline is labelled with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

PREFIX = "calirare: "


@contextmanager
def named(name: str) -> Iterator[None]:
    """Marks a block in a trace of torch.profiler, and with NVTX where CUDA is in use; costs microseconds otherwise.

    Args:
        name: of the stage.

    Yields:
        Nothing.
    """
    nvtx = torch.cuda.is_available() and torch.cuda.is_initialized()
    if nvtx:
        torch.cuda.nvtx.range_push(PREFIX + name)
    try:
        with torch.profiler.record_function(PREFIX + name):
            yield
    finally:
        if nvtx:
            torch.cuda.nvtx.range_pop()
