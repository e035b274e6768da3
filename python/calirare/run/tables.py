"""Tables of a graph's predictions: one row per node, and the rows that a human should look at first."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from calirare._util.errors import InputError
from calirare._util.run_files import changed_file, check_as_written
from calirare._util.text_tables import FORMULA, INERT
from calirare.graph import PARTS, Graph, Split
from calirare.intervals import JackknifeResult
from calirare.run.probabilities import Probabilities

COLUMNS = (
    "node",
    "split",
    "y",
    "p_rare",
    "p_balanced",
    "p_raw",
    "alert",
    "threshold",
    "prediction",
    "confidence",
    "lower",
    "upper",
    "uncertainty",
    "ice",
    "ice_raw",
)
# Columns that may hold names of the user's.
NAMES = ("node", "given", "other", "y", "prediction", "prediction_before", "prediction_after", "label")
REVIEWED = 100  # rows of review.csv
LARGE = 50_000  # nodes from which a table is written in blocks
ROWS = 1 << 18  # rows of a table of predictions made and written together


def predictions(
    graph: Graph, probabilities: Probabilities, result: JackknifeResult | None, split: Split | None
) -> pd.DataFrame:
    """Returns one row per scored node with the columns of `predictions.csv`.

    Args:
        graph: the graph.
        probabilities: of every node. `prediction` and `confidence` are about the chosen ones, and so are `uncertainty`,
            P(prediction is right), and `ice`, its distance to `confidence`. `ice_raw` is the network's.
        result: intervals of every node; None leaves their columns empty.
        split: for the `split` column (train, val, test, unused); None leaves it empty.

    Returns:
        The table.
    """
    return _block(graph, probabilities, result, part_column(graph.n_nodes, split), slice(0, graph.n_nodes))


def part_column(n_nodes: int, split: Split | None) -> Any:
    """Returns the `split` column."""
    code = np.full(n_nodes, len(PARTS) if split is not None else len(PARTS) + 1, dtype=np.int8)
    if split is not None:
        for k, name in enumerate(PARTS):
            code[getattr(split, name).cpu().numpy()] = k
    return pd.Categorical.from_codes(code, [*PARTS, "unused", ""])


def node_column(graph: Graph) -> Any:
    """Returns the `node` column: the user's names, or numbers."""
    return np.arange(graph.n_nodes) if graph.node_names is None else graph.node_names


def _numbers(x: Tensor) -> Any:
    return x.detach().cpu().numpy()


def write_predictions(table: pd.DataFrame, folder: Path, stem: str = "predictions") -> list[Path]:
    """Writes the table as CSV, and as Parquet where pyarrow is there; returns the paths."""
    paths = [folder / f"{stem}.csv"]
    _to_csv(table, paths[0])
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        return paths
    paths.append(folder / f"{stem}.parquet")
    table.to_parquet(paths[1], index=False)
    return paths


def inert(table: pd.DataFrame) -> pd.DataFrame:
    """Returns a table in which no name of a node or class is a formula to a program for spreadsheets.

    What begins as a formula gets an apostrophe in front, as those programs mark text; numbers stay.
    """
    for column in NAMES:
        if column not in table or table[column].dtype.kind in "iufb":
            continue
        names = table[column].astype(str)
        formula = names.str.match(f"'*{FORMULA}") & pd.to_numeric(names, errors="coerce").isna()
        if bool(formula.any()):
            table = table.assign(**{column: names.mask(formula, "'" + names)})
    return table


def _to_csv(table: pd.DataFrame, path: Path, **options: Any) -> None:
    """Writes a table as CSV; a lone carriage return in a name, which ends a row, stands in quotes."""
    table = inert(table)
    split = table["node"].dtype.kind not in "iufb" and bool(
        table["node"].astype(str).str.contains("\r", regex=False).any()
    )
    quoting = csv.QUOTE_NONNUMERIC if split else csv.QUOTE_MINIMAL
    table.to_csv(path, index=False, float_format="%.7g", quoting=quoting, **options)


def read_predictions(folder: Path, stem: str = "predictions", named: tuple[str, ...] = ()) -> pd.DataFrame:
    """Returns the table that `write_predictions` wrote; nodes are numbers where they look like nothing else.

    Args:
        folder: of the run.
        stem: of the file.
        named: columns that hold names of classes, "" where there is none.

    Raises:
        InputError: the file is missing or damaged.
    """
    path = folder / f"{stem}.csv"
    try:
        table = _read_named(path, ("node", *named))
        nodes = table["node"]
        if nodes.str.fullmatch(r"0|[1-9]\d{0,17}").all():
            return _as_named(table.assign(node=nodes.astype(np.int64)))
        return _as_named(table)
    except LookupError as error:
        raise InputError(f"{path}: the predictions must have a column {error}: write them again") from error
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: the predictions cannot be read: {error}") from error


