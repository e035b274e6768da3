"""Whether what a saved model holds can be what a training wrote: numbers that decide about every node."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor

from calirare.calibration.decisions import NONE

MAY_BE_NAN = (".spread", ".fill")  # of constant features; what fills in where none may lack


def check_model(tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
    """Checks tensors, classes, damping, threshold and the maps' numbers.

    Args:
        tensors: by name.
        facts: what is stored beside them.

    Raises:
        ValueError: one is no number, out of range or there twice.
        LookupError: one is missing.
    """
    for name, tensor in tensors.items():
        if not name.endswith(MAY_BE_NAN) and not bool(tensor.isfinite().all()):
            raise ValueError(f"{name} must hold finite numbers")
    names = facts["class_names"]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names) or len(set(names)) < 2:
        raise ValueError(f"class_names must be the names of two classes at least, got {names}")
    if len(set(names)) < len(names):
        raise ValueError(f"class_names must be there once each, got {names}")
    for name, most in (("damping", math.inf), ("threshold", NONE)):
        value = facts[name]
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most or value == math.inf:
            raise ValueError(f"{name} must be a finite number from 0 on, got {value!r}")
    if not _finite(facts["calibrators"]):
        raise ValueError("the maps must hold finite numbers")


def _finite(value: Any) -> bool:
    """Returns whether a value of JSON holds no NaN and no infinity."""
    if isinstance(value, dict | list):
        return all(map(_finite, value.values() if isinstance(value, dict) else value))
    return not isinstance(value, float) or math.isfinite(value)
