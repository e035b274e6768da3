"""A table of transactions in a DuckDB database of its own, which works in files where memory is short."""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from calirare._util.errors import InputError
from calirare._util.memory import free_bytes
from calirare._util.text_tables import is_text, read_text
from calirare.graph.tables import TABLE_SUFFIXES, source_of, unnamed_table
from calirare.graph.tables.files import reading
from calirare.graph.tables.sources import TableInMemory, batches_of, is_arrow

# Names of columns of amounts; value_date is none.
AMOUNT = re.compile(r"(?i)^(?!.*(date|time|day)).*(?<![a-z])(amount|amt|price|total|sum|value)(?![a-z])")
# What cells of a text become; yes and no stay words, as classes are called.
TYPES = ["NULL", "BIGINT", "DOUBLE", "TIME", "DATE", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE", "VARCHAR"]
DAY_FIRST = [f"%d.%m.%Y{time}" for time in (" %H:%M:%S", " %H:%M", "")]  # as 31.01.2026 10:00
MEMORY_SHARE = 0.4  # of the free memory that DuckDB may take before it works in files
MOST_MEMORY = 4e9  # bytes: more makes it hardly faster


@contextlib.contextmanager
def database() -> Iterator[Any]:
    """Opens an empty database in a folder that goes with it.

    Raises:
        InputError: a package is missing.
    """
    try:
        import duckdb
        import ibis  # noqa: F401
        import pyarrow  # noqa: F401
    except ImportError as error:
        raise InputError(
            f"transactions: tables of transactions need {error.name}: pip install 'calirare[transactions]'"
        ) from error
    with tempfile.TemporaryDirectory(prefix="calirare_") as folder:
        memory = int(min(MEMORY_SHARE * free_bytes(torch.device("cpu")), MOST_MEMORY) / 1e6)
        config: dict[str, Any] = {
            "threads": torch.get_num_threads(),
            "memory_limit": f"{memory}MB",
            "temp_directory": folder,
        }
        with duckdb.connect(str(Path(folder) / "transactions.duckdb"), config=config) as engine:
            engine.execute("SET TimeZone = 'UTC'")
            engine.execute("SET enable_progress_bar = false")
            yield engine


def load(engine: Any, source: Any, name: str, amount: str | None = None) -> dict[str, str]:
    """Copies a table into the database; returns the DuckDB types of its columns by their names.

    Args:
        engine: the database.
        source: path, FILE.duckdb::TABLE, or a table of pandas, polars or Arrow.
        name: of the copy.
        amount: column of the amounts; None: one whose name says so. Text such as "$1,204.50" becomes a number.

    Raises:
        InputError: there is no such table, it cannot be read, or is empty.
    """
    import duckdb

    found = source_of(source) if isinstance(source, str | Path) else TableInMemory.of("transactions", source)
    where = source_name(source)
    engine.execute("SELECT 1").fetchall()  # ends a result that is not yet fetched, with which nothing is read
    try:
        if isinstance(found, Path) and is_text(found):
            with reading(found):
                rows = _read_text(engine, found)
        elif is_arrow(found):
            import pyarrow

            with reading(found):
                schema, batches = batches_of(found, None)
                rows = engine.from_arrow(pyarrow.RecordBatchReader.from_batches(schema, batches))
        elif isinstance(found, TableInMemory):
            rows = engine.from_df(found.table)
        else:
            assert isinstance(found, Path)
            mend = unnamed_table(found) or f"a table must end in {', '.join(TABLE_SUFFIXES)}, or be FILE.duckdb::TABLE"
            raise InputError(f"{where}: {mend}")
        rows.create(name)
    except duckdb.Error as error:
        raise InputError(f"{where}: the table cannot be read ({str(error).splitlines()[0]}): repair it") from error
    if not engine.execute(f"SELECT count(*) FROM {name}").fetchall()[0][0]:
        raise InputError(f"{where}: the table of transactions has no rows: write one row per transaction")
    kinds = _kinds(engine, name)
    if "rowid" in map(str.lower, kinds):
        raise InputError(f"{where}: no column may be called 'rowid', as DuckDB numbers rows so: rename it")
    for column, kind in kinds.items():
        if kind == "VARCHAR":
            as_amount = column == amount or (amount is None and AMOUNT.search(column))
            (_read_amounts if as_amount else _read_european)(engine, name, column)
    return _kinds(engine, name)


def _read_text(engine: Any, path: Path) -> Any:
    """Returns the rows of a text table; where DuckDB finds no columns, `read_text` reads it or says what is wrong."""
    import duckdb

    try:
        rows = engine.read_csv(str(path), sample_size=-1, auto_type_candidates=TYPES)
    except duckdb.InvalidInputException:
        return engine.from_df(read_text(path))
    found = len(rows.columns) > 1 and not re.fullmatch("column0+", rows.columns[0])  # its name where there is no header
    return rows if found else engine.from_df(read_text(path))


def _kinds(engine: Any, name: str) -> dict[str, str]:
    return {column: kind for column, kind, *_ in engine.execute(f"DESCRIBE {name}").fetchall()}


def _read_european(engine: Any, table: str, column: str) -> None:
    """Makes numbers of a column of text such as 1204,50, and times of one such as 31.01.2026 10:00.

    Cells such as 1,204 alone stay text: they may be thousands.
    """
    cell, fraction = f"nullif(trim({quoted(column)}), '')", "',([0-9]{1,2}|[0-9]{4,})$'"
    number = f"CASE WHEN regexp_full_match({cell}, '[+-]?[0-9]+(,[0-9]+)?') THEN replace({cell}, ',', '.') END"
    first = engine.execute(f"SELECT {cell} FROM {table} WHERE {cell} IS NOT NULL LIMIT 1").fetchall()
    if not first or not re.match(r"[+-]?[0-9]+([.,]|$)", first[0][0]):
        return
    some, known, numbers, fractions = engine.execute(
        f"SELECT count({cell}), count(try_strptime({cell}, {DAY_FIRST})), count({number}), "
        f"count(*) FILTER (regexp_matches({cell}, {fraction})) FROM {table}"
    ).fetchall()[0]
    if some == known:
        engine.execute(f"ALTER TABLE {table} ALTER {quoted(column)} TYPE TIMESTAMP USING strptime({cell}, {DAY_FIRST})")
    elif some == numbers and fractions:
        engine.execute(f"ALTER TABLE {table} ALTER {quoted(column)} TYPE DOUBLE USING CAST({number} AS DOUBLE)")


def _read_amounts(engine: Any, table: str, column: str) -> None:
    """Makes numbers of a column of text, if all cells have the same form: 1,204.50 or 1.204,50, with any currency."""
    cell = f"trim(CAST({quoted(column)} AS VARCHAR))"
    fitting = []
    for thousands, decimal in ((",", "."), (".", ",")):
        whole = f"([0-9]{{1,3}}([{thousands}][0-9]{{3}})+|[0-9]+)"
        form = f"[^0-9.,+-]*[+-]?[^0-9.,+-]*{whole}([{decimal}][0-9]+)?[^0-9.,+-]*"
        wrong = f"count(*) FILTER ({cell} <> '' AND NOT regexp_full_match({cell}, '{form}'))"
        marks = f"count(*) FILTER (regexp_matches({cell}, '[.,]'))"
        others, marked = engine.execute(f"SELECT {wrong}, {marks} FROM {table}").fetchall()[0]
        if not others:
            fitting.append((thousands, decimal))
    if not fitting or (len(fitting) > 1 and marked):  # 1,204 may be both
        return
    thousands, decimal = fitting[0]
    digits = f"replace(regexp_replace({cell}, '[^0-9.,+-]', '', 'g'), '{thousands}', '')"
    number = f"CAST(nullif(replace({digits}, '{decimal}', '.'), '') AS DOUBLE)"
    engine.execute(f"ALTER TABLE {table} ALTER {quoted(column)} TYPE DOUBLE USING {number}")


def source_name(source: Any) -> str:
    """Returns what a message calls a table."""
    return str(source) if isinstance(source, str | Path) else "table of transactions"


def quoted(name: str) -> str:
    """Returns a name of a column as SQL has it."""
    return '"' + name.replace('"', '""') + '"'
