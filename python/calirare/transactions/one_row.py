"""One new transaction: its columns by the same expressions as those of a table, over a history in memory.

`columns.queries` says what the columns are. A transaction that is scored when it is made is in no window of its own:
its columns are sums and the like over slices of its parties' rows, which lie together in order of time.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ibis
import ibis.expr.operations as ops
import numpy as np
import pandas as pd
import torch

from calirare._util.array_files import NumpyArray
from calirare._util.errors import InputError
from calirare.graph import Column, Graph
from calirare.transactions.columns import queries
from calirare.transactions.description import Description
from calirare.transactions.layout import category_column, party_column
from calirare.transactions.opening import database, load
from calirare.transactions.reading import DAY, DAYS_TO_2000, Reading, name_sql
from calirare_ext import Csr

NULL = float("nan")
UNBOUNDED = ibis.literal(math.inf).op()


def _known(values: Sequence[float]) -> list[float]:
    return [value for value in values if value == value]


# What operations make of numbers; an empty cell is NaN.
ELEMENTWISE: dict[type, Callable[..., Any]] = {
    ops.Abs: abs,
    ops.Add: operator.add,
    ops.Cast: lambda value: value,
    ops.Coalesce: lambda *values: next(iter(_known(values)), NULL),
    ops.Divide: lambda value, by: value / by if by else NULL,
    ops.Greater: operator.gt,
    ops.Greatest: lambda *values: max(_known(values), default=NULL),
    ops.IfElse: lambda condition, value, other: value if condition else other,
    ops.Least: lambda *values: min(_known(values), default=NULL),
    ops.Less: operator.lt,
    ops.Multiply: operator.mul,
    ops.NullIf: lambda value, null: NULL if value == null else value,
    ops.Sqrt: lambda value: value**0.5 if value >= 0 else NULL,
    ops.Subtract: operator.sub,
}
REDUCTIONS: dict[type, Callable[[NumpyArray], Any]] = {  # of no number: an empty cell
    ops.Count: len,
    ops.First: operator.itemgetter(0),
    ops.Last: operator.itemgetter(-1),
    ops.Max: np.max,
    ops.Mean: np.mean,
    ops.Min: np.min,
    ops.Sum: np.sum,
}


def _arguments(op: Any) -> list[Any]:
    """Returns what an elementwise operation takes."""
    parts = [part for each in op.args for part in (each if isinstance(each, tuple) else (each,))]
    return [part for part in parts if isinstance(part, ops.Node)]


def _resolved(op: Any) -> Any:
    """Returns the expression behind a field of a query, or a field of the table of events."""
    while isinstance(op, ops.Field) and not isinstance(op.rel, ops.UnboundTable):
        if isinstance(op.rel, ops.Project):
            op = op.rel.values[op.name]
        else:  # rows of a party's own role are the left ones of both
            op = ops.Field(op.rel.left if isinstance(op.rel, ops.Union) else op.rel.parent, op.name)
    return op


class Groups:
    """Rows of the history, those with the same values of some columns together and in order of time.

    Args:
        relation: table of ibis.
        by: the columns.
    """

    def __init__(self, relation: Any, by: Sequence[str]) -> None:
        self.relation, self.by = relation, by
        self.cells, self.ticks = dict[str, NumpyArray](), np.empty(0)
        self.places, self._names = dict[tuple[float, ...], tuple[int, int]](), dict[Any, str]()

    def named(self, func: Any) -> str:
        """Returns what the cells that a function of a window is of will be called."""
        return self._names.setdefault((func.arg, func.where), f"cell{len(self._names)}")

    def read(self, engine: Any) -> None:
        """Makes the cells, float64 [n] in the order of the groups; NaN where one is empty or does not count."""
        cells = {
            name: arg.to_expr() if where is None else ibis.ifelse(where.to_expr(), arg.to_expr(), None)
            for (arg, where), name in self._names.items()
        }
        order = [*self.by, "tick", "row"]
        query = self.relation.select(*order, **cells).order_by(order)
        found = engine.execute(ibis.to_sql(query, dialect="duckdb")).fetchnumpy()
        self.cells = {name: np.ma.filled(values.astype(float), NULL) for name, values in found.items()}
        self.ticks, codes = self.cells["tick"], np.stack([self.cells[name] for name in self.by])
        starts = np.flatnonzero(np.append(True, (codes[:, 1:] != codes[:, :-1]).any(0)))
        ends = np.append(starts[1:], len(self.ticks))
        names = map(tuple, codes[:, starts].T.tolist())
        self.places = dict(zip(names, zip(starts.tolist(), ends.tolist(), strict=True), strict=True))

    def frame(self, codes: tuple[float, ...], now: float, how: str, before: float, after: float) -> tuple[int, int]:
        """Returns the first place of a window and that after its last, as seen from a row after the history."""
        start, stop = self.places.get(codes, (0, 0))
        ticks = self.ticks[start:stop]
        if how == "rows":
            place = int(ticks.searchsorted(now, side="right"))
            return start + int(max(place - before, 0)), start + int(max(place + after + 1, 0))
        first, last = ticks.searchsorted(now - before, side="left"), ticks.searchsorted(now + after, side="right")
        return start + int(first), start + int(last)


class History:
    """The columns of one transaction after others, as a list of steps, each of which takes results of earlier ones.

    Args:
        engine: database with the table `events`.
        queries: of `columns.queries`; their windows end before the transaction.
    """

    def __init__(self, engine: Any, queries: Sequence[Any]) -> None:
        self.new = dict[str, float]()
        self._steps, self._places = list[tuple[Callable[..., Any], list[int]]](), dict[Any, int]()
        self._groups = dict[Any, Groups]()
        self._columns = [self._place(query[name].op()) for query in queries for name in query.columns if name != "row"]
        for groups in self._groups.values():
            groups.read(engine)

    def row(self, new: dict[str, float]) -> NumpyArray:
        """Returns the columns of a transaction, float32 [d], in the order of the queries.

        Args:
            new: its cells in the table of events; no event of the history is later.
        """
        self.new = new
        values = list[Any]()
        for function, parts in self._steps:
            values.append(function(*[values[part] for part in parts]))
        return np.array([values[place] for place in self._columns], dtype=np.float32)

    def _place(self, op: Any) -> int:
        """Returns the number of the step that computes an expression; steps that are not there yet are added."""
        op = _resolved(op)
        if op not in self._places:
            function, parts = self._step(op)
            places = [self._place(part) for part in parts]
            self._places[op] = len(self._steps)
            self._steps.append((function, places))
        return self._places[op]

    def _step(self, op: Any) -> tuple[Callable[..., Any], list[Any]]:
        """Returns what computes an expression, and from which others."""
        if isinstance(op, ops.Literal):
            constant = NULL if op.value is None else float(op.value)
            return (lambda: constant), []
        if isinstance(op, ops.WindowFunction):
            return self._window(op)
        if isinstance(op, ops.Field):
            return (lambda: self.new[op.name]), []
        return ELEMENTWISE[type(op)], _arguments(op)

    def _window(self, op: Any) -> tuple[Callable[..., Any], list[Any]]:
        """Returns what computes a window function, and from what: the time, both ends, and cells of its group."""
        relation, func, by = op.group_by[0].rel, op.func, op.group_by
        if (relation, by) not in self._groups:
            self._groups[relation, by] = Groups(relation.to_expr(), [field.name for field in by])
        groups, tick = self._groups[relation, by], ops.Field(relation, "tick")
        if isinstance(func, ops.RowNumber):  # of a row after all others of its time
            return (lambda now, *codes: operator.sub(*groups.frame(codes, now, "range", math.inf, 0)[::-1])), [
                tick,
                *by,
            ]
        start = UNBOUNDED if op.start is None else op.start.value
        reduce, name, sign = REDUCTIONS[type(func)], groups.named(func), -1 if op.end.preceding else 1

        def reduced(now: float, before: float, after: float, *codes: float) -> float:
            first, last = groups.frame(codes, now, op.how, before, sign * after)
            values = groups.cells[name][first:last]
            values = values[values == values]
            return float(reduce(values)) if len(values) or reduce is len else NULL

        return reduced, [tick, start, op.end.value, *by]


class OneRow:
    """Earlier transactions in memory, and the columns of one after them, in milliseconds.

    Args:
        source: table of the earlier transactions.
        describe: returns how they are read, by the loaded table.
        amount: column of the amounts, see `load`.

    Raises:
        InputError: they cannot be read, or whole batches are scored.
    """

    def __init__(
        self, source: Any, describe: Callable[[Any, dict[str, str]], Description], amount: str | None = None
    ) -> None:
        with database() as engine:
            kinds = load(engine, source, "source", amount)
            self.reading = Reading(engine, describe(engine, kinds), kinds, {})
            self.reading.check()
            layout = self.reading.events(self.reading.labels()[1])
            if layout.batch is not None:
                length = layout.clock.length_words(layout.batch)
                raise InputError(
                    f"score: the run scores transactions in batches of {length}, whose rows see each other: score the "
                    "batch by predict, or train with --known-at transaction"
                )
            every = list(queries(layout))
            self.history = History(engine, every)
            self.last = engine.execute("SELECT max(tick) FROM events").fetchall()[0][0]
            self.names = [Column(name) for query in every for name in query.columns if name != "row"]
            self.raw = [column for column in self.reading.raw_columns() if column.kind != "categorical"]
            self.codes = dict[str, dict[str, float]]()
            for g, group in enumerate(self.reading.groups):
                codes = dict(engine.execute(f"SELECT name, code FROM names{g}").fetchall())
                self.codes |= dict.fromkeys(group, codes)
            for name in layout.categories:
                text = f"coalesce({name_sql(name, kinds[name])}, '')"
                values = engine.execute(f"SELECT DISTINCT {text}, CAST(hash({text}) // 2 AS BIGINT) FROM source")
                self.codes[name] = {value: float(code) for value, code in values.fetchall()}
        self.layout = layout

    def graph(self, row: Mapping[str, Any]) -> Graph:
        """Returns a transaction as a graph of one node.

        Args:
            row: its cells by the names of the table's columns; labels play no part.

        Raises:
            InputError: a cell is missing or cannot be read, or the transaction is earlier than one of the history.
        """
        reading, layout = self.reading, self.layout
        need = [name for name in (reading.table.time, *layout.parties, layout.amount) if name]
        missing = [name for name in need if row.get(name) in (None, "")]
        if missing:
            raise InputError(f"score: a transaction must have {', '.join(map(repr, missing))}: add them to the row")
        try:
            new = self._event(row)
            raw = [_number(row.get(name)) for name in (layout.amount, *layout.numbers) if name]
            raw += [self._ticks(row[name]) / DAY - DAYS_TO_2000 if row.get(name) else NULL for name in reading.dates]
        except (TypeError, ValueError) as error:
            raise InputError(f"score: the row cannot be read ({error}): correct the cell") from error
        if new["tick"] < self.last:
            raise InputError("score: the transaction must not be earlier than the history: score it by predict")
        texts = [_text(row.get(name)) for name in reading.texts]
        columns = self.raw[: len(raw)]
        columns += [Column(name, "categorical", (text,)) for name, text in zip(reading.texts, texts, strict=True)]
        raw += [0.0 if text else NULL for text in texts]
        if layout.clock.dated:
            raw += [new["tick"] % DAY / (DAY // 24), (new["tick"] // DAY + 3) % 7]
        x = np.concatenate([np.array(raw, dtype=np.float32), self.history.row(new)])
        columns += [*self.raw[len(columns) - len(texts) :], *self.names]
        nothing = Csr(torch.zeros(2, dtype=torch.int64), torch.empty(0, dtype=torch.int32), torch.empty(0), 1)
        keys = {layout.amount: np.array([new["amount"]])} if layout.amount else None
        more: Any = {"columns": tuple(columns), "name": reading.table.name, "keys": keys, "trusted": True}
        return Graph(nothing, torch.from_numpy(x[None]), **more)

    def _event(self, row: Mapping[str, Any]) -> dict[str, float]:
        """Returns what the table of events would have of a transaction; nothing is known by names it has not met."""
        layout, tick = self.layout, self._ticks(row[str(self.reading.table.time)])
        delay = layout.clock.ticks(str(self.reading.table.label_delay), "label_delay")
        amount = NULL if layout.amount is None else _number(row[layout.amount])
        if layout.amount is not None and not math.isfinite(amount):
            raise ValueError(f"column {layout.amount!r} must hold a number, got {amount}")
        new: dict[str, float] = {"tick": tick, "cutoff": tick - max(delay, 1), "amount": amount}
        new |= {party_column(i): self.codes[p].get(_text(row[p]), NULL) for i, p in enumerate(layout.parties)}
        categories = enumerate(layout.categories)
        return new | {category_column(i): self.codes[c].get(_text(row.get(c)), NULL) for i, c in categories}

    def _ticks(self, value: Any) -> int:
        if not self.layout.clock.dated:
            return round(float(value) * self.layout.clock.per_unit)
        stamp = pd.Timestamp(value)
        return int((stamp if stamp.tz is None else stamp.tz_convert(None)).value // 1000)


def _text(value: Any) -> str:
    """Returns a name as tables have it: whole numbers have no point."""
    return (
        "" if value is None else str(int(value) if isinstance(value, float) and value.is_integer() else value).strip()
    )


def _number(value: Any) -> float:
    """Returns a number with 24 bits, as events have it."""
    return NULL if value is None else float(np.float32(value))