def stored_p_rare(folder: Path, n_nodes: int) -> Tensor | None:
    """Returns P(rare) of a run's own nodes from its predictions.parquet, float64 [n].

    None where the file is not there, or not as the run wrote it.
    """
    name = "predictions.parquet"
    if changed_file(folder, [name]) is not None:
        return None
    try:
        p = pd.read_parquet(folder / name, columns=["p_rare"])["p_rare"].to_numpy(np.float64, copy=True)
    except ImportError:  # written where pyarrow was
        return None
    return torch.from_numpy(p) if p.size == n_nodes else None


NAMED = ("y", "prediction")  # columns of class names of a run of many classes
OF_REVIEW = ("node", "y", "p_rare", "threshold")


def read_review(folder: Path, columns: tuple[str, ...] = OF_REVIEW, named: tuple[str, ...] = ()) -> pd.DataFrame:
    """Returns review.csv of a run, names of nodes as text whatever they look like, "007" too.

    Args:
        folder: of the run.
        columns: that must be there.
        named: columns that hold names of classes, "" where there is none.

    Raises:
        InputError: the file is missing, damaged or not as the run wrote it.
    """
    check_as_written(folder, ("review.csv",))
    path = folder / "review.csv"
    try:
        table = _read_named(path, ("node", *named))
        missing = next((name for name in columns if name not in table), None)
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: the review queue cannot be read: {error}") from error
    if missing is not None:
        raise InputError(f"{path}: the review queue must have a column {missing}: train again")
    return _as_named(table)


def _read_named(path: Path, named: tuple[str, ...]) -> pd.DataFrame:
    """Returns a table of ours whose names are text whatever they look like: 007, null, nothing."""
    columns = pd.read_csv(path, nrows=0).columns
    gaps = {name: ["", "nan"] for name in columns if name not in named}
    types = dict.fromkeys((*named, "split"), str)
    return pd.read_csv(path, dtype=types, keep_default_na=False, na_values=gaps)


def _as_named(table: pd.DataFrame) -> pd.DataFrame:
    """Returns a table without what `inert` put in front of names."""
    for column in ("node", "y", "prediction"):
        if column in table and table[column].dtype.kind not in "iufb":
            table[column] = table[column].str.replace(INERT, r"\1", regex=True)
    return table


def write_scored(table: pd.DataFrame, folder: Path, stem: str) -> list[Path]:
    """Writes a table of `predictions`, a long one a block of rows at a time; returns the paths."""
    if len(table) < LARGE:
        return write_predictions(table, folder, stem)
    blocks = (table.iloc[first : first + ROWS] for first in range(0, len(table), ROWS))
    return _write_blocks(blocks, folder, stem)


def write_table(
    graph: Graph,
    probabilities: Probabilities,
    result: JackknifeResult | None,
    split: Split | None,
    folder: Path,
    stem: str = "predictions",
) -> list[Path]:
    """Writes the table of `predictions`: in blocks where the graph is large; see `write_large_predictions`."""
    if graph.n_nodes >= LARGE:
        return write_large_predictions(graph, probabilities, result, split, folder, stem)
    return write_predictions(predictions(graph, probabilities, result, split), folder, stem)


def write_large_predictions(
    graph: Graph,
    probabilities: Probabilities,
    result: JackknifeResult | None,
    split: Split | None,
    folder: Path,
    stem: str = "predictions",
) -> list[Path]:
    """Writes the table of `predictions` a block of rows at a time, as CSV and, where pyarrow is there, as Parquet.

    With pyarrow numbers are written with as many digits as tell them apart, without it with seven.

    Args:
        graph: the graph.
        probabilities: of every node.
        result: intervals of every node; None leaves their columns empty.
        split: for the `split` column; None leaves it empty.
        folder: where.
        stem: name of the files without suffix.

    Returns:
        The paths.
    """
    part, n = part_column(graph.n_nodes, split), graph.n_nodes
    every = (slice(first, min(first + ROWS, n)) for first in range(0, n, ROWS))
    return _write_blocks((_block(graph, probabilities, result, part, rows) for rows in every), folder, stem)


def _write_blocks(blocks: Iterable[pd.DataFrame], folder: Path, stem: str) -> list[Path]:
    """Writes blocks of rows of one table."""
    write = _arrow_writer(folder, stem)
    paths = [folder / f"{stem}.csv"] + ([] if write is None else [folder / f"{stem}.parquet"])
    try:
        for number, table in enumerate(blocks):
            if write is not None:
                write(table)
            else:
                _to_csv(table, paths[0], mode="a", header=number == 0)
    finally:
        if write is not None:
            write(None)
    return paths


