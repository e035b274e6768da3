"""From loaded tables to the graph: times in ticks, parties in numbers, labels, and the columns block by block."""

from __future__ import annotations

import re
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import torch

from calirare._util.amounts import amount as counted
from calirare._util.amounts import listed
from calirare._util.array_files import NumpyArray, release, scratch
from calirare._util.errors import FaultsError, InputError
from calirare.graph import Column, Graph, find_name
from calirare.graph.tables import Table, labels_of, row_in_words
from calirare.transactions.description import Description
from calirare.transactions.layout import Layout, category_column, new_column, number_column, party_column
from calirare.transactions.opening import quoted
from calirare.transactions.roles import DATE, NONE, NUMBER, TEXT, ZONED
from calirare.transactions.time import FINE, SECOND, SECONDS, Clock
from calirare_ext import Csr

ROWS = 1 << 13  # rows fetched together: they fit the cache
DAY = SECONDS["d"] * SECOND
DAYS_TO_2000 = 10_957  # from 1970
CELL, CODE = "calirare_cell", "calirare_code"  # columns next to those of the user
MOST_LABELS = 20  # different cells of a column of labels that are looked at


def clock_of(engine: Any, time: str, kinds: dict[str, str], where: str) -> tuple[Clock, int, int]:
    """Returns the clock of a column of times, the span of the table in ticks, and the shortest sensible length.

    Raises:
        FaultsError: a time cannot be read.
    """
    number, column = bool(NUMBER.fullmatch(kinds[time])), quoted(time)
    if number:
        low, high = engine.execute(f"SELECT min({column}), max({column}) FROM source").fetchall()[0]
        large = max(abs(low or 0), abs(high or 0)) >= FINE
        clock = Clock(False, 1 if large else SECOND, time)
    else:
        clock = Clock(True, DAY, time)
    tick = tick_sql(clock, time, kinds)
    wrong, first, low, high, fractions = engine.execute(
        f"SELECT count(*) FILTER (t IS NULL), min(rowid) FILTER (t IS NULL), min(t), max(t), "
        f"count(*) FILTER (t % {clock.per_unit} <> 0) FROM (SELECT rowid, {tick} AS t FROM source)"
    ).fetchall()[0]
    if wrong:
        row = row_in_words(first, Path(where))
        cell = engine.execute(f"SELECT CAST({column} AS VARCHAR) FROM source WHERE rowid = {first}").fetchall()[0][0]
        raise FaultsError(
            [
                f"{where}: every transaction needs a time, a number or a date such as 2026-01-31 10:00, but "
                f"{counted(wrong, 'row')} of column {time!r} has none, the first is {row}: {cell!r}. Fix them"
            ]
        )
    return clock, int(high - low), 1 if fractions or clock.dated else clock.per_unit


def tick_sql(clock: Clock, time: str, kinds: dict[str, str]) -> str:
    """Returns the SQL of a time in ticks, null where it cannot be read."""
    if not clock.dated:
        return f"TRY_CAST(round({quoted(time)} * {clock.per_unit}) AS BIGINT)"
    kind = kinds[time]
    cell = quoted(time) if DATE.match(kind) else f"CAST({quoted(time)} AS VARCHAR)"
    return f"epoch_us(TRY_CAST({cell} AS TIMESTAMPTZ))"


def name_sql(column: str, kind: str) -> str:
    """Returns the SQL of a party's name: whole numbers have no point, an empty cell is null."""
    cell = quoted(column)
    if re.match(r"FLOAT|DOUBLE|DECIMAL", kind):
        whole = f"CAST(CAST({cell} AS BIGINT) AS VARCHAR)"
        return f"CASE WHEN {cell} = floor({cell}) THEN {whole} ELSE CAST({cell} AS VARCHAR) END"
    return f"nullif(trim(CAST({cell} AS VARCHAR)), '')"


