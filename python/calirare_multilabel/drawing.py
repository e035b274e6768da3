"""Random numbers of one training, whatever other threads draw."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn import init
from torch.overrides import TorchFunctionMode

_drawing = threading.RLock()  # torch's own generators are one for all threads


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Seeds torch's own generators for a while, for one thread after the other, and puts them back after.

    A thread that draws from them without asking here still disturbs: where it can, a work has a generator of its own.
    """
    with _drawing, torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield


_DRAW = {torch.Tensor.uniform_, torch.Tensor.normal_, init.uniform_, init.normal_, init.kaiming_uniform_}


class DrawnFrom(TorchFunctionMode):
    """Lets the initial weights of layers made on the CPU be drawn from its generator, whatever other threads draw."""

    def __init__(self, generator: torch.Generator) -> None:
        super().__init__()
        self.generator = generator

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Calls a function of torch, with the generator where it draws."""
        kwargs = dict(kwargs or {})
        if func in _DRAW and kwargs.get("generator") is None:
            filled = args[0] if args else kwargs["tensor"]
            kwargs["generator"] = self.generator if filled.device.type == "cpu" else None
        return func(*args, **kwargs)
