"""One new transaction: its columns by the same expressions as those of a table, over a history in memory.

`columns.queries` says what the columns are. Here a small interpreter of the operations they use takes the place of the
database: a party's rows lie together in order of time, so that a window is a slice.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import combinations
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
from calirare.transactions.layout import category_column, new_column, number_column, party_column
from calirare.transactions.opening import database, load
from calirare.transactions.reading import DAY, DAYS_TO_2000, Reading, name_sql
from calirare_ext import Csr

Value = Callable[[int], Any]  # of a row of a relation
Frame = tuple[int, int, int, list[int]]
NULL = float("nan")


def _known(values: Sequence[float]) -> list[float]:
    return [value for value in values if value == value]


# What operations make of numbers; an empty cell is NaN.
ELEMENTWISE: dict[type, Callable[..., Any]] = {
    ops.Abs: abs,
    ops.Add: operator.add,
    ops.And: lambda one, other: bool(one) and bool(other),
    ops.Cast: lambda value: value,
    ops.Coalesce: lambda *values: next(iter(_known(values)), NULL),
    ops.Divide: lambda value, by: value / by if by else NULL,
    ops.Equals: operator.eq,
    ops.Greater: operator.gt,
    ops.Greatest: lambda *values: max(_known(values), default=NULL),
    ops.IfElse: lambda condition, value, other: value if condition else other,
    ops.Least: lambda *values: min(_known(values), default=NULL),
    ops.Less: operator.lt,
    ops.Multiply: operator.mul,
    ops.NotNull: lambda value: value == value,
    ops.NullIf: lambda value, null: NULL if value == null else value,
    ops.Sqrt: lambda value: value**0.5 if value >= 0 else NULL,
    ops.Subtract: operator.sub,
}
REDUCTIONS: dict[type, Callable[[NumpyArray], Any]] = {  # of no number: an empty cell
    ops.Count: len,
    ops.Max: np.max,
    ops.Mean: np.mean,
    ops.Min: np.min,
    ops.StandardDev: np.std,
    ops.Sum: np.sum,
}


def _arguments(op: Any) -> list[Any]:
    """Returns what an elementwise operation takes."""
    parts = [part for each in op.args for part in (each if isinstance(each, tuple) else (each,))]
    return [part for part in parts if isinstance(part, ops.Node)]


def _constant(op: Any) -> float:
    return NULL if op.value is None else float(op.value)


def _has_window(op: Any) -> bool:
    """Returns whether an expression is made of windows, those behind its fields aside."""
    if isinstance(op, ops.Field):
        return False
    return isinstance(op, ops.WindowFunction) or any(map(_has_window, _arguments(op)))


def _grouped_by(op: Any) -> list[Any]:
    """Returns the fields that each window of an expression is grouped by."""
    if isinstance(op, ops.WindowFunction):
        return [op.group_by]
    return [] if isinstance(op, ops.Field) else [by for part in _arguments(op) for by in _grouped_by(part)]


def _numbers(engine: Any, sql: str) -> dict[str, NumpyArray]:
    """Returns the columns of a query, float64, an empty cell is NaN."""
    found = engine.execute(sql).fetchnumpy()
    return {name: np.ma.filled(values.astype(float), NULL) for name, values in found.items()}


class History:
    """Events in memory, which one transaction at a time joins without staying.

    Args:
        engine: database with the table `events`.
        queries: of `columns.queries`.
        batch: whether windows reach to the end of a batch, so that a new row changes what is known of others there.
    """

    def __init__(self, engine: Any, queries: Sequence[Any], *, batch: bool) -> None:
        self.engine, self.batch = engine, batch
        self.new, self.known = dict[str, float](), dict[Any, Any]()
        self._numbers = dict[Any, int]()
        self._relations = dict[Any, Relation]()
        whole = [self.relation(query.op()) for query in queries]
        self._columns = [
            (relation.value(name), relation.n)
            for relation, query in zip(whole, queries, strict=True)
            for name in query.columns
            if name != "row"
        ]
        self.events = next(relation for relation in self._relations.values() if not relation.parts)
        self.row({name: values[-1] for name, values in self.events.events.items()})  # makes what needs the database

    def row(self, new: dict[str, float]) -> NumpyArray:
        """Returns the columns of a transaction, float32 [d], in the order of the queries.

        Args:
            new: its cells in the table of events; no event of the history is later.
        """
        self.new = new
        self.known.clear()
        return np.array([value(row) for value, row in self._columns], dtype=np.float32)

    def number(self, key: Any) -> int:
        """Returns a number that stands for equal things."""
        return self._numbers.setdefault(key, len(self._numbers))

    def relation(self, op: Any) -> Relation:
        """Returns a relation of the queries, made once."""
        if op not in self._relations:
            self._relations[op] = Relation(self, op)
        return self._relations[op]

    def compiled(self, op: Any) -> Value:
        """Returns what gives the value of an expression at a row."""
        if isinstance(op, ops.Field):
            return self.relation(op.rel).value(op.name)
        if isinstance(op, ops.Literal):
            constant = _constant(op)
            return lambda row: constant
        if isinstance(op, ops.WindowFunction):
            return self.relation(op.group_by[0].rel).window(op)
        function, parts = ELEMENTWISE[type(op)], [self.compiled(part) for part in _arguments(op)]
        return lambda row: function(*[part(row) for part in parts])


class Relation:
    """A table of the queries: rows 0 to n - 1 are the history's, those from n on the new transaction's."""

    def __init__(self, history: History, op: Any) -> None:
        self.history, self.op = history, op
        of = (op.left, op.right) if isinstance(op, ops.Union) else (op.parent,) if hasattr(op, "parent") else ()
        self.parts = [history.relation(part) for part in of]
        self.n: int = sum(part.n for part in self.parts) if of else len(self.events["tick"])
        self.n_new: int = sum(part.n_new for part in self.parts) if of else 1
        self.expressions: dict[str, Any] = op.values if isinstance(op, ops.Project) else {}
        self._groups = dict[tuple[str, ...], Groups]()
        self._arrays, self._values = dict[str, NumpyArray](), dict[str, Value]()
        self._windows = dict[Any, Value]()

    @cached_property
    def events(self) -> dict[str, NumpyArray]:
        """Every column of the table of events, float64 [n], an empty cell is NaN."""
        return _numbers(self.history.engine, "SELECT * FROM events ORDER BY row")

    def array(self, name: str) -> NumpyArray:
        """Returns a column of the history, float64 [n]."""
        if name not in self._arrays:
            self._arrays[name] = self._array(name)
        return self._arrays[name]

    def _array(self, name: str) -> NumpyArray:
        if not self.parts:
            return self.events[name]
        if len(self.parts) > 1:
            return np.concatenate([part.array(name) for part in self.parts])
        if name not in self.expressions:
            return self.parts[0].array(name)
        if self.is_windowed(name):
            sql = ibis.to_sql(self.op.to_expr(), dialect="duckdb")
            return _numbers(self.history.engine, f'SELECT "{name}" AS cell FROM ({sql}) ORDER BY row')["cell"]
        return self.parts[0].computed(self.expressions[name])

    def is_windowed(self, name: str) -> bool:
        """Returns whether a column is made of windows, so that a new transaction can change it."""
        return name in self.expressions and _has_window(self.expressions[name])

    def computed(self, op: Any) -> NumpyArray:
        """Returns an expression without windows over the history, [n]."""
        if isinstance(op, ops.Field):
            return self.array(op.name)
        if isinstance(op, ops.Literal):
            return np.full(self.n, _constant(op))
        columns = [self.computed(part).tolist() for part in _arguments(op)]
        return np.array(list(map(ELEMENTWISE[type(op)], *columns)), dtype=float)

    def value(self, name: str) -> Value:
        """Returns what gives a column's value at a row."""
        if name not in self._values:
            self._values[name] = self._value(name)
        return self._values[name]

    def _value(self, name: str) -> Value:
        if not self.parts:
            return lambda row: self.events[name][row] if row < self.n else self.history.new[name]
        values = [part.value(name) for part in self.parts] if name not in self.expressions else []
        if not values:
            return self.history.compiled(self.expressions[name])
        if len(values) == 1:
            return values[0]
        first, n = self.parts[0].n, self.n

        def of_union(row: int) -> Any:
            """Rows of the left table come before those of the right one, old and new ones alike."""
            right = row >= first if row < n else row > n
            return values[right](row - first * right if row < n else self.parts[right].n)

        return of_union

    def window(self, op: Any) -> Value:
        """Returns what gives the value of a window function at a row, made once."""
        if op not in self._windows:
            self._windows[op] = self._window(op)
        return self._windows[op]

    def _window(self, op: Any) -> Value:
        groups, frame = self.groups(tuple(field.name for field in op.group_by)), self.frame(op)
        if isinstance(op.func, ops.RowNumber):
            return lambda row: frame(row)[2]
        function, arg, where = REDUCTIONS[type(op.func)], op.func.arg, op.func.where
        live, known = self.history.compiled(arg), self.history.known
        passes = None if where is None else self.history.compiled(where)
        late = self.history.batch and isinstance(arg, ops.Field) and self.is_windowed(arg.name)
        by = _grouped_by(self.expressions[arg.name]) if late else []

        def reduced(row: int) -> Any:
            if (op, row) in known:
                return known[op, row]
            first, last, _, more = frame(row)
            values = groups.sorted(arg)[first:last]
            if late:
                values = self._renewed(groups, by, live, first, values)
            if passes is not None:
                values = values[groups.sorted(where)[first:last] != 0]
            extra = [live(new) for new in more if passes is None or passes(new)]
            values = np.append(values, extra) if extra else values
            values = values[values == values]
            known[op, row] = found = float(function(values)) if len(values) or function is len else NULL
            return found

        return reduced

    def _renewed(self, groups: Groups, by: list[Any], live: Value, first: int, values: NumpyArray) -> NumpyArray:
        """Returns values that windows made, with those that the new transaction changes made again."""
        new, last = self.history.new, first + len(values)
        begin = int(np.searchsorted(groups.sorted_ticks[first:last], new["first_tick"], side="left"))
        for fields in by if begin < len(values) else ():
            same = [groups.sorted(field)[first + begin : last] == new[field.name] for field in fields]
            values = values.copy()
            for place in np.logical_and.reduce(same).nonzero()[0]:
                values[begin + place] = live(int(groups.order[first + begin + place]))
        return values

    def groups(self, by: tuple[str, ...]) -> Groups:
        """Returns the rows grouped by some columns, made once."""
        if by not in self._groups:
            self._groups[by] = Groups(self, by)
        return self._groups[by]

    def frame(self, op: Any) -> Callable[[int], Frame]:
        """Returns what gives a window at a row.

        It holds the places [first, last) of the grouped rows and some new rows; between them stands how many rows of
        the group are not later.
        """
        groups, known = self.groups(tuple(field.name for field in op.group_by)), self.history.known
        by, tick = [self.value(name) for name in groups.by], self.value("tick")
        begin, end = self._offset(op.start, -np.inf), self._offset(op.end, np.inf)
        number = self.history.number((self.op, op.how, op.start, op.end, op.group_by))
        news = range(self.n, self.n + self.n_new)

        def at(row: int) -> Frame:
            if (number, row) in known:
                return known[number, row]
            codes, now = tuple([float(value(row)) for value in by]), tick(row)
            start, stop = groups.places.get(codes, (0, 0))
            ticks, more = groups.sorted_ticks[start:stop], []
            place = int(ticks.searchsorted(now, side="right"))
            low, high = begin(row), end(row)
            if op.how == "rows":
                first, last = max(place + low, 0), min(max(place + high + 1, 0), stop - start)
            else:
                first, last = ticks.searchsorted(now + low, side="left"), ticks.searchsorted(now + high, side="right")
                if high >= 0:
                    more = [new for new in news if low <= tick(new) - now <= high]
                    more = [new for new in more if tuple([float(value(new)) for value in by]) == codes]
            first = start + int(first)
            known[number, row] = found = first, max(first, start + int(last)), place, more
            return found

        return at

    def _offset(self, boundary: Any, nothing: float) -> Value:
        """Returns what gives an end of a window relative to a row, `nothing` where there is none."""
        if boundary is None:
            return lambda row: nothing
        value, sign = self.history.compiled(boundary.value), -1.0 if boundary.preceding else 1.0
        return lambda row: sign * value(row)