def write_review(
    graph: Graph,
    probabilities: Probabilities,
    result: JackknifeResult,
    split: Split | None,
    nodes: Tensor,
    folder: Path,
) -> Path:
    """Writes review.csv: the nodes that a human should look at first.

    Args:
        graph: the graph.
        probabilities: as in `predictions`.
        result: as in `predictions`.
        split: for the `split` column.
        nodes: in their order, int64; the first `REVIEWED` are written.
        folder: where.

    Returns:
        The path; columns as in `predictions`.
    """
    nodes = nodes[:REVIEWED].cpu()
    table = _rows(graph, probabilities, result, part_column(graph.n_nodes, split)[nodes.numpy()], nodes)
    return write_queue(table, folder)


def write_queue(table: pd.DataFrame, folder: Path) -> Path:
    """Writes rows of a table of predictions as review.csv, in their order, and returns its path."""
    path = folder / "review.csv"
    _to_csv(table, path)
    return path


def _block(
    graph: Graph, probabilities: Probabilities, result: JackknifeResult | None, parts: Any, nodes: slice
) -> pd.DataFrame:
    """Returns the rows of consecutive nodes, as far as they are scored; `parts`: of all nodes."""
    if graph.scored is None:
        return _rows(graph, probabilities, result, parts[nodes], nodes)
    some = graph.scored[nodes].nonzero().flatten().cpu() + nodes.start
    return _rows(graph, probabilities, result, parts[some.numpy()], some)


def _rows(
    graph: Graph,
    probabilities: Probabilities,
    result: JackknifeResult | None,
    part: Any,
    rows: slice | Tensor,
) -> pd.DataFrame:
    """Returns some rows of the table of predictions."""
    p = probabilities
    chosen, p_raw = p.chosen[rows], p.raw[rows]
    confidence, predicted = chosen.max(1)
    names = node_column(graph)
    table = {
        "node": names[rows if isinstance(rows, slice) else rows.numpy()],
        "split": np.asarray(part, dtype=object),
        "y": -1 if graph.y is None else _numbers(graph.y[rows]),
        "p_rare": _numbers(p.rare[rows]),
        "p_balanced": _numbers(p.balanced[rows]),
        "p_raw": _numbers(p_raw),
        "alert": _numbers((p.rare[rows] >= p.threshold).long()),
        "threshold": p.threshold,
        "prediction": _numbers(predicted),
        "confidence": _numbers(confidence),
    }
    columns = list(COLUMNS)
    if p.abstain is not None:
        table["abstain"] = _numbers(p.abstain[rows].long())
        columns.insert(columns.index("threshold") + 1, "abstain")
    if result is None:
        table |= dict.fromkeys(("lower", "upper", "uncertainty", "ice", "ice_raw"), float("nan"))
        return pd.DataFrame(table)[columns]
    right, ice = result.about(chosen, rows)
    raw = torch.stack([1 - p_raw, p_raw], 1)
    numbers = {"lower": result.lower[rows], "upper": result.upper[rows], "uncertainty": right, "ice": ice}
    table |= {name: _numbers(x) for name, x in (numbers | {"ice_raw": result.about(raw, rows)[1]}).items()}
    return pd.DataFrame(table)[columns]


def _arrow_writer(folder: Path, stem: str) -> Callable[[pd.DataFrame | None], None] | None:
    """Returns what appends a table to a CSV and a Parquet file, and closes both when called with None."""
    try:
        import pyarrow
        from pyarrow import csv as arrow_csv
        from pyarrow import parquet
    except ImportError:
        return None
    files: list[Any] = []

    def write(table: pd.DataFrame | None) -> None:
        if table is None:
            for file in files:
                file.close()
            return
        rows = pyarrow.Table.from_pandas(table, preserve_index=False)
        if not files:
            # The writer would put the header's names in quotes.
            (folder / f"{stem}.csv").write_text(",".join(table.columns) + "\n", encoding="utf-8")
            text = (folder / f"{stem}.csv").open("ab")
            options = arrow_csv.WriteOptions(include_header=False, quoting_style="needed")
            files.append(arrow_csv.CSVWriter(text, rows.schema, write_options=options))
            files.append(parquet.ParquetWriter(folder / f"{stem}.parquet", rows.schema))
            files.append(text)
        files[0].write_table(pyarrow.Table.from_pandas(inert(table), preserve_index=False))
        files[1].write_table(rows)

    return write
