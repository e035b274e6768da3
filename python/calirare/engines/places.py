"""Engines, where tables live and functions are applied to batches of their rows: DuckDB in this process, or Spark."""

from __future__ import annotations

import abc
import tempfile
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

from calirare._util.errors import InputError
from calirare.engines.batches import Step
from calirare.graph.tables.sources import arrow_reader


class Engine(abc.ABC):
    """Tables of one connection of ibis, and those that are made on the way, which go at the end.

    Args:
        con: the connection.
    """

    def __init__(self, con: Any) -> None:
        self.con = con
        self._id, self._numbers = f"calirare_{uuid4().hex[:12]}", count()

    @classmethod
    def of(cls, table: Any) -> Engine:
        """Returns the engine of a table of ibis.

        Raises:
            InputError: there is none for it.
        """
        con = table.get_backend()
        if con.name not in ENGINES:
            raise InputError(
                f"engines: tables must be those of {' or '.join(ENGINES)}, got {con.name}: copy them into DuckDB"
            )
        return ENGINES[con.name](con)

    def __enter__(self) -> Self:
        return self

    @abc.abstractmethod
    def __exit__(self, *error: object) -> None:
        """Removes the tables that were made on the way."""

    def name(self) -> str:
        """Returns a name for a table that nobody else has."""
        return f"{self._id}_{next(self._numbers)}"

    @abc.abstractmethod
    def kept(self, expression: Any) -> Any:
        """Returns a table that is worked out once."""

    @abc.abstractmethod
    def mapped(self, expression: Any, step: Step) -> Any:
        """Returns the table that a function makes of batches of rows, worked out once."""

    @abc.abstractmethod
    def fetched(self, expression: Any) -> Any:
        """Returns a table in the memory of this process, of pyarrow."""

    @abc.abstractmethod
    def loaded(self, table: Any) -> Any:
        """Returns a table of pyarrow in the engine."""

    @abc.abstractmethod
    def result(self, expression: Any) -> Any:
        """Returns a table that stays as long as the connection."""


class DuckDb(Engine):
    """DuckDB: batches go through this process, one after the other, and into Parquet files."""

    def __init__(self, con: Any) -> None:
        super().__init__(con)
        spilled = con.con.execute("SELECT current_setting('temp_directory')").fetchall()[0][0]
        where = spilled if spilled and Path(spilled).is_dir() else None
        self._folder = tempfile.TemporaryDirectory(prefix="calirare_", dir=where)
        self._made = list[tuple[str, str]]()

    def __exit__(self, *error: object) -> None:
        """See `Engine.__exit__`."""
        for kind, name in self._made:
            self.con.con.execute(f'DROP {kind} IF EXISTS "{name}"')
        self._folder.cleanup()

    def kept(self, expression: Any) -> Any:
        """See `Engine.kept`."""
        name = self.name()
        self._made.append(("TABLE", name))
        return self.con.create_table(name, expression, temp=True)

    def mapped(self, expression: Any, step: Step) -> Any:
        """See `Engine.mapped`."""
        from pyarrow import parquet

        path = Path(self._folder.name) / f"{self.name()}.parquet"
        how = {"compression": "none", "use_dictionary": False}
        with (
            arrow_reader(self.con.con, self.con.compile(expression)) as rows,
            parquet.ParquetWriter(path, step.schema(rows.schema), **how) as writer,
        ):
            for batch in _each(step, rows):
                writer.write_batch(batch)
        self._made.append(("VIEW", path.stem))
        return self.con.read_parquet(path, table_name=path.stem)

    def fetched(self, expression: Any) -> Any:
        """See `Engine.fetched`."""
        return arrow_reader(self.con.con, self.con.compile(expression)).read_all()

    def loaded(self, table: Any) -> Any:
        """See `Engine.loaded`."""
        name = self.name()
        self.con.con.register(name, table)
        self._made.append(("VIEW", name))
        return self.con.table(name)

    def result(self, expression: Any) -> Any:
        """See `Engine.result`."""
        return self.con.create_table(self.name(), expression, temp=True)


class Spark(Engine):
    """Spark: functions run in its workers, by `mapInArrow`."""

    def __init__(self, con: Any) -> None:
        super().__init__(con)
        self._frames = list[Any]()

    def __exit__(self, *error: object) -> None:
        """See `Engine.__exit__`."""
        for frame in self._frames:
            frame.unpersist()

    def kept(self, expression: Any) -> Any:
        """See `Engine.kept`."""
        return self._table(self._frame(expression), keep=True)

    def mapped(self, expression: Any, step: Step) -> Any:
        """See `Engine.mapped`."""
        from pyspark.sql.pandas.types import from_arrow_schema

        schema = from_arrow_schema(step.schema(expression.schema().to_pyarrow()))
        return self._table(self._frame(expression).mapInArrow(partial(_each, step), schema), keep=True)

    def fetched(self, expression: Any) -> Any:
        """See `Engine.fetched`."""
        return self._frame(expression).toArrow()

    def loaded(self, table: Any) -> Any:
        """See `Engine.loaded`."""
        return self._table(self.con._session.createDataFrame(table), keep=False)

    def result(self, expression: Any) -> Any:
        """See `Engine.result`."""
        frame = self._frame(expression).persist()
        frame.count()  # before what it is made of goes
        return self._table(frame, keep=False)

    def _frame(self, expression: Any) -> Any:
        return self.con.raw_sql(self.con.compile(expression))

    def _table(self, frame: Any, *, keep: bool) -> Any:
        name = self.name()
        if keep:
            self._frames.append(frame.persist())
        frame.createOrReplaceTempView(name)
        return self.con.table(name)


def _each(step: Step, batches: Iterable[Any]) -> Iterator[Any]:
    """Yields what a step makes of batches of rows."""
    return (step(batch) for batch in batches if batch.num_rows)


ENGINES: dict[str, type[Engine]] = {"duckdb": DuckDb, "pyspark": Spark}
