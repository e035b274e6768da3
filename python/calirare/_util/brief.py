"""What a notebook shows of a value that holds arrays: shapes and types, not numbers."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import torch

LONGEST = 160  # characters of a field: a graph says its own line


def brief(value: Any) -> str:
    """Returns one line for a dataclass: each field by `describe`; assign it to `__repr__`."""
    fields = (f for f in dataclasses.fields(value) if f.repr)
    return f"{type(value).__name__}({', '.join(f'{f.name}={describe(getattr(value, f.name))}' for f in fields)})"


def describe(value: Any) -> str:
    """Returns type and shape of an array, the repr of what has a short one, and otherwise the name of its class."""
    if isinstance(value, torch.Tensor | np.ndarray):
        return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
    if isinstance(value, torch.nn.Module):  # its repr would walk the network
        return type(value).__name__
    text = repr(value)
    return text if len(text) <= LONGEST and "\n" not in text else f"{type(value).__name__}(...)"
