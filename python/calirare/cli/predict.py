"""`calirare predict`: what a saved run says of another graph."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from calirare._util.console import Reporter
from calirare._util.errors import InputError
from calirare._util.output import fresh_files
from calirare.datasets import read_graph
from calirare.graph import TABLE_SUFFIXES
from calirare.run import load, write_predictions


def run(folder: Path, graph: str, settings: dict[str, Any], out: Path | None = None, overwrite: bool = False) -> None:
    """Scores a graph with a saved run and writes its predictions.

    Args:
        folder: the run's folder.
        graph: name or path; the graph must have the run's features, in any order where they have names; labels are not
            needed.
        settings: keywords of `read_graph`. A table is read with the columns that the run named, where there is none
            among them; a column of labels need not be there.
        out: CSV to write (beside it a Parquet file of that name); None: `<run>/predictions_<graph>.csv`.
        overwrite: replace a file that is there.

    Raises:
        InputError: a file cannot be used, or the features are others.
    """
    saved = load(folder)
    if graph.lower().endswith(TABLE_SUFFIXES):
        settings = saved.settings.data.columns() | {"need_label": "label" in settings} | settings
    given = {name: value for name, value in settings.items() if value is not False or name == "need_label"}
    loaded, _ = read_graph(graph, **given)
    path = out or folder / f"predictions_{_stem(graph)}.csv"
    if path.suffix != ".csv":
        raise InputError(f"predict: --out must end in .csv, got {path}")
    if not overwrite and (path.exists() or path.with_suffix(".parquet").exists()):
        raise InputError(f"predict: {path} exists already: take another --out, or pass --overwrite")
    with Reporter() as reporter:
        table = saved.predict(loaded, report=reporter)
    with fresh_files(path.parent, f"predict: {path}") as partial:
        names = [file.name for file in write_predictions(table, partial, path.stem)]
    for name in names:
        print(path.parent / name)


def _stem(name: str) -> str:
    """Returns what a graph's predictions are called after: its file without any suffix of a table."""
    path = Path(name)
    tables = [suffix for suffix in TABLE_SUFFIXES if path.name.endswith(suffix)]
    return path.name.removesuffix(max(tables, key=len)) if tables else path.stem
