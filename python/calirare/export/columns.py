"""What a run's map of features makes of columns, as expressions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from calirare._util.array_files import NumpyArray
from calirare._util.errors import InputError
from calirare.export.dialects import Dialect, number
from calirare.export.names import Names
from calirare.export.ranks import normal_score, rank_of, reduced
from calirare.export.script import Columns, Script, numbered, total
from calirare.features import (
    PERIODS,
    AsIs,
    ColumnMap,
    Cyclic,
    FeatureMap,
    Kept,
    Logged,
    Missing,
    OneHot,
    Ranked,
    RowSums,
    Standardized,
    TargetEncoded,
)


def raw_columns(script: Script, names: Names, features: FeatureMap) -> Columns:
    """Returns a part with the columns of the node table that a map reads: numbers, ages in days, or text."""
    d = script.dialect
    made = []
    for i, column in enumerate(features.inputs):
        given = f"n.{d.name_of(column.name)}"
        if column.kind == "categorical":
            made.append(f"NULLIF(CAST({given} AS {d.text}), '')")
        elif column.kind == "date":
            script_days = d.days.format(x=given)
            made.append(f"{number(features.newest[i])} - {d.as_single(d.as_double(script_days))}")
        else:
            made.append(d.as_single(d.as_double(given)))
    called = numbered(len(made))
    node = (f"n.{d.name_of(names.id)}", "node")
    part = script.select("raw", [node, *zip(made, called, strict=True)], f"FROM {d.table(names.nodes)} n")
    return Columns(part, called)


def mapped(script: Script, source: Columns, features: FeatureMap) -> Columns:
    """Returns a part with what a map makes of columns.

    Args:
        script: the query.
        source: the columns as `features` knows them.
        features: the map.

    Raises:
        InputError: the map is none that a query can hold.
    """
    if features.whole is not None:
        return _whole(script, source, features)
    writer = _Writer(script.dialect, source.names, features)
    made = [expression for each in features.maps for expression in writer.of(each)]
    ranked = [isinstance(each, Ranked) for each in features.maps for _ in each.names]
    called = numbered(len(made))
    part = script.select("mapped", [("node", "node"), *zip(made, called, strict=True)], f"FROM {source.part}")
    if any(ranked):
        part = _scores(script, part, called, ranked)
    rounded = [(script.dialect.as_single(c), c) for c in called]  # as the run stores what a map makes
    return Columns(script.select("single", [("node", "node"), *rounded], f"FROM {part}"), called)


def _scores(script: Script, part: str, called: Sequence[str], ranked: Sequence[bool]) -> str:
    """Returns a part with normal scores in the place of ranks."""
    low = script.dialect.low
    keep = [("node", "node"), *((c, c) for c in called)]
    keep += [(reduced(c, low), f"r{c[1:]}") for c, rank in zip(called, ranked, strict=True) if rank]
    part = script.select("reduced", keep, f"FROM {part}")
    made = [normal_score(c, f"r{c[1:]}") if rank else c for c, rank in zip(called, ranked, strict=True)]
    return script.select("scores", [("node", "node"), *zip(made, called, strict=True)], f"FROM {part}")


def _whole(script: Script, source: Columns, features: FeatureMap) -> Columns:
    """Returns features that are mapped as one matrix."""
    if isinstance(features.whole, AsIs):
        return source
    if not isinstance(features.whole, RowSums):
        raise InputError(
            "export: the run weighs its features as words (tf-idf, svd), which a query reads from a table of their "
            "own: pass --features-table TABLE, with columns node, feature and value"
        )
    sums = script.select(
        "sums",
        [("node", "node"), *((c, c) for c in source.names), (f"NULLIF({total(source.names)}, 0)", "total")],
        f"FROM {source.part}",
    )
    made = [(f"COALESCE({c} / total, {c})", c) for c in source.names]
    return Columns(script.select("shares", [("node", "node"), *made], f"FROM {sums}"), source.names)


class _Writer:
    """The expressions of column maps.

    Args:
        dialect: of the engine.
        given: names of the raw columns.
        features: the whole map.
    """

    def __init__(self, dialect: Dialect, given: Sequence[str], features: FeatureMap) -> None:
        self.dialect, self.given, self.features = dialect, given, features

    def of(self, each: ColumnMap) -> list[str]:
        """Returns the expressions of the columns that a map makes."""
        if isinstance(each, Kept):
            return self._numeric(each)
        if isinstance(each, Missing):
            return [f"CASE WHEN {self.given[i]} IS NULL THEN 1.0e0 ELSE 0.0e0 END" for i in each.inputs]
        if isinstance(each, OneHot):
            kinds = range(len(each.names))
            return [self._cases(each.inputs[0], (each.place == kind).astype(float)) for kind in kinds]
        if isinstance(each, TargetEncoded):
            return [self._cases(each.inputs[0], value) for value in each.value.T]
        assert isinstance(each, Cyclic)
        return self._cyclic(each)

    def _numeric(self, each: Kept) -> list[str]:
        made = []
        for j, i in enumerate(each.inputs):
            fill = float(each.fill[j])
            x = self.given[i] if np.isnan(fill) else f"COALESCE({self.given[i]}, {number(fill)})"
            made.append(self._scaled(each, j, x))
        return made

    def _scaled(self, each: Kept, j: int, x: str) -> str:
        """Returns one column of numbers without gaps, scaled."""
        if isinstance(each, Standardized):
            spread = float(each.spread[j])
            return f"({x} - {number(each.mean[j])}) / {number(spread)}" if np.isfinite(spread) else f"0.0e0 * {x}"
        if isinstance(each, Logged):
            z = f"(({x} - {number(each.centre[j])}) / {number(each.spread[j])})"
            return f"SIGN({z}) * LN(1 + ABS({z})) / {number(each.scale[j])}"
        if isinstance(each, Ranked):
            rank = rank_of(x, each.quantiles[:, j])
            return rank if x.startswith("COALESCE") else f"CASE WHEN {x} IS NOT NULL THEN {rank} END"
        return x

    def _cases(self, i: int, value: NumpyArray) -> str:
        """Returns the value of a category, the last two being those of an unknown one and of a missing one."""
        x, known = self.given[i], self.features.inputs[i].categories
        other, gone = float(value[-2]), float(value[-1])
        parts = [f"WHEN {x} IS NULL THEN {number(gone)}"] if gone != other else []
        texts = dict(zip(known, value, strict=False))
        parts += [f"WHEN {x} = {self.dialect.string(text)} THEN {number(v)}" for text, v in texts.items() if v != other]
        return f"CASE {' '.join(parts)} ELSE {number(other)} END" if parts else number(other)

    def _cyclic(self, each: Cyclic) -> list[str]:
        """Returns sine and cosine of a date's phases, 0 where it is missing."""
        i, made = each.inputs[0], list[str]()
        day = f"({number(self.features.newest[i])} - {self.given[i]})"
        for cycle in each.cycles:
            turns = f"({day if cycle == 'time of day' else f'FLOOR({day})'} / {number(PERIODS[cycle])})"
            angle = f"{number(2 * np.pi)} * ({turns} - FLOOR({turns}))"
            made += [f"COALESCE({part}({angle}), 0)" for part in ("SIN", "COS")]
        return made
