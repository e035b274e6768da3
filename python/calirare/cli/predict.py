"""`calirare predict`: what a saved run says of another graph, and whether it may be relied on there."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from calirare._util.console import Reporter
from calirare._util.errors import InputError
from calirare._util.output import check_free, fresh_files
from calirare.datasets import read_graph
from calirare.graph import TABLE_SUFFIXES, Graph
from calirare.run import IntervalNodes, Prevailing, SavedRun, check_interval_nodes, load, write_json, write_scored

EDGE_RULES = ("duplicates", "self_loops", "symmetrize")
DRIFTED = 3  # exit code of --fail-on-drift


def run(
    folder: Path,
    graph: str,
    settings: dict[str, Any],
    out: Path | None = None,
    overwrite: bool = False,
    prevalence: Prevailing = None,
    fail_on_drift: bool = False,
    interval_nodes: IntervalNodes | None = None,
) -> int:
    """Scores a graph with a saved run, writes its predictions and says what to expect of them.

    Args:
        folder: the run's folder.
        graph: name or path; the graph must have the run's features, in any order where they have names; labels are not
            needed.
        settings: keywords of `read_graph`. A table is read with the columns that the run named, where there is none
            among them; a column of labels need not be there.
        out: CSV to write (beside it a Parquet and a JSON file of that name); None: `<run>/predictions_<graph>.csv`.
        overwrite: replace a file that is there.
        prevalence: see `Scorer.score`.
        fail_on_drift: end with code 3 where the graph differs so much from the run's that P(rare) is not to be relied
            on; everything is written all the same.
        interval_nodes: which nodes get an interval, see `Scorer.score`.

    Returns:
        The exit code.

    Raises:
        InputError: a file cannot be used, or the features are others.
    """
    check_interval_nodes(interval_nodes or "auto")
    path = free_path(out or folder / f"predictions_{stem_of(graph)}.csv", overwrite)
    saved = load(folder)
    loaded = scored_graph(saved, graph, settings)
    with Reporter() as reporter:
        for note in (*loaded.notes, *_later_edges(saved, graph, settings)):
            reporter.say(f"note: {note}")
        scored = saved.score(loaded, report=reporter, prevalence=prevalence, interval_nodes=interval_nodes)
    with fresh_files(path.parent, f"predict: {path}") as partial:
        names = [file.name for file in write_scored(scored.table, partial, path.stem)]
        write_json(scored.to_mapping(), partial / f"{path.stem}.json")
    print(scored.summary(), end="")
    for name in [*names, f"{path.stem}.json"]:
        print(path.parent / name)
    if fail_on_drift and scored.verdict == "do not trust":
        print("calirare: --fail-on-drift: the predictions were written, but are not to be trusted", file=sys.stderr)
        return DRIFTED
    return 0


def _later_edges(saved: SavedRun, graph: str, settings: dict[str, Any]) -> list[str]:
    """Returns what to know of a table scored with edges of all times by a run that left out later ones."""
    until = saved.settings.data.as_of
    if until is None or settings.get("as_of") is not None or not graph.lower().endswith(TABLE_SUFFIXES):
        return []
    return [
        f"edges: all times count; the run left out edges after {until} (--time and --as-of leave out some here too)"
    ]


def free_path(path: Path, overwrite: bool) -> Path:
    """Returns the path of a table of predictions, which nothing stands in the way of.

    Raises:
        InputError: it is no CSV, its folder is a file, or one of the files is there and must not be replaced.
    """
    if path.suffix != ".csv":
        raise InputError(f"predict: --out must end in .csv, got {path}")
    check_free([path.with_suffix(suffix) for suffix in (".csv", ".parquet", ".json")], "predict", overwrite=overwrite)
    return path


def scored_graph(saved: SavedRun, graph: str, settings: dict[str, Any]) -> Graph:
    """Returns a graph to score, a table read with the columns and edge rules that the run named; see `run`."""
    if graph.lower().endswith(TABLE_SUFFIXES):
        data = saved.settings.data
        rules = {name: getattr(data, name) for name in EDGE_RULES if getattr(data, name) not in (None, False)}
        settings = data.columns() | rules | {"need_label": "label" in settings} | settings
    given = {name: value for name, value in settings.items() if value is not False or name == "need_label"}
    return read_graph(graph, **given)[0]


def stem_of(name: str) -> str:
    """Returns what a graph's predictions are called after: its file without any suffix of a table."""
    path = Path(name)
    tables = [suffix for suffix in TABLE_SUFFIXES if path.name.endswith(suffix)]
    return path.name.removesuffix(max(tables, key=len)) if tables else path.stem
