"""Tables of predictions on disk: written, and read again as they were."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from calirare._util.errors import InputError
from calirare._util.run_files import changed_file, check_as_written
from calirare._util.text_tables import FORMULA, INERT
from calirare.graph import Graph

# Columns that may hold names of the user's.
NAMES = ("node", "name", "given", "other", "y", "prediction", "prediction_before", "prediction_after", "label")
TRANSACTIONS, PARTIES = "transactions", "parties"  # tables of a run on transactions
REVIEWED = 100  # rows of review.csv, or as many as there are alerts
QUEUE = 1_000  # rows of it at most, unless so many are requested
LARGE = 50_000  # nodes from which a table is written in blocks
ROWS = 1 << 18  # rows of a table of predictions made and written together


def write_predictions(table: pd.DataFrame, folder: Path, stem: str = "predictions") -> list[Path]:
    """Writes a table as CSV, and as Parquet where pyarrow is there; returns the paths.

    A long one goes a block of rows at a time; its CSV then has as many digits as tell numbers apart, others seven.
    """
    paths = [folder / f"{stem}.csv", folder / f"{stem}.parquet"]
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        write_csv(table, paths[0])
        return paths[:1]
    if len(table) >= LARGE:
        _write_blocks(table, *paths)
    else:
        write_csv(table, paths[0])
        table.to_parquet(paths[1], index=False)
    return paths


def _write_blocks(table: pd.DataFrame, text: Path, parquet: Path) -> None:
    """Writes a long table, `ROWS` rows at a time."""
    import pyarrow
    from pyarrow import csv as arrow_csv
    from pyarrow import parquet as arrow_parquet

    schema = pyarrow.Schema.from_pandas(table, preserve_index=False)
    options = arrow_csv.WriteOptions(include_header=False, quoting_style="needed")
    with text.open("w", encoding="utf-8", newline="") as head:  # the arrow writer would put every name in quotes
        csv.writer(head, lineterminator="\n").writerow(table.columns)
    with (
        text.open("ab") as file,
        arrow_csv.CSVWriter(file, schema, write_options=options) as rows,
        arrow_parquet.ParquetWriter(parquet, schema) as groups,
    ):
        for first in range(0, len(table), ROWS):
            block = table.iloc[first : first + ROWS]
            rows.write_table(pyarrow.Table.from_pandas(inert(block), schema, preserve_index=False))
            groups.write_table(pyarrow.Table.from_pandas(block, schema, preserve_index=False))


def parquet_writer() -> Callable[[Path, Iterator[dict[str, Any]]], None]:
    """Returns what writes tables, at least one, as row groups of one Parquet file.

    Raises:
        InputError: pyarrow is missing.
    """
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise InputError("predict: --scores-only writes Parquet and needs pyarrow: pip install pyarrow") from error

    def write(path: Path, tables: Iterator[dict[str, Any]]) -> None:
        file = None
        try:
            for table in tables:
                rows = pyarrow.table(table)
                # Hardly any two probabilities are equal: neither packing nor a dictionary makes them fewer bytes.
                packing = {name: "snappy" if name == "node" else "none" for name in table}
                file = file or parquet.ParquetWriter(path, rows.schema, compression=packing, use_dictionary=False)
                file.write_table(rows)
        finally:
            if file is not None:
                file.close()

    return write


def inert(table: pd.DataFrame) -> pd.DataFrame:
    """Returns a table in which no name of a node or class is a formula to a program for spreadsheets.

    What begins as a formula gets an apostrophe in front, as those programs mark text; numbers stay.
    """
    for column in table:
        if column not in NAMES and not isinstance(table[column].dtype, pd.CategoricalDtype):
            continue
        if table[column].dtype.kind in "iufb":
            continue
        names = table[column].astype(str)
        formula = names.str.match(f"'*{FORMULA}") & pd.to_numeric(names, errors="coerce").isna()
        if bool(formula.any()):
            table = table.assign(**{column: names.mask(formula, "'" + names)})
    return table


def write_csv(table: pd.DataFrame, path: Path) -> None:
    """Writes a table as CSV; a lone carriage return in a name, which ends a row, stands in quotes."""
    table = inert(table)
    names = table["node" if "node" in table else "name"]
    split = names.dtype.kind not in "iufb" and bool(names.astype(str).str.contains("\r", regex=False).any())
    quoting = csv.QUOTE_NONNUMERIC if split else csv.QUOTE_MINIMAL
    table.to_csv(path, index=False, float_format="%.7g", quoting=quoting)


def stored_p_rare(folder: Path, graph: Graph) -> Tensor | None:
    """Returns P(rare) of a graph's nodes from its predictions.parquet, float64 [n]; NaN of auxiliary nodes.

    None where the file is not there, or not as the run wrote it.
    """
    name = f"{predictions_of(folder)}.parquet"
    if changed_file(folder, [name]) is not None:
        return None
    try:
        p = pd.read_parquet(folder / name, columns=["p_rare"])["p_rare"].to_numpy(np.float64, copy=True)
    except ImportError:  # written where pyarrow was
        return None
    nodes = graph.scored_nodes.cpu()
    if p.size != nodes.numel():
        return None
    return torch.full((graph.n_nodes,), torch.nan, dtype=torch.float64).index_copy_(0, nodes, torch.from_numpy(p))


NAMED = ("y", "prediction")  # columns of class names where every class is taken as it is


def read_table(folder: Path, stem: str, columns: tuple[str, ...], named: tuple[str, ...] = ()) -> pd.DataFrame:
    """Returns a table that the run wrote: names are text whatever they look like, 007, null, nothing.

    Args:
        folder: of the run.
        stem: of the file, without `.csv`.
        columns: that must be there.
        named: columns that hold names of classes, "" where there is none.

    Raises:
        InputError: the file is missing, damaged or not as the run wrote it.
    """
    path = folder / f"{stem}.csv"
    check_as_written(folder, (path.name,))
    try:
        gaps = {name: ["", "nan"] for name in pd.read_csv(path, nrows=0).columns if name not in ("node", *named)}
        types = dict.fromkeys(("node", *named, "split"), str)
        table = pd.read_csv(path, dtype=types, keep_default_na=False, na_values=gaps)
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: the table cannot be read: {error}") from error
    missing = next((name for name in columns if name not in table), None)
    if missing is not None:
        raise InputError(f"{path}: the table must have a column {missing}: train again")
    for column in ("node", "y", "prediction"):  # what `inert` put in front of names
        if column in table and table[column].dtype.kind not in "iufb":
            table[column] = table[column].str.replace(INERT, r"\1", regex=True)
    return table


def predictions_of(folder: Path) -> str:
    """Returns what a run's table of predictions is called: predictions, or transactions."""
    return TRANSACTIONS if (folder / f"{TRANSACTIONS}.csv").is_file() else "predictions"


def read_predictions(folder: Path, named: tuple[str, ...] = ()) -> pd.DataFrame:
    """Returns predictions.csv, see `read_table`; nodes are numbers where they look like nothing else."""
    table = read_table(folder, predictions_of(folder), ("node",), named)
    if table["node"].str.fullmatch(r"0|[1-9]\d{0,17}").all():
        return table.assign(node=table["node"].astype(np.int64))
    return table
