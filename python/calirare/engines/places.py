"""Engines, where tables live and functions are applied to batches of their rows: DuckDB in this process, or Spark."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

from calirare._util.errors import InputError
from calirare.engines.batches import Step
from calirare.graph.tables.sources import arrow_reader


class DuckDb:
    """DuckDB: batches go through this process, one after the other, and into Parquet files.

    Tables that are made on the way go at the end.

    Args:
        con: connection of ibis.
    """

    def __init__(self, con: Any) -> None:
        self.con, self._made = con, list[tuple[str, str]]()
        spilled = con.con.execute("SELECT current_setting('temp_directory')").fetchall()[0][0]
        where = spilled if spilled and Path(spilled).is_dir() else None
        self._folder = tempfile.TemporaryDirectory(prefix="calirare_", dir=where)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Removes the tables that were made on the way."""
        for kind, name in self._made:
            self.con.con.execute(f'DROP {kind} IF EXISTS "{name}"')
        self._folder.cleanup()

    def kept(self, expression: Any) -> Any:
        """Returns a table that is worked out once."""
        return self.con.create_table(self._name("TABLE"), expression, temp=True)

    def grouped(self, expression: Any, by: str) -> Any:
        """Returns a table that is computed once, ordered by a column: sums by this column then need little memory."""
        return self.kept(expression.order_by(by))

    def mapped(self, expression: Any, step: Step) -> Any:
        """Returns the table that a function makes of batches of rows, worked out once."""
        from pyarrow import parquet

        name, how = self._name("VIEW"), {"compression": "none", "use_dictionary": False}
        path = Path(self._folder.name) / f"{name}.parquet"
        with (
            arrow_reader(self.con.con, self.con.compile(expression)) as rows,
            parquet.ParquetWriter(path, step.schema(rows.schema), **how) as writer,
        ):
            for batch in _each(step, rows):
                writer.write_batch(batch)
        return self.con.read_parquet(path, table_name=name)

    def fetched(self, expression: Any) -> Any:
        """Returns a table in the memory of this process, of pyarrow."""
        return arrow_reader(self.con.con, self.con.compile(expression)).read_all()

    def loaded(self, table: Any) -> Any:
        """Returns a table of pyarrow in the engine."""
        name = self._name("VIEW")
        self.con.con.register(name, table)
        return self.con.table(name)

    def result(self, expression: Any) -> Any:
        """Returns a table that stays as long as the connection."""
        return self.con.create_table(_new_name(), expression, temp=True)

    def _name(self, kind: str) -> str:
        self._made.append((kind, _new_name()))
        return self._made[-1][1]


class Spark:
    """Spark: functions run in its workers, by `mapInArrow`. Methods are those of `DuckDb`.

    Args:
        con: connection of ibis.
    """

    def __init__(self, con: Any) -> None:
        self.con, self._frames = con, list[Any]()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """See `DuckDb`."""
        for frame in self._frames:
            frame.unpersist()

    def kept(self, expression: Any) -> Any:
        """See `DuckDb.kept`."""
        return self._table(self._frame(expression))

    def grouped(self, expression: Any, by: str) -> Any:
        """See `DuckDb.grouped`; Spark orders rows itself when it sums."""
        del by
        return self.kept(expression)

    def mapped(self, expression: Any, step: Step) -> Any:
        """See `DuckDb.mapped`; there are two parts for each core, as each starts Python and reads the detector."""
        from pyspark.sql.pandas.types import from_arrow_schema

        schema = from_arrow_schema(step.schema(expression.schema().to_pyarrow()))
        parts = 2 * self.con._session.sparkContext.defaultParallelism
        return self._table(self._frame(expression).coalesce(parts).mapInArrow(partial(_each, step), schema))

    def fetched(self, expression: Any) -> Any:
        """See `DuckDb.fetched`."""
        return self._frame(expression).toArrow()

    def loaded(self, table: Any) -> Any:
        """See `DuckDb.loaded`."""
        return self._table(self.con._session.createDataFrame(table))

    def result(self, expression: Any) -> Any:
        """See `DuckDb.result`."""
        table = self._table(self._frame(expression))
        self._frames.pop().count()  # before what it is made of goes
        return table

    def _frame(self, expression: Any) -> Any:
        return self.con.raw_sql(self.con.compile(expression))

    def _table(self, frame: Any) -> Any:
        name = _new_name()
        self._frames.append(frame.persist())
        frame.createOrReplaceTempView(name)
        return self.con.table(name)


Engine = DuckDb | Spark
ENGINES: dict[str, type[DuckDb] | type[Spark]] = {"duckdb": DuckDb, "pyspark": Spark}


def engine_of(table: Any) -> Engine:
    """Returns the engine of a table of ibis.

    Raises:
        InputError: there is none for it.
    """
    con = table.get_backend()
    if con.name not in ENGINES:
        names = " or ".join(ENGINES)
        raise InputError(f"engines: tables must be those of {names}, got {con.name}: copy them into DuckDB")
    return ENGINES[con.name](con)


def _new_name() -> str:
    return f"calirare_{uuid4().hex}"


def _each(step: Step, batches: Iterable[Any]) -> Iterator[Any]:
    """Yields what a step makes of batches of rows."""
    return (step(batch) for batch in batches if batch.num_rows)