class Groups:
    """Rows of a relation, those with the same values of some columns together and in order of time."""

    def __init__(self, relation: Relation, by: tuple[str, ...]) -> None:
        self.relation, self.by = relation, by
        columns = [relation.array(name) for name in by]
        self.order = np.lexsort((relation.array("tick"), *columns))
        self.sorted_ticks = relation.array("tick")[self.order]
        codes = np.stack([column[self.order] for column in columns])
        starts = np.flatnonzero(np.append(True, (codes[:, 1:] != codes[:, :-1]).any(0)))
        ends = np.append(starts[1:], relation.n)
        names = map(tuple, codes[:, starts].T.tolist())
        self.places = dict(zip(names, zip(starts.tolist(), ends.tolist(), strict=True), strict=True))
        self._sorted = dict[Any, NumpyArray]()

    def sorted(self, op: Any) -> NumpyArray:
        """Returns an expression over the rows in this order, [n]."""
        if op not in self._sorted:
            self._sorted[op] = self.relation.computed(op)[self.order]
        return self._sorted[op]


class OneRow:
    """Earlier transactions in memory, and the columns of one after them, in milliseconds.

    Args:
        source: table of the earlier transactions.
        describe: returns how they are read, by the loaded table.
        amount: column of the amounts, see `load`.

    Raises:
        InputError: they cannot be read.
    """

    def __init__(
        self, source: Any, describe: Callable[[Any, dict[str, str]], Description], amount: str | None = None
    ) -> None:
        with database() as engine:
            kinds = load(engine, source, "source", amount)
            self.reading = Reading(engine, describe(engine, kinds), kinds, {})
            self.reading.check()
            layout = self.reading.events(self.reading.labels()[1])
            every = list(queries(layout))
            self.history = History(engine, every, batch=layout.batch is not None)
            self.names = [Column(name) for query in every for name in query.columns if name != "row"]
            self.raw = [column for column in self.reading.raw_columns() if column.kind != "categorical"]
            self.codes = dict[str, dict[str, float]]()
            for g, group in enumerate(self.reading.groups):
                codes = dict(engine.execute(f"SELECT name, code FROM names{g}").fetchall())
                self.codes |= dict.fromkeys(group, codes)
            for name in layout.categories:
                text = f"coalesce({name_sql(name, kinds[name])}, '')"
                values = engine.execute(f"SELECT DISTINCT {text}, CAST(hash({text}) // 2 AS BIGINT) FROM source")
                self.codes[name] = dict(values.fetchall())
        self.layout, self.parties = layout, range(len(layout.parties))
        self.last = float(self.history.events.array("tick").max())

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
        texts = {name: _text(row.get(name)) for name in reading.texts}
        columns = [
            *self.raw[: len(raw)],
            *(Column(name, "categorical", (text,)) for name, text in texts.items() if text),
        ]
        columns += [*(Column(name, "categorical", ("",)) for name, text in texts.items() if not text)]
        raw += [0.0 if columns[len(raw) + k].categories != ("",) else NULL for k in range(len(texts))]
        if layout.clock.dated:
            raw += [new["tick"] % DAY / (DAY // 24), (new["tick"] // DAY + 3) % 7]
        x = np.concatenate([np.array(raw, dtype=np.float32), self.history.row(new)])
        columns += [*self.raw[len(columns) - len(texts) :], *self.names]
        nothing = Csr(torch.zeros(2, dtype=torch.int64), torch.empty(0, dtype=torch.int32), torch.empty(0), 1)
        name = reading.table.name
        return Graph(nothing, torch.from_numpy(x[None]), columns=tuple(columns), name=name, trusted=True)

    def _event(self, row: Mapping[str, Any]) -> dict[str, float]:
        """Returns what the table of events would have of a transaction."""
        table, layout = self.reading.table, self.layout
        tick, n = self._ticks(row[str(table.time)]), self.history.events.n
        batch, delay = (layout.clock.ticks(str(getattr(table, name)), name) for name in ("batch", "label_delay"))
        first = tick if layout.batch is None else tick - tick % batch
        end = tick if layout.batch is None else first + batch
        cutoff = tick - max(delay, 1) if layout.batch is None else min(first + batch - max(delay, 0), first - 1)
        new: dict[str, float] = {"row": n, "tick": tick, "first_tick": first, "end_tick": end, "cutoff": cutoff}
        names = [_text(row[party]) for party in layout.parties]
        for i, (party, name) in enumerate(zip(layout.parties, names, strict=True)):
            new[party_column(i)] = self.codes[party].get(name, -1.0 - n - names.index(name))
        for i, category in enumerate(layout.categories):
            new[category_column(i)] = self.codes[category].get(_text(row.get(category)), -1.0)
        for i, j in combinations(self.parties, 2):
            together = self.history.events.groups((party_column(i), party_column(j))).places
            new[new_column(i, j)] = float((new[party_column(i)], new[party_column(j)]) not in together)
        amount = NULL if layout.amount is None else _number(row[layout.amount])
        if amount < 0 or math.isinf(amount):
            raise ValueError(f"column {layout.amount!r} must hold a number >= 0, got {amount}")
        new |= {"amount": amount, "squared": float(np.float32(amount * amount)), "label": NULL}
        return new | {number_column(k): _number(row.get(name)) for k, name in enumerate(layout.numbers)}

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
