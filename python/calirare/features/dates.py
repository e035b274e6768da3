"""Days: the cycles of a date; its age is a number as any other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from calirare._util.array_files import NumpyArray
from calirare.features.column_map import ColumnMap
from calirare.features.raw_table import RawTable

YEAR = 365.2425  # days
PERIODS = {"time of day": 1.0, "day of week": 7.0, "day of year": YEAR}
# Steps in which a phase is told apart: a minute, a day, a day.
STEPS = {"time of day": 1440, "day of week": 7, "day of year": 365}


@dataclass(frozen=True, eq=False)
class Cyclic(ColumnMap):
    """Sine and cosine of a date's phases; 0, the middle of the circle, where it is missing.

    Attributes:
        cycles: which of `PERIODS`.
    """

    kind: ClassVar[str] = "cyclic"
    cycles: tuple[str, ...]

    def write(self, table: RawTable, out: NumpyArray) -> None:
        """Fills `out`; see `ColumnMap.write`."""
        day = _days(table, self.inputs[0])
        for j, cycle in enumerate(self.cycles):
            angle = 2 * np.pi * _phase(day, cycle)
            out[:, 2 * j], out[:, 2 * j + 1] = np.nan_to_num(np.sin(angle)), np.nan_to_num(np.cos(angle))


def fit_cyclic(table: RawTable, i: int) -> Cyclic | None:
    """Returns the map of a date's phases: those that vary, of cycles that the dates go through more than once.

    Args:
        table: the raw columns.
        i: which of them.
    """
    day, name = _days(table, i), table.columns[i].name
    day = day[~np.isnan(day)]
    span = float(day.max() - day.min()) if len(day) else 0.0
    cycles = tuple(
        cycle
        for cycle, period in PERIODS.items()
        if span > period and len(np.unique(np.floor(_phase(day, cycle) * STEPS[cycle]))) > 1
    )
    names = tuple(f"{name} {cycle} {part}" for cycle in cycles for part in ("sin", "cos"))
    return Cyclic((i,), names, cycles) if cycles else None


def _days(table: RawTable, i: int) -> NumpyArray:
    """Returns a date column as days since the start of the year 2000, float64 [n]."""
    return table.newest[i] - table.column(i)


def _phase(day: NumpyArray, cycle: str) -> NumpyArray:
    """Returns the share of a cycle that has passed, in [0, 1); of the week and the year in whole days."""
    whole = day if cycle == "time of day" else np.floor(day)
    return (whole / PERIODS[cycle]) % 1.0
