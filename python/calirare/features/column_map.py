"""The interface of what columns of a table become."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from calirare._util.array_files import NumpyArray
from calirare.features.raw_table import RawTable


@dataclass(frozen=True, eq=False)
class ColumnMap(ABC):
    """What some raw columns become; fitted, it knows no graph.

    A subclass is a frozen dataclass whose fields are arrays of numbers, or what JSON holds.

    Attributes:
        kind: by which a stored map is found again.
        inputs: the raw columns it reads, by their numbers.
        names: of the columns it makes.
    """

    kind: ClassVar[str]
    inputs: tuple[int, ...]
    names: tuple[str, ...]

    @abstractmethod
    def write(self, table: RawTable, out: NumpyArray) -> None:
        """Fills float32 [n, len(names)] with what the map makes of a table."""

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Returns the arrays as tensors and everything else as what JSON holds."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        tensors = {name: torch.from_numpy(v) for name, v in values.items() if isinstance(v, np.ndarray)}
        return tensors, {"kind": self.kind} | {name: v for name, v in values.items() if name not in tensors}

    @classmethod
    def from_state(cls, tensors: dict[str, Tensor], facts: dict[str, Any]) -> Self:
        """Returns the map of a `state`, from JSON or not."""
        plain = {name: tuple(v) if isinstance(v, list) else v for name, v in facts.items() if name != "kind"}
        arrays: dict[str, Any] = {name: tensor.numpy() for name, tensor in tensors.items()}
        return cls(**arrays, **plain)
