"""Which map each raw column gets, by what it holds, its distribution and where it lacks values."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal
from zlib import crc32

import numpy as np
import torch
from torch import Tensor

from calirare._util.array_files import NumpyArray
from calirare._util.errors import InputError
from calirare.features.categorical import FEW, codes_of, fit_one_hot, fit_target, rare_below
from calirare.features.numeric import (
    ColumnSummary,
    Kept,
    Logged,
    Ranked,
    Standardized,
    fit_cyclic,
    fit_logs,
    fit_quantiles,
)
from calirare.features.raw_table import ColumnMap, RawTable, written
from calirare.graph import Column, Graph, names_in_words
from calirare.graph.features import column_statistics

Impute = Literal["median", "zero", "error"]
UNCOMMON = "dropped, no category is common"
Log = defaultdict[str, list[str]]  # names of columns by what became of them


@dataclass(frozen=True, eq=False)
class Options:
    """How columns are mapped; see `FeatureMap.fit`.

    Attributes:
        how: "auto", "rank", "standardize" or "none".
        exact: constant columns stay, and a missing value in a column that lacks none here is refused later.
        impute: what fills in for missing numbers.
        one_hot: names of columns that get a column per category, however many they have.
        nodes: labelled nodes, int64 [m], or None.
        y: their labels, int64 [m], or None.
        seed: of samples and folds.
    """

    how: str
    exact: bool
    impute: Impute
    one_hot: tuple[str, ...]
    nodes: NumpyArray | None
    y: NumpyArray | None
    seed: int


def fit_columns(graph: Graph, table: RawTable, options: Options) -> tuple[tuple[ColumnMap, ...], tuple[str, ...]]:
    """Returns what raw columns are encoded by, and the lines that say what became of each."""
    log: Log = defaultdict(list)
    numbers = [i for i, column in enumerate(table.columns) if column.kind != "categorical"]
    of_scored, others = _of_scored(table, graph.scored, numbers)
    summary = ColumnSummary.of(of_scored, numbers)
    summary = replace(summary, missing=summary.missing - others)
    lacking = [(i, int(n)) for i, n in zip(numbers, summary.missing, strict=True) if n > 0]
    if options.impute == "error" and lacking:
        shown = names_in_words([f"{table.columns[i].name!r} lacks {n:,}" for i, n in lacking], 10, str)
        raise InputError(f"features: no value may be missing, but {shown}: fill them in, or take impute median or zero")
    maps: list[ColumnMap] = [*_numeric(graph, of_scored, numbers, summary, options, log)]
    for i, column in enumerate(table.columns):
        if column.kind == "date":
            cycles = fit_cyclic(table, i)
            if cycles is not None:
                maps.append(cycles)
                log[f"{', '.join(cycles.cycles)} as sine and cosine"].append(column.name)
        elif column.kind == "categorical":
            maps += _categorical(table, i, options, log)
    gone = [i for i, n in lacking if n < table.n_nodes or options.exact]
    if gone:
        maps.append(gaps := fit_missing(of_scored, gone))
        filled = "0" if options.impute == "zero" else "the median"
        groups = f", {len(gaps.names)} columns say where" if len(gaps.names) > 1 else ", a column says where"
        became = f"missing values become {filled}{groups if gaps.names else ''}"
        log[became] += [table.columns[i].name for i in gone]
    maps = [each for each in maps if each.names]
    if not maps:
        rare = log.get(UNCOMMON)
        why = f"of {names_in_words(rare)} no text is common" if rare else "all are constant"
        raise InputError(
            f"features: graph {graph.name!r} must have a column that varies, but {why}: "
            "give columns that vary, or none for the number of neighbours"
        )
    return tuple(maps), tuple(f"{names_in_words(names)}: {became}" for became, names in log.items() if names)


def _of_scored(table: RawTable, scored: Tensor | None, numbers: list[int]) -> tuple[RawTable, NumpyArray]:
    """Returns a table where columns of numbers that tell scored nodes apart have no values of the others."""
    unscored = np.zeros(len(numbers))
    if scored is None:
        return table, unscored
    x = table.x.clone()
    for j, i in enumerate(numbers):
        column = x[:, table.places[i]]
        seen = column[scored & ~column.isnan()]
        if len(seen) and bool(seen.min() < seen.max()):
            column[~scored] = torch.nan
            unscored[j] = int((~scored).sum())
    return replace(table, x=x), unscored


def _numeric(
    graph: Graph, table: RawTable, numbers: list[int], summary: ColumnSummary, options: Options, log: Log
) -> list[ColumnMap]:
    """Returns the maps of numbers and ages."""
    kinds = _kinds(options, summary)
    fill = np.zeros_like(summary.median) if options.impute == "zero" else summary.median
    fill = np.where((summary.missing == 0) & options.exact, np.nan, np.nan_to_num(fill))
    maps: list[ColumnMap] = []
    for kind, said, arrays in (
        (Kept, "as they are", lambda at: {}),
        (Standardized, "standardised", lambda at: _moments(graph, table, summary, at, options)),
        (
            Logged,
            "signed logarithm, mostly one number",
            lambda at: fit_logs(table, _at(numbers, at), summary.median[at], summary.spread[at]),
        ),
        (Ranked, "rank to normal", lambda at: {"quantiles": fit_quantiles(table, _at(numbers, at), options.seed)}),
    ):
        at = np.flatnonzero(kinds == kind.kind)
        inputs = _at(numbers, at)
        names = [table.columns[i].name + " age" * (table.columns[i].kind == "date") for i in inputs]
        if len(at):
            log[said] += names
            maps.append(kind(inputs=inputs, names=tuple(names), fill=fill[at], **arrays(at)))
    if dropped := [table.columns[i].name for i in _at(numbers, np.flatnonzero(kinds == ""))]:
        log["dropped, constant"] += dropped
    return maps


def _at(numbers: Sequence[int], at: NumpyArray) -> tuple[int, ...]:
    return tuple(numbers[int(j)] for j in at)


def _kinds(options: Options, summary: ColumnSummary) -> NumpyArray:
    """Returns the kind of map of each column of numbers, empty where it is dropped."""
    ranked, standard, kept = Ranked.kind, Standardized.kind, Kept.kind
    if options.how == "none":
        kinds = np.full(len(summary.low), kept, dtype=object)
    elif options.how == "standardize":
        kinds = np.full(len(summary.low), standard, dtype=object)
    else:
        tails = summary.long_tailed if options.how == "auto" else summary.between > 0
        kinds = np.where(summary.zero_one, kept, np.where(tails, ranked, standard)).astype(object)
        if options.how == "auto":
            kinds[tails & summary.mostly_one] = Logged.kind
    if not options.exact:
        kinds[summary.constant] = ""
    return kinds


def _moments(
    graph: Graph, table: RawTable, summary: ColumnSummary, at: NumpyArray, options: Options
) -> dict[str, NumpyArray]:
    """Returns mean and standard deviation of columns; of all of them by the very sums of `normalize_features`."""
    if options.exact and not graph.columns:
        mean, spread = (each.cpu().numpy() for each in column_statistics(graph))
        return {"mean": mean, "spread": spread}
    spread = np.where(summary.spread[at] > 0, summary.spread[at], np.inf)
    return {"mean": np.nan_to_num(summary.mean[at]), "spread": spread}


def _categorical(table: RawTable, i: int, options: Options, log: Log) -> list[ColumnMap]:
    """Returns the map of a column of categories."""
    name = table.columns[i].name
    many = (
        name not in options.one_hot and int((np.bincount(codes_of(table, i)) >= rare_below(table.n_nodes)).sum()) > FEW
    )
    if many and options.nodes is not None and options.y is not None:
        counts = np.bincount(options.y)
        if len(counts[counts > 0]) > 1 and counts[counts > 0].min() > 1:
            log["mean label of the category, out of fold"].append(name)
            return [fit_target(table, i, options.nodes, options.y, options.seed)]
    one_hot = fit_one_hot(table, i, None if name in options.one_hot else FEW)
    if one_hot is None:
        alike = len(np.unique(codes_of(table, i))) == 1
        log["dropped, constant" if alike else UNCOMMON].append(name)
        return []
    log[f"a column for each of the {FEW} commonest categories" if many else "a column per category"].append(name)
    return [one_hot]


def with_categories(graph: Graph, columns: tuple[Column, ...], names: Sequence[str]) -> tuple[Column, ...]:
    """Returns columns of which those named are categories, though the graph has numbers there."""
    absent = [name for name in names if name not in [column.name for column in columns if column.kind != "date"]]
    if absent:
        raise InputError(
            f"features: one-hot columns must be numbers or categories of graph {graph.name!r}, "
            f"{names_in_words(absent, 10)} {'is' if len(absent) == 1 else 'are'} not among "
            f"{names_in_words([column.name for column in columns], 20)}"
        )

    def categories(i: int) -> tuple[str, ...]:
        assert isinstance(graph.x, torch.Tensor)
        values = torch.unique(graph.x[:, i])
        return tuple(written(float(value)) for value in values[~values.isnan()])

    return tuple(
        Column(each.name, "categorical", categories(i)) if each.name in names and each.kind == "numeric" else each
        for i, each in enumerate(columns)
    )


@dataclass(frozen=True, eq=False)
class Missing(ColumnMap):
    """1 where a value is missing, else 0."""

    kind: ClassVar[str] = "missing"

    def write(self, table: RawTable, out: NumpyArray) -> None:
        """Fills `out`; see `ColumnMap.write`."""
        for at, block in table.blocks(self.inputs):
            out[:, at] = np.isnan(block)


def fit_missing(table: RawTable, inputs: Sequence[int]) -> Missing:
    """Returns the indicator of columns of which some values are missing; one of those missing together."""
    first: dict[int, int] = {}
    for at, block in table.blocks(inputs):
        for i, gaps in zip(inputs[at], np.isnan(block).T, strict=True):
            if not gaps.all():
                first.setdefault(crc32(np.packbits(gaps).tobytes()), i)
    kept = tuple(first.values())
    return Missing(kept, tuple(f"{table.columns[i].name} missing" for i in kept))
