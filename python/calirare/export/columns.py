"""What a run's map of features makes of raw columns: one choice by the kind of a map, for both formats."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

import numpy as np

from calirare._util.array_files import NumpyArray
from calirare.export.arithmetic import N
from calirare.features import (
    PERIODS,
    ColumnMap,
    Cyclic,
    FeatureMap,
    Kept,
    Logged,
    Missing,
    OneHot,
    Ranked,
    Standardized,
    TargetEncoded,
)

Made = TypeVar("Made")


class ColumnWriter(ABC, Generic[N, Made]):
    """Writes column maps.

    Args:
        features: the whole map.
    """

    def __init__(self, features: FeatureMap) -> None:
        self.features = features

    def of(self, each: ColumnMap) -> Made:
        """Returns the columns that a map makes."""
        match each:
            case Kept():
                return self.numbers(each)
            case Missing():
                return self.gaps(each.inputs)
            case OneHot():
                rows = np.equal.outer(each.place, np.arange(len(each.names)))
                return self.coded(each.inputs[0], rows.astype(np.float64))
            case TargetEncoded():
                return self.coded(each.inputs[0], np.asarray(each.value, dtype=np.float64))
        assert isinstance(each, Cyclic)
        return self.cyclic(each.inputs[0], each.cycles)

    def scaled(self, each: Kept, of: Any, x: N) -> N:
        """Returns numbers without gaps, scaled; `of` says which of the map's columns they are."""
        match each:
            case Standardized():
                return (x - each.mean[of]) / each.spread[of]
            case Logged():
                z = (x - each.centre[of]) / each.spread[of]
                return z.apply("Sign") * (z.apply("Abs") + 1.0).apply("Log") / each.scale[of]
            case Ranked():
                return self.ranked(x, each.quantiles[:, of])
        return x

    def angles(self, day: N, cycles: Sequence[str]) -> list[N]:
        """Returns the phase of each cycle of days since the start of the year 2000, in radians."""
        made = list[N]()
        for cycle in cycles:
            turns = (day if cycle == "time of day" else day.apply("Floor")) / PERIODS[cycle]
            made.append((turns - turns.apply("Floor")) * (2 * np.pi))
        return made

    @abstractmethod
    def numbers(self, each: Kept) -> Made:
        """Returns numbers, their gaps filled, scaled."""

    @abstractmethod
    def ranked(self, x: N, quantiles: NumpyArray) -> N:
        """Returns what ranks make of numbers."""

    @abstractmethod
    def gaps(self, inputs: Sequence[int]) -> Made:
        """Returns 1 where a raw column is missing, else 0."""

    @abstractmethod
    def coded(self, i: int, rows: NumpyArray) -> Made:
        """Returns the row of each node's category; the last two are of an unknown one and of a missing one."""

    @abstractmethod
    def cyclic(self, i: int, cycles: Sequence[str]) -> Made:
        """Returns sine and cosine of a date's phases, 0 where it is missing."""