class Reading:
    """Reads loaded tables.

    Args:
        engine: database with the tables `source` and, where there is one, `history`.
        table: the description, with nothing left open.
        kinds: DuckDB types of the columns of `source`.
        before: likewise of `history`; empty: there is none.
    """

    def __init__(self, engine: Any, table: Description, kinds: dict[str, str], before: dict[str, str]) -> None:
        self.engine, self.table, self.kinds, self.before = engine, table, kinds, before
        self.n = self._count("source")
        self.n_before = self._count("history") if before else 0
        self.amount = None if table.amount == NONE else table.amount
        self.label = table.label if table.label in kinds or table.label in before else None
        self.notes = list(table.notes)
        self.groups = [[name] for name in table.entities if name not in table.shared]  # whose names are the same
        self.groups += [list(table.shared)] if table.shared != (NONE,) else []
        others = [name for name in kinds if name not in self._roles()]
        self.numbers = tuple(name for name in others if NUMBER.fullmatch(kinds[name]))
        self.categories = tuple(name for name in table.categories if name != NONE)
        self.texts = tuple(name for name in others if TEXT.match(kinds[name]) and name not in self.categories)
        self.dates = tuple(name for name in others if DATE.match(kinds[name]))

    @cached_property
    def clock(self) -> Clock:
        """How times become ticks."""
        assert self.table.time is not None
        return clock_of(self.engine, self.table.time, self.kinds, self.table.where)[0]

    def _roles(self) -> set[str | None]:
        table = self.table
        return {table.time, table.label, table.amount, table.id, *table.entities, *table.drop_columns}

    def _count(self, table: str) -> int:
        return int(self.engine.execute(f"SELECT count(*) FROM {table}").fetchall()[0][0])

    def graph(self) -> Graph:
        """Returns the graph: a node per row of `source`.

        Raises:
            FaultsError: cells do not fit.
        """
        self.check()
        classes, values = self.labels()
        layout = self.events(values)
        names, x = self._matrix(layout)
        found = self.engine.execute(
            f"SELECT tick, coalesce(label, -1) AS label FROM events WHERE row >= {self.n_before} ORDER BY row"
        ).fetchnumpy()
        time = (found["tick"] - (DAYS_TO_2000 * DAY if self.clock.dated else 0)) / self.clock.per_unit
        columns = self.raw_columns()
        return Graph(
            _no_edges(self.n),
            x,
            torch.from_numpy(found["label"].astype(np.int64)) if classes else None,
            class_names=classes,
            name=self.table.name,
            node_names=self._node_names(),
            keys=self._keys(),
            columns=(*columns, *(Column(name) for name in names[len(columns) :])),
            time=torch.from_numpy(time),
            notes=tuple(f"transactions: {note}" for note in self.notes),
            where=self.table.where,
        )

    def check(self) -> None:
        """Raises a FaultsError with every fault of the cells."""
        if faults := self.faults():
            raise FaultsError(faults)

    def faults(self) -> list[str]:
        """Returns every fault of columns, amounts and labels."""
        table, faults = self.table, list[str]()
        for name, kinds in (("source", self.kinds), ("history", self.before)):
            where = table.where if name == "source" else "history"
            need = [table.time, *table.entities, *self.categories, *([self.amount] if self.amount else [])]
            absent = [each for each in need if each not in kinds] if kinds else []
            faults += [f"{where}: there is no column {each!r}: write the same columns as before" for each in absent]
            if self.amount is None or not kinds or self.amount in absent:
                continue
            cell = quoted(self.amount)
            if not NUMBER.fullmatch(kinds[self.amount]):
                faults.append(
                    f"{where}: amounts must be numbers, but column {self.amount!r} holds {self._odd(name)}: "
                    "write all in one form, such as 1204.50, or name another column (--amount)"
                )
                continue
            wrong, first = self.engine.execute(
                f"SELECT count(*), min(rowid) FROM {name} WHERE {cell} IS NULL OR NOT isfinite(CAST({cell} AS DOUBLE))"
            ).fetchall()[0]
            if wrong:
                faults.append(
                    f"{where}: amounts must be numbers, but {counted(wrong, 'row')} of column {self.amount!r} "
                    f"holds none, the first is {row_in_words(first, Path(where))}. Fix them, or use "
                    "--amount none"
                )
        if table.id in self.kinds and table.id in self.before:
            cell = f"CAST({quoted(str(table.id))} AS VARCHAR)"
            again = self._count(f"source WHERE {cell} IN (SELECT {cell} FROM history)")
            if again:
                faults.append(
                    f"{table.where}: {counted(again, 'transaction')} of {self.n:,} {'is' if again == 1 else 'are'} in "
                    f"the history already, by column {table.id!r}, and would count twice: leave them out"
                )
        try:
            self.labels()
        except FaultsError as error:
            faults += error.faults
        return faults

    def _odd(self, table: str) -> str:
        """Returns the first amount that is no number, and where it is."""
        cell = f"CAST({quoted(str(self.amount))} AS VARCHAR)"
        wrong = f"{cell} IS NOT NULL AND TRY_CAST({cell} AS DOUBLE) IS NULL"
        query = f"SELECT {cell}, rowid FROM {table} WHERE {wrong} ORDER BY rowid LIMIT 1"
        odd = self.engine.execute(query).fetchall()
        return f"{odd[0][0]!r} in {row_in_words(odd[0][1], Path(self.table.where))}" if odd else "none"

    def labels(self) -> tuple[tuple[str, ...], dict[str, int]]:
        """Returns the names of both classes, the rare one last, and the class of each cell of labels."""
        if self.label is None:
            return (), {}
        import pandas as pd

        tables = [name for name, kinds in (("source", self.kinds), ("history", self.before)) if self.label in kinds]
        cells = " UNION ALL ".join(
            f"SELECT CAST({quoted(self.label)} AS VARCHAR) AS cell FROM {each}" for each in tables
        )
        found = self.engine.execute(
            f"SELECT cell, count(*) FROM ({cells}) GROUP BY cell ORDER BY count(*) DESC, cell LIMIT {MOST_LABELS + 1}"
        ).fetchall()
        table = Table(pd.DataFrame({self.label: [cell for cell, _ in found]}, dtype=object), self.table.where)
        read = labels_of(table, self.label, tuple(self.table.unknown), of="transaction")
        table.check()
        assert read.y is not None
        rare_class = self.table.rare_class
        if len(read.names) == 1 and self.before and rare_class is not None:  # a next batch, of which the run knows both
            known = int(find_name(rare_class, read.names) is not None)
            return (), {cell: known for (cell, _), k in zip(found, read.y.tolist(), strict=True) if k >= 0}
        if len(read.names) != 2:
            raise FaultsError(
                [
                    f"{self.table.where}: labels must have two values, but column {self.label!r} has "
                    f"{'more than ' if len(found) > MOST_LABELS else ''}{len(read.names)}: "
                    f"{listed(read.names[:5])}. Name the values that mean no label (--unknown), or another column "
                    "(--label)"
                ]
            )
        sizes = [sum(size for (_, size), k in zip(found, read.y.tolist(), strict=True) if k == of) for of in (0, 1)]
        rare = 1 if read.names == ("0", "1") or sizes[1] <= sizes[0] else 0
        if self.table.rare_class is not None:
            named = find_name(self.table.rare_class, read.names)
            if named is None:
                raise FaultsError(
                    [
                        f"{self.table.where}: there is no class {self.table.rare_class!r} of column "
                        f"{self.label!r}, the classes are {listed(read.names)} (--rare-class)"
                    ]
                )
            rare = named
        self.notes += list(read.notes())
        classes = (read.names[1 - rare], read.names[rare])
        of_cell = {cell: int(k == rare) for (cell, _), k in zip(found, read.y.tolist(), strict=True) if k >= 0}
        return classes, of_cell

    def events(self, values: dict[str, int]) -> Layout:
        """Makes the table of events of both tables; returns what its columns are made of."""
        table, clock, parties = self.table, self.clock, range(len(self.table.entities))
        run = self.engine.execute
        assert table.batch is not None
        assert table.label_delay is not None
        groups = self.groups
        group_of = {name: g for g, group in enumerate(groups) for name in group}
        selects = []
        for name, kinds in (("history", self.before), ("source", self.kinds)):
            if kinds:
                selects.append(self._cells(name, kinds, values))
        run(f"CREATE TABLE cells AS {' UNION ALL '.join(selects)}")
        for g, group in enumerate(groups):
            names = " UNION ".join(
                f"SELECT DISTINCT name{table.entities.index(each)} AS name FROM cells" for each in group
            )
            run(
                f"CREATE TABLE names{g} AS SELECT name, row_number() OVER () AS code FROM ({names}) "
                "WHERE name IS NOT NULL"
            )
        batch, delay = clock.ticks(table.batch, "batch"), max(clock.ticks(table.label_delay, "label_delay"), 0)
        if table.known_at == "batch":
            first = f"tick - ((tick % {batch}) + {batch}) % {batch}"
            end, cutoff = f"{first} + {batch}", f"least({first} + {batch - delay}, {first} - 1)"
        else:
            first, end, cutoff = "tick", "tick", f"tick - {max(delay, 1)}"
        codes = [f"coalesce(n{i}.code, -1 - row) AS {party_column(i)}" for i in parties]
        joins = [f"LEFT JOIN names{group_of[table.entities[i]]} n{i} ON n{i}.name = cells.name{i}" for i in parties]
        new = [
            f"CAST(row_number() OVER (PARTITION BY {party_column(i)}, {party_column(j)} ORDER BY tick, row) = 1 "
            f"AS BIGINT) AS {new_column(i, j)}"
            for i, j in combinations(parties, 2)
        ]
        numbers = [category_column(k) for k in range(len(self.categories))]
        numbers += [number_column(k) for k in range(len(self.numbers))]
        run(
            f"CREATE TABLE events AS SELECT *, {', '.join(new)} FROM (SELECT row, tick, {first} AS first_tick, "
            f"{end} AS end_tick, {cutoff} AS cutoff, {', '.join([*codes, 'amount', 'label', *numbers])}, "
            f"CAST(CAST(amount * amount AS FLOAT) AS DOUBLE) AS squared "
            f"FROM cells {' '.join(joins)})"
        )
        run("DROP TABLE cells")
        return Layout(
            tuple(table.entities),
            () if table.shared == (NONE,) else ((table.shared[0], table.shared[1]),),
            self.amount,
            table.label,
            self.numbers,
            self.categories,
            tuple(clock.ticks(each, "windows") for each in table.windows),
            clock,
            batch if table.known_at == "batch" else None,
        )

    def _cells(self, name: str, kinds: dict[str, str], values: dict[str, int]) -> str:
        """Returns the SQL of a table's cells under common names; rows are numbered from the first of the history."""
        table, start = self.table, self.n_before if name == "source" else 0
        assert table.time is not None
        cells = [f"rowid + {start} AS row", f"{tick_sql(self.clock, table.time, kinds)} AS tick"]
        cells += [f"{name_sql(each, kinds[each])} AS name{i}" for i, each in enumerate(table.entities)]
        amount = "NULL" if self.amount is None else quoted(self.amount)
        label = "NULL"
        if self.label in kinds and values:
            cell = f"CAST({quoted(str(self.label))} AS VARCHAR)"
            whens = " ".join(f"WHEN {_text(cell_of)} THEN {k}" for cell_of, k in values.items())
            label = f"CASE {cell} {whens} END"
        cells += [f"{_exact_sql(amount)} AS amount", f"CAST({label} AS DOUBLE) AS label"]
        for k, category in enumerate(self.categories):  # an empty cell is a value of its own
            text = f"coalesce({name_sql(category, kinds[category])}, '')"
            cells.append(f"CAST(hash({text}) // 2 AS BIGINT) AS {category_column(k)}")
        for k, number in enumerate(self.numbers):
            known = number in kinds and NUMBER.fullmatch(kinds[number])
            cells.append(f"{_exact_sql(quoted(number) if known else 'NULL')} AS {number_column(k)}")
        return f"SELECT {', '.join(cells)} FROM {name}"

    def raw_columns(self) -> tuple[Column, ...]:
        """Returns the columns of the table itself, and the hour and day of dates."""
        names = [*([self.amount] if self.amount else []), *self.numbers]
        found = [Column(name) for name in names] + [Column(name, "date") for name in self.dates]
        found += [Column(name, "categorical", self._categories(name)) for name in self.texts]
        return (*found, *([Column("hour of the day"), Column("day of the week")] if self.clock.dated else []))

    def _categories(self, name: str) -> tuple[str, ...]:
        """Returns the names of a category, in their order."""
        text = name_sql(name, self.kinds[name])
        rows = self.engine.execute(f"SELECT DISTINCT {text} AS cell FROM source WHERE {text} IS NOT NULL ORDER BY cell")
        return tuple(cell for (cell,) in rows.fetchall())

    def _raw_sql(self) -> str:
        """Returns the SQL of the columns of the table itself, after `row`."""
        cells = [quoted(name) for name in (*([self.amount] if self.amount else []), *self.numbers)]
        cells += [f"epoch_us(TRY_CAST({quoted(name)} AS TIMESTAMPTZ)) / {DAY} - {DAYS_TO_2000}" for name in self.dates]
        joins = ""
        for k, name in enumerate(self.texts):
            text = name_sql(name, self.kinds[name])
            joins += (
                f" LEFT JOIN (SELECT {CELL}, row_number() OVER (ORDER BY {CELL}) - 1 AS {CODE} FROM (SELECT DISTINCT "
                f"{text} AS {CELL} FROM source WHERE {text} IS NOT NULL)) t{k} ON t{k}.{CELL} = {text}"
            )
            cells.append(f"t{k}.{CODE}")
        if self.clock.dated:
            assert self.table.time is not None
            tick = tick_sql(self.clock, self.table.time, self.kinds)
            cells += [f"({tick} % {DAY}) / {DAY // 24}", f"({tick} // {DAY} + 3) % 7"]
        numbers = [f"CAST({cell} AS FLOAT) AS c{k}" for k, cell in enumerate(cells)]
        return f"SELECT {', '.join([f'source.rowid + {self.n_before} AS row', *numbers])} FROM source{joins}"

    def _matrix(self, layout: Layout) -> tuple[list[str], torch.Tensor]:
        """Returns the names of all columns, and the matrix, float32 [n, d].

        Each query's columns become a table in the order of the rows, and the matrix is written from all at once: a
        matrix in a file, written column by column, would go to the disk many times.
        """
        from calirare.transactions.columns import statements  # late: it imports ibis

        raw = ("row", *(column.name for column in self.raw_columns()))
        queries = {"raw": (raw, self._raw_sql())} if len(raw) > 1 else {}
        queries |= {f"made{k}": query for k, query in enumerate(statements(layout))}
        names = [name for made, _ in queries.values() for name in made[1:]]
        for table, (_, sql) in queries.items():
            self.engine.execute(f"CREATE TEMP TABLE {table} AS SELECT * FROM ({sql}) ORDER BY row")
        blocks = (f"(SELECT * EXCLUDE (row) FROM {table} WHERE row >= {self.n_before})" for table in queries)
        rows = self.engine.sql(f"SELECT * FROM {' POSITIONAL JOIN '.join(blocks)}")
        x, last = scratch(self.n, len(names), torch.device("cpu")), 0
        for batch in rows.to_arrow_reader(ROWS) if hasattr(rows, "to_arrow_reader") else rows.fetch_arrow_reader(ROWS):
            first, last = last, last + len(batch)
            columns = [column.to_numpy(zero_copy_only=False) for column in batch.columns]  # an empty cell is NaN
            np.stack(columns, 1, out=x.numpy()[first:last])
            release(x)
        assert last == self.n
        for table in queries:
            self.engine.execute(f"DROP TABLE {table}")
        return names, x

    def _keys(self) -> dict[str, Any]:
        """Returns time, parties and amount of each transaction of `source`."""
        import pandas as pd

        time, keys = str(self.table.time), dict[str, Any]()
        cells = ", ".join(["tick", *map(party_column, range(len(self.table.entities))), "amount"])
        events = f"SELECT {cells} FROM events WHERE row >= {self.n_before} ORDER BY row"
        found = {
            name: np.ma.filled(values, np.nan) for name, values in self.engine.execute(events).fetchnumpy().items()
        }
        keys[time] = found["tick"].astype("datetime64[us]") if self.clock.dated else found["tick"] / self.clock.per_unit
        if ZONED.match(self.kinds[time]):
            keys[time] = pd.DatetimeIndex(keys[time], tz="UTC")
        for g, group in enumerate(self.groups):
            names = self.engine.execute(f"SELECT name FROM names{g} ORDER BY code").fetchnumpy()["name"].astype(str)
            for party in group:
                codes = found[party_column(self.table.entities.index(party))]
                keys[party] = pd.Categorical.from_codes(np.maximum(codes - 1, -1), pd.Index(names))
        keys = {name: keys[name] for name in (time, *self.table.entities)}
        return keys | ({} if self.amount is None else {self.amount: found["amount"]})

    def _node_names(self) -> NumpyArray | None:
        """Returns the names of the transactions; None: they are numbered."""
        import pandas as pd

        if self.table.id == NONE or self.table.id not in self.kinds:
            return None
        text = name_sql(self.table.id, self.kinds[self.table.id])
        cells = self.engine.execute(f"SELECT {text} FROM source ORDER BY rowid").fetchnumpy()
        names = np.asarray(next(iter(cells.values()))).astype(str)
        again = pd.Series(names).duplicated().to_numpy()
        if again.any():
            row = int(again.argmax())
            lines = [row_in_words(k, Path(self.table.where)) for k in (int((names == names[row]).argmax()), row)]
            raise InputError(
                f"{self.table.where}: column {self.table.id!r} must name each transaction once, but {names[row]!r} is "
                f"in {' and '.join(lines)}: remove one, or number the transactions (--id none)"
            )
        return names


def _exact_sql(cell: str) -> str:
    """Returns the SQL of a number with 24 bits: sums of many in float64 are exact, thus the same in every order."""
    return f"CAST(CAST({cell} AS FLOAT) AS DOUBLE)"


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _no_edges(n: int) -> Csr:
    nothing = torch.zeros(n + 1, dtype=torch.int64)
    return Csr(nothing, torch.empty(0, dtype=torch.int32), torch.empty(0), n)
