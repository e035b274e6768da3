"""Where tables come from: a file, a folder of Parquet part files, a DuckDB database, or memory.

A table of a DuckDB database is spelled `FILE.duckdb::TABLE` (or `FILE.duckdb::SCHEMA.TABLE`): `::` stands in no drive
letter, and where a file has that very name the file is meant. The name of a table is data: it is looked up among the
tables and views that there are, never put into SQL as it was written. The database is opened read only, and what a view
in it says reads no other file.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from calirare._util.amounts import listed
from calirare._util.errors import InputError
from calirare._util.text_tables import TEXT_SUFFIXES, check_names
from calirare.graph.folder import FACTS

TABLE_SUFFIXES = (*TEXT_SUFFIXES, ".parquet")
DUCK = re.compile(r"(?P<file>.+?\.duckdb)::(?P<table>.+)", re.DOTALL | re.IGNORECASE)
ROWS = 1 << 18  # rows that are read together where a table is not held
BUFFER = 1 << 20  # bytes
# Usual names of columns of labels, where each row has one.
LABELS = (
    "label",
    "labels",
    "is_fraud",
    "isfraud",
    "fraud",
    "fraud_flag",
    "tx_fraud",
    "class",
    "target",
    "y",
    "is_laundering",
)
FEW = 3  # columns: the ends of edges and a weight
CACHED = "192MB"  # of a database's blocks, each of which is read once; DuckDB would keep as much as there is memory
NO_READING: dict[str, str | bool | int | float | list[str]] = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
}


@dataclass(frozen=True)
class DuckTable:
    """A table or view in a DuckDB database file.

    Attributes:
        file: of the database.
        table: its name, or its schema and name with a point between.
    """

    file: Path
    table: str

    def __str__(self) -> str:
        return f"{self.file}::{self.table}"

    @property
    def name(self) -> str:
        """Name of the table."""
        return self.table

    def exists(self) -> bool:
        """Returns whether the database has the table."""
        if not self.file.is_file():
            return False
        with self._opened() as engine:
            return bool(self._found(engine))

    def batches(self, columns: Sequence[str] | None) -> tuple[Any, Iterator[Any]]:
        """Returns the Arrow schema and the rows in Arrow batches; None: all columns."""
        with self._opened() as engine:
            query = self._query(engine, columns)
            schema = arrow_reader(engine, f"{query} LIMIT 0").schema
        return schema, self._rows(columns)

    def _rows(self, columns: Sequence[str] | None) -> Iterator[Any]:
        with self._opened() as engine:
            query = self._query(engine, columns)
            few = columns is not None and len(columns) <= FEW  # a block of each column is in memory for each thread
            found = self._found(engine)
            if few and found and not found[3]:  # a view may sort or join more than that
                engine.execute(f"SET memory_limit = '{CACHED}'")
            yield from arrow_reader(engine, query)

    def _query(self, engine: Any, columns: Sequence[str] | None) -> str:
        found = self._found(engine)
        if not found:
            names = [name if schema == "main" else f"{schema}.{name}" for _, schema, name, _ in _tables(engine)]
            raise InputError(f"{self}: there is no such table; the tables are {listed(sorted(names)) or 'none'}")
        wanted = "*" if columns is None else ", ".join(map(_quoted, columns))
        return f"SELECT {wanted} FROM {'.'.join(map(_quoted, found[:3]))}"

    def _found(self, engine: Any) -> tuple[str, str, str, bool] | None:
        """Returns the table as `_tables` has it: one of the schema main goes before others."""
        ways = {f"main.{self.table}": 0, self.table: 1}
        found = [each for each in _tables(engine) if f"{each[1]}.{each[2]}" in ways or each[2] == self.table]
        return min(found, key=lambda each: ways.get(f"{each[1]}.{each[2]}", 2), default=None)

    @contextlib.contextmanager
    def _opened(self) -> Iterator[Any]:
        try:
            import duckdb
            import pyarrow  # noqa: F401
        except ImportError as error:
            raise InputError(
                f"{self}: a DuckDB table needs duckdb and pyarrow: pip install 'calirare[duckdb]', or write the table "
                "as Parquet"
            ) from error
        if not self.file.is_file():
            raise InputError(f"{self.file}: there is no such file: check the path")
        try:
            with duckdb.connect(str(self.file), read_only=True, config=NO_READING) as engine:
                yield engine
        except duckdb.Error as error:
            reason = str(error).splitlines()[0]
            raise InputError(
                f"{self}: the table cannot be read ({reason}): repair the database, close what writes to it, or write "
                "the table as Parquet"
            ) from error


def unnamed_table(path: Path) -> str:
    """Returns which of its tables a DuckDB database could mean, where none is named; "" for anything else."""
    if path.suffix.lower() != ".duckdb" or not path.is_file():
        return ""
    with DuckTable(path, "")._opened() as engine:
        names = [name for _, _, name, _ in _tables(engine)]
    example = f"{path.name}::{names[0] if names else 'TABLE'}"
    return f"say which table of the database, such as {example}; there are {listed(names[:10]) or 'none'}"


@dataclass(frozen=True, eq=False)
class TableInMemory:
    """A pandas DataFrame, or an Arrow table.

    Attributes:
        name: what a message calls it.
        table: of pandas or pyarrow.
    """

    name: str
    table: Any

    def __str__(self) -> str:
        return f"table {self.name!r}"

    @classmethod
    def of(cls, name: str, table: Any) -> TableInMemory:
        """Returns a table of any kind: of pandas, pyarrow, or what has `__arrow_c_stream__`, such as polars.

        Names of nodes in it are whole numbers, text or UUIDs (text, 16 bytes or `uuid.UUID`), of one type.

        Raises:
            InputError: it is no table.
        """
        import pandas as pd

        if isinstance(table, pd.DataFrame):
            index = [str(level) for level in table.index.names if level is not None]
            check_names([*index, *map(str, table.columns)], f"table {name!r}")
            return cls(name, table.reset_index(drop=not index))
        if hasattr(table, "__arrow_c_stream__") or hasattr(table, "to_batches"):
            try:
                import pyarrow
            except ImportError as error:
                raise InputError(
                    f"table {name!r}: Arrow tables need pyarrow: pip install 'calirare[parquet]'"
                ) from error
            found = table if isinstance(table, pyarrow.Table) else pyarrow.table(table)
            check_names(found.column_names, f"table {name!r}")
            return cls(name, found)
        raise InputError(
            f"table {name!r}: must be a pandas DataFrame, a pyarrow Table or another table that Arrow can take, got "
            f"{type(table).__name__}"
        )

    def batches(self, columns: Sequence[str] | None) -> tuple[Any, Iterator[Any]]:
        """Returns the Arrow schema and the rows in Arrow batches; None: all columns."""
        table = self.table if columns is None else self.table.select(list(columns))
        return table.schema, iter(table.to_batches(max_chunksize=ROWS))


Source = Path | DuckTable | TableInMemory


def is_arrow(source: Source) -> bool:
    """Returns whether Arrow reads a table by rows: Parquet, DuckDB or an Arrow table."""
    if isinstance(source, Path):
        return source.is_dir() or source.suffix.lower() == ".parquet"
    return isinstance(source, DuckTable) or hasattr(source.table, "to_batches")


def source_of(table: str | Path | Source) -> Source:
    """Returns where a table comes from that is given as it is spelled."""
    if isinstance(table, DuckTable | TableInMemory):
        return table
    found = DUCK.fullmatch(str(table))
    duck = found is not None and not Path(table).exists()
    return DuckTable(Path(found["file"]), found["table"]) if found and duck else Path(table)


def node_table_of(edges: Source) -> Source:
    """Returns the node table that belongs to an edge table by its name."""
    if "edges" in edges.name:
        name = edges.name.replace("edges", "nodes")
        if isinstance(edges, DuckTable) and (same := DuckTable(edges.file, name)).exists():
            return same
        nodes = edges.with_name(name) if isinstance(edges, Path) else None
        if nodes is not None and (nodes.is_file() or is_folder_of_parts(nodes)):
            return nodes
    raise InputError(
        f"{edges}: an edge table needs a table of nodes with their features: pass nodes=PATH (command line: "
        "--nodes PATH), or name the two files alike with 'edges' and 'nodes'"
    )


def rows_with_labels(path: object, names: Sequence[str]) -> str:
    """Returns what to do with a table whose rows seem to have labels, which edges do not have; "" of any other."""
    found = [name for name in names if name.lower() in LABELS and name.lower() != "target"]  # which is an end
    return f"column {found[0]!r} seems to label rows: train on them with --transactions {path}" if found else ""


def is_table(name: str | Path) -> bool:
    """Returns whether a graph that is given by name or path is an edge table."""
    path = source_of(name)
    if isinstance(path, Path):
        return is_folder_of_parts(path) if path.is_dir() else path.name.lower().endswith(TABLE_SUFFIXES)
    return True


def is_folder_of_parts(path: Path) -> bool:
    """Returns whether a folder holds Parquet files and no graph."""
    return path.is_dir() and not (path / FACTS).exists() and bool(parts_of(path))


def parts_of(folder: Path) -> list[Path]:
    """Returns the Parquet files of a folder and of those below it, but for names that begin with _ or a point."""
    found = (path for path in folder.rglob("*") if path.suffix.lower() == ".parquet" and path.is_file())
    return sorted(path for path in found if not any(p.startswith(("_", ".")) for p in path.relative_to(folder).parts))


def stem_of(name: str | Path) -> str:
    """Returns what a table or another graph is called: its file without any suffix of a table, or its table."""
    path = source_of(name)
    if not isinstance(path, Path):
        return re.sub(r"\W+", "_", path.name).strip("_") or "table"
    tables = [suffix for suffix in TABLE_SUFFIXES if path.name.endswith(suffix)]
    return path.name.removesuffix(max(tables, key=len)) if tables else path.stem


def absolute_source(name: str) -> str:
    """Returns a path, or the spelling of a DuckDB table, with an absolute path."""
    path = source_of(name)
    return str(DuckTable(path.file.resolve(), path.table) if isinstance(path, DuckTable) else Path(name).resolve())


def source_exists(name: str) -> bool:
    """Returns whether the file, folder or table is there; of a database nobody can open: its file."""
    path = source_of(name)
    return path.file.exists() if isinstance(path, DuckTable) else Path(name).exists()


def parquet_batches(path: Path, columns: Sequence[str] | None) -> tuple[Any, Iterator[Any]]:
    """Returns the Arrow schema and the rows of a Parquet file, or of the part files of a folder in order of names.

    Names of folders such as `year=2024` are a column of text.
    """
    import pyarrow
    from pyarrow import dataset, parquet

    files = [path] if path.is_file() else parts_of(path)
    if not files:
        raise InputError(f"{path}: the folder must hold Parquet files (*.parquet), got none: check the path")
    schemas, keys = [parquet.read_schema(file) for file in files], _folder_keys(files[0], path)
    for file, each in zip(files, schemas, strict=True):
        check_names(each.names, str(path))
        odd = sorted(set(each.names) ^ set(schemas[0].names))
        if odd:
            with_it, without = (file, files[0]) if odd[0] in each.names else (files[0], file)
            raise InputError(
                f"{path}: all part files must have the same columns, but {odd[0]!r} is in "
                f"{with_it.relative_to(path)} and not in {without.relative_to(path)}: write them again"
            )
        if _folder_keys(file, path) != keys or set(keys) & set(each.names):
            raise InputError(
                f"{path}: folders such as year=2024 must have the same keys everywhere, none of them a column of the "
                "part files: move them"
            )
    schema = schemas[0]
    if path.is_dir():  # without what pandas put aside
        united = schema.remove_metadata() if all(map(schema.equals, schemas)) else _united(schemas, path)
        schema = pyarrow.schema([*united, *((key, pyarrow.string()) for key in keys)])
    folders = dataset.partitioning(pyarrow.schema([(key, pyarrow.string()) for key in keys]), flavor="hive")
    # Few batches are in memory at a time.
    scan = dataset.ParquetFragmentScanOptions(use_buffered_stream=True, buffer_size=BUFFER, pre_buffer=False)
    rows = dataset.dataset(
        list(map(str, files)),
        schema=schema,
        format=dataset.ParquetFileFormat(default_fragment_scan_options=scan),
        partitioning=folders if keys else None,
        partition_base_dir=str(path) if keys else None,
    )
    wanted = list(schema.names) if columns is None else list(columns)
    batches = rows.to_batches(
        columns=wanted, batch_size=ROWS, batch_readahead=1, fragment_readahead=1, use_threads=False
    )
    return pyarrow.schema([schema.field(name) for name in wanted], schema.metadata), batches


def _folder_keys(file: Path, base: Path) -> list[str]:
    """Returns the keys of folders such as `year=2024` above a file."""
    parts = file.relative_to(base).parts[:-1]
    return [unquote(part.partition("=")[0]) for part in parts if "=" in part]


def batches_of(source: Source, columns: Sequence[str] | None) -> tuple[Any, Iterator[Any]]:
    """Returns the Arrow schema and the rows in batches of a table that is no text; None: all columns."""
    return parquet_batches(source, columns) if isinstance(source, Path) else source.batches(columns)


def _united(schemas: list[Any], folder: Path) -> Any:
    """Returns the schema that holds the columns of all parts."""
    import pyarrow

    try:
        return pyarrow.unify_schemas([schema.remove_metadata() for schema in schemas], promote_options="permissive")
    except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(
            f"{folder}: a column must be of one type in all part files ({reason}): write them again"
        ) from error


def _tables(engine: Any) -> list[tuple[str, str, str, bool]]:
    """Returns database, schema and name of every table and view, and whether it is a view."""
    return engine.execute(
        "SELECT database_name, schema_name, table_name, false FROM duckdb_tables() WHERE NOT internal UNION ALL "
        "SELECT database_name, schema_name, view_name, true FROM duckdb_views() WHERE NOT internal ORDER BY ALL"
    ).fetchall()


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def arrow_reader(engine: Any, query: str) -> Any:
    """Returns the answer as a reader of Arrow batches."""
    rows = engine.sql(query)
    return rows.to_arrow_reader(ROWS) if hasattr(rows, "to_arrow_reader") else rows.fetch_arrow_reader(ROWS)
