"""Which values were missing, as columns of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar
from zlib import crc32

import numpy as np

from calirare._util.array_files import NumpyArray
from calirare.features.column_map import ColumnMap
from calirare.features.raw_table import RawTable


@dataclass(frozen=True, eq=False)
class Missing(ColumnMap):
    """1 where a value is missing, else 0."""

    kind: ClassVar[str] = "missing"

    def write(self, table: RawTable, out: NumpyArray) -> None:
        """Fills `out`; see `ColumnMap.write`."""
        for at, block in table.blocks(self.inputs):
            out[:, at] = np.isnan(block)


def fit_missing(table: RawTable, inputs: Sequence[int]) -> Missing:
    """Returns the map of columns of which some, but not all, values are missing; one of those missing together.

    Args:
        table: the raw columns.
        inputs: those with missing values.
    """
    first: dict[int, int] = {}
    for at, block in table.blocks(inputs):
        for i, gaps in zip(inputs[at], np.isnan(block).T, strict=True):
            if not gaps.all():
                first.setdefault(crc32(np.packbits(gaps).tobytes()), i)
    kept = tuple(first.values())
    return Missing(kept, tuple(f"{table.columns[i].name} missing" for i in kept))
