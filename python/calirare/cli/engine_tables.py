"""Tables of an engine as the command line spells them, and where scores go."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import ibis
import torch
from ibis.common.exceptions import TableNotFound

from calirare._util.errors import InputError
from calirare._util.memory import free_bytes
from calirare.graph.tables.sources import DuckTable, is_table, source_of

MEMORY_SHARE = 0.25  # of the free memory that DuckDB may take before it works in files
Opened = tuple[Any, Any, Callable[[Any], None]]  # nodes, edges, and what writes scores
TAKEN = "predict: {} exists already: take another --into, or pass --overwrite"


@contextmanager
def opened(engine: str, nodes: str, edges: str, into: str, *, overwrite: bool) -> Iterator[Opened]:
    """Opens two tables, and a place for scores.

    Args:
        engine: "duckdb": tables are FILE.duckdb::TABLE, Parquet or CSV; "spark": they are Parquet or tables of the
            session's catalog.
        nodes: the node table.
        edges: the edge table.
        into: FILE.duckdb::TABLE, or for Spark a path that ends in .parquet or the name of a table.
        overwrite: replace scores that are there.

    Raises:
        InputError: a package or a table is missing, or scores are there already.
    """
    if engine not in KINDS:
        raise InputError(f"predict: --engine must be {' or '.join(KINDS)}, got {engine!r}")
    try:
        with KINDS[engine](nodes, edges, into, overwrite) as found:
            yield found
    except TableNotFound as error:
        raise InputError(f"engines: there is no table {error}: check --nodes and --edges") from error


@contextmanager
def _duckdb(nodes: str, edges: str, into: str, overwrite: bool) -> Iterator[Opened]:
    out, databases = source_of(into), dict[Path, str]()
    if not isinstance(out, DuckTable):
        raise InputError(f"predict: --into must be FILE.duckdb::TABLE with --engine duckdb, got {into}")
    with tempfile.TemporaryDirectory(prefix="calirare_") as folder:
        limits = {"memory_limit": f"{int(MEMORY_SHARE * free_bytes(torch.device('cpu')) / 1e6)}MB"}
        con = ibis.duckdb.connect(temp_directory=folder, threads=torch.get_num_threads(), **limits)
        engine = con.con

        def place(table: DuckTable) -> tuple[str, str, str]:
            """Returns catalog, schema and name of a table, its database attached."""
            path = table.file.resolve()
            if path not in databases:
                databases[path] = f"database{len(databases)}"
                path_in_sql, how = str(path).replace("'", "''"), "" if path == out.file.resolve() else " (READ_ONLY)"
                engine.execute(f"ATTACH '{path_in_sql}' AS {databases[path]}{how}")
            schema, _, name = table.table.rpartition(".")
            return databases[path], schema or "main", name

        def table_of(word: str) -> Any:
            """Returns a table of ibis."""
            source = source_of(word)
            if isinstance(source, DuckTable):
                if not source.file.is_file():
                    raise InputError(f"{source.file}: there is no such file: check the path")
                *database, name = place(source)
                return con.table(name, database=tuple(database))
            if not isinstance(source, Path) or not is_table(word) or not source.exists():
                raise InputError(f"{word}: there is no such table: name a Parquet or CSV file, or FILE.duckdb::TABLE")
            return con.read_parquet(source) if source.suffix == ".parquet" else con.read_csv(source)

        there = "SELECT 1 FROM duckdb_tables() WHERE (database_name, schema_name, table_name) = (?, ?, ?)"

        def write(scores: Any) -> None:
            """Writes the scores; a database that was not there begins with them."""
            quoted = ".".join('"' + part.replace('"', '""') + '"' for part in place(out))
            engine.execute(f"CREATE OR REPLACE TABLE {quoted} AS {con.compile(scores)}")

        try:
            given = table_of(nodes), table_of(edges)
            if out.file.exists() and not overwrite and engine.execute(there, list(place(out))).fetchall():
                raise InputError(TAKEN.format(into))
            yield *given, write
        except duckdb.Error as error:
            raise InputError(f"engines: DuckDB: {str(error).splitlines()[0]}") from error
        finally:
            con.disconnect()


@contextmanager
def _spark(nodes: str, edges: str, into: str, overwrite: bool) -> Iterator[Opened]:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # workers run what this process runs
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise InputError("predict: --engine spark needs pyspark: pip install 'pyspark>=4'") from error
    session = SparkSession.builder.appName("calirare").config("spark.ui.showConsoleProgress", "false").getOrCreate()
    spark, parts = session.sparkContext, "spark.sql.shuffle.partitions"
    spark.setLogLevel("ERROR")
    if spark.master.startswith("local") and not spark.getConf().contains(parts):
        session.conf.set(parts, 2 * spark.defaultParallelism)  # its default is for clusters
    con, files = ibis.pyspark.connect(session), into.endswith(".parquet")
    if not overwrite and (Path(into).exists() if files else session.catalog.tableExists(into)):
        raise InputError(TAKEN.format(into))

    def write(scores: Any) -> None:
        writer = con.raw_sql(con.compile(scores)).write.mode("overwrite" if overwrite else "error")
        _ = writer.parquet(into) if files else writer.saveAsTable(into)

    def table_of(word: str) -> Any:
        return con.read_parquet(word) if "/" in word or word.endswith(".parquet") else con.table(word)

    yield table_of(nodes), table_of(edges), write


KINDS = {"duckdb": _duckdb, "spark": _spark}
