"""The state of torch that computations are written for: defaults, threads and named ranges."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch

_turn, _inside, _before = threading.Lock(), 0, torch.float32  # the default dtype is one for all threads


@contextmanager
def plain_torch() -> Iterator[None]:
    """Puts torch into the state of a fresh process for a while: default dtype, device, gradients, no inference mode.

    A program that serves under `torch.inference_mode()`, casts automatically or computes in float64 has the numbers of
    every other. Also a decorator, `@plain_torch()`.
    """
    with _float32(), plain_modes():
        yield


@contextmanager
def plain_modes() -> Iterator[None]:
    """Does the same but for the default dtype, which a module of the user's may count on."""
    with ExitStack() as stack:
        if torch.is_inference_mode_enabled():
            stack.enter_context(torch.inference_mode(False))
        if not torch.is_grad_enabled():
            stack.enter_context(torch.enable_grad())
        for kind in ("cpu", "cuda"):
            if torch.is_autocast_enabled(kind):
                stack.enter_context(torch.autocast(kind, enabled=False))
        if torch.get_default_device().type != "cpu":
            stack.enter_context(torch.device("cpu"))
        yield


@contextmanager
def _float32() -> Iterator[None]:
    """Holds the default dtype at float32 until the last thread inside leaves."""
    global _inside, _before
    with _turn:
        if not _inside:
            _before = torch.get_default_dtype()
            torch.set_default_dtype(torch.float32)
        _inside += 1
    try:
        yield
    finally:
        with _turn:
            _inside -= 1
            if not _inside:
                torch.set_default_dtype(_before)


# Multiply-adds per step below which a second thread gains less than it loses: some 0.5 ms of work per operator.
# Measured on a busy machine: 200 epochs on Cora took 7 s of processor time with one thread and 50 s with two, which
# spun while they waited for each other.
SMALL = 8_000_000


@contextmanager
def threads_for(work: float) -> Iterator[None]:
    """Runs a block on one thread when its steps are small, and gives torch its threads back afterwards.

    Args:
        work: multiply-adds of one step.
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


PREFIX = "calirare: "


@contextmanager
def named(name: str) -> Iterator[None]:
    """Marks a block in a trace of torch.profiler (and with NVTX within `torch.autograd.profiler.emit_nvtx`).

    Args:
        name: of the stage.
    """
    with torch.profiler.record_function(PREFIX + name):
        yield
