"""Time of transactions in whole ticks, and lengths of time as they are written: 7d, 12h, or a number."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

from calirare._util.errors import InputError

SECOND = 10**6  # ticks: microseconds
SECONDS = {"s": 1, "min": 60, "h": 3600, "d": 86_400, "w": 604_800}
WORDS = {"s": "second", "min": "minute", "h": "hour", "d": "day"}
LADDER = ("1min", "10min", "1h", "6h", "1d", "7d", "30d", "90d", "365d")
BATCHES = ("1h", "1d", "7d", "30d")
LONGEST_SHARE, MOST_BATCHES, USUAL_BATCHES = 5, 200, 30
FINE = 4 * 10**12  # numbers below it are counted in millionths


@dataclass(frozen=True)
class Clock:
    """How times become whole ticks.

    Attributes:
        dated: times are dates, and a tick is a microsecond; else they are numbers.
        per_unit: ticks per day of dates, else per 1 of the numbers.
        name: of the column.
    """

    dated: bool
    per_unit: int
    name: str

    @property
    def units(self) -> str:
        """What lengths of time are counted in."""
        return "days" if self.dated else self.name

    def length(self, ticks: Any) -> Any:
        """Returns ticks, a number or an expression, in days, or in units of the numbers."""
        return ticks / self.per_unit

    def ticks(self, text: str, setting: str) -> int:
        """Returns a length of time in ticks.

        Raises:
            InputError: it is none, or is negative.
        """
        found = re.fullmatch(r"\s*([0-9.]+(?:e[-+]?[0-9]+)?)\s*(s|min|h|d|w)?\s*", str(text))
        try:
            number = float(found[1]) if found else math.nan
        except ValueError:
            number = math.nan
        unit = found[2] if found else None
        if not math.isfinite(number) or ((unit is not None) != self.dated and number != 0):
            kind = "12h, 1d, 7d (s, min, h, d, w)" if self.dated else f"a number in units of column {self.name!r}"
            raise InputError(f"transactions: {setting} must be a length of time, {kind}, got {text!r}")
        return round(number * (SECONDS[unit or "s"] * SECOND if self.dated else self.per_unit))

    def text(self, ticks: int) -> str:
        """Returns a length as `ticks` reads it."""
        if not self.dated:
            return f"{ticks / self.per_unit:.12g}"
        unit = next(unit for unit in ("d", "h", "min", "s") if ticks % (SECONDS[unit] * SECOND) == 0 or unit == "s")
        return f"{ticks / (SECONDS[unit] * SECOND):.12g}{unit}"

    def span_words(self, ticks: int) -> str:
        """Returns a length in words: "day", "7 days", "500 of step"."""
        if not self.dated:
            return f"{ticks / self.per_unit:,.12g} of {self.name}"
        number, unit = re.fullmatch(r"([0-9.e+-]+?)(min|s|h|d)", self.text(ticks)).groups()  # type: ignore[union-attr]
        return WORDS[unit] if number == "1" else f"{float(number):,.12g} {WORDS[unit]}s"

    def length_words(self, ticks: int) -> str:
        """Returns a length in words with its number: "1 day", "7 days", "500 of step"."""
        words = self.span_words(ticks)
        return f"1 {words}" if words in WORDS.values() else words

    def usual_batch(self, span: int, least: int) -> int:
        """Returns the length of a batch where none is named: of dates a day or longer, of numbers about 30 of them."""
        if not self.dated:
            return max(least, _round_number(span / USUAL_BATCHES, self.per_unit))
        lengths = [self.ticks(each, "batch") for each in BATCHES]
        wanted = [each for each in lengths[1:] if span <= MOST_BATCHES * each] or lengths[-1:]
        return lengths[0] if span < 3 * lengths[1] else wanted[0]

    def usual_windows(self, span: int, least: int) -> tuple[int, ...]:
        """Returns three lengths of windows, the longest about a fifth of the span of the table."""
        if not self.dated:
            return tuple(sorted({max(least, _round_number(span / part, self.per_unit)) for part in (125, 25, 5)}))
        lengths = [self.ticks(each, "windows") for each in LADDER]
        fit = [each for each in lengths if LONGEST_SHARE * each <= span] or lengths[:1]
        return tuple(fit[-3:])


def _round_number(value: float, per_unit: int) -> int:
    """Returns a number of ticks as 1, 2 or 5 times a power of ten of the units, at most `value`."""
    units = value / per_unit
    if units <= 0:
        return 0
    power = 10.0 ** math.floor(math.log10(units))
    return round(max(step for step in (1, 2, 5) if step * power <= units * (1 + 1e-9)) * power * per_unit)
