"""What a run's map of features makes of columns, as expressions of a query."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from calirare._util.array_files import NumpyArray
from calirare._util.errors import InputError
from calirare.export.columns import ColumnWriter
from calirare.export.sql.dialects import Dialect, number
from calirare.export.sql.nodes import Nodes
from calirare.export.sql.ranks import normal_score, rank_of, reduced
from calirare.export.sql.script import Columns, Script, numbered, total
from calirare.export.sql.terms import Term
from calirare.export.sql.words import named
from calirare.features import AsIs, FeatureMap, Kept, Ranked, RowSums
from calirare.graph import places_of_names, plain_name


def raw_columns(script: Script, nodes: Nodes, features: FeatureMap, binary: Collection[str] = ()) -> Columns:
    """Returns a part with the columns of the node table that a map reads: numbers, ages in days, or text.

    Args:
        script: the query.
        nodes: where they are read.
        features: the map.
        binary: columns of zeros and ones alone, which a table may hold as true and false.
    """
    d = script.dialect
    made = []
    for i, column in enumerate(features.inputs):
        given = nodes.column(script, features, i)
        if column.kind == "categorical":
            made.append(named(given, [plain_name(name) for name in column.categories], d))
        elif column.kind == "date":
            script_days = d.days.format(x=given)
            made.append(f"{number(features.newest[i])} - {d.as_single(d.as_double(script_days))}")
        else:
            as_number = d.truth_or_number if column.name in binary else d.as_double
            made.append(d.as_single(d.known(as_number(given))))
    called = numbered(len(made))
    node = (nodes.node, "node")
    part = script.select("raw", [node, *zip(made, called, strict=True)], f"FROM {nodes.rows}")
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
    made = [term.text for each in features.maps for term in writer.of(each)]
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


class _Writer(ColumnWriter[Term, list[Term]]):
    """The expressions of column maps.

    Args:
        dialect: of the engine.
        given: names of the raw columns.
        features: the whole map.
    """

    def __init__(self, dialect: Dialect, given: Sequence[str], features: FeatureMap) -> None:
        super().__init__(features)
        self.given = [Term(dialect, name) for name in given]

    def numbers(self, each: Kept) -> list[Term]:
        """Returns numbers, their gaps filled, scaled."""
        filled = zip(each.inputs, each.fill.tolist(), strict=True)
        return [self.scaled(each, j, self._filled(self.given[i], fill)) for j, (i, fill) in enumerate(filled)]

    def _filled(self, x: Term, fill: float) -> Term:
        return x if np.isnan(fill) else x.written(f"COALESCE({x}, {number(fill)})")

    def ranked(self, x: Term, quantiles: NumpyArray) -> Term:
        """Returns the ranks, of which `_scores` makes normal scores."""
        rank = rank_of(x.text, quantiles, arrays=x.dialect.arrays)
        return x.written(rank if x.text.startswith("COALESCE") else f"CASE WHEN {x} IS NOT NULL THEN {rank} END")

    def gaps(self, inputs: Sequence[int]) -> list[Term]:
        """Returns 1 where a raw column is missing, else 0."""
        columns = (self.given[i] for i in inputs)
        return [x.written(f"CASE WHEN {x} IS NULL THEN 1.0e0 ELSE 0.0e0 END") for x in columns]

    def coded(self, i: int, rows: NumpyArray) -> list[Term]:
        """Returns the row of each node's category."""
        return [self._cases(self.given[i], self.features.inputs[i].categories, value.tolist()) for value in rows.T]

    def _cases(self, x: Term, known: Sequence[str], values: Sequence[float]) -> Term:
        """Returns the value of a category, the last two being those of an unknown one and of a missing one."""
        *each, other, gone = values
        places = places_of_names(known)
        plain = [(plain_name(name), i) for i, name in enumerate(known)]
        parts = [f"WHEN {x} IS NULL THEN {number(gone)}"] if gone != other else []
        texts = [(name, each[i]) for name, i in plain if places[name] == i]
        parts += [f"WHEN {x} = {x.dialect.string(text)} THEN {number(v)}" for text, v in texts if v != other]
        return x.written(f"CASE {' '.join(parts)} ELSE {number(other)} END" if parts else number(other))

    def cyclic(self, i: int, cycles: Sequence[str]) -> list[Term]:
        """Returns sine and cosine of a date's phases, 0 where it is missing."""
        x = self.given[i]
        angles = self.angles(-(x - self.features.newest[i]), cycles)
        return [x.written(f"COALESCE({angle.apply(part)}, 0)") for angle in angles for part in ("Sin", "Cos")]
