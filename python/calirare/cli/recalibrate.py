"""`calirare recalibrate`: whether a saved run's probabilities hold on fresh labels, and its maps fitted on them."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from calirare._util.amounts import listed
from calirare._util.console import Reporter
from calirare._util.errors import InputError
from calirare.cli.options import spelled
from calirare.graph import Graph
from calirare.run import Labels, Recalibrated, SavedRun, load, recalibrated, scored_graph

TABLES_BEFORE = "tables and pictures of {} use the old calibrator; `calirare predict` writes its nodes again"


def run(
    folder: Path,
    settings: dict[str, Any],
    graph: str | None = None,
    labels: Path | None = None,
    transactions: str | None = None,
    history: str | None = None,
    out: Path | None = None,
    overwrite: bool = False,
) -> None:
    """Fits the maps of a saved run on fresh labels, writes the run with them and says what it was and is.

    Args:
        folder: the run's folder.
        settings: keywords of `read_graph`, as for `calirare predict`.
        graph: name or path of a graph with labels that the run has not seen; with `labels` where the run's own graph is
            now, None: where it was.
        labels: table with columns node and label, fresh labels of nodes of the run's own graph; None: those of `graph`.
        transactions: instead of a graph, a table of transactions with labels.
        history: transactions before these; None: those that the run was trained on.
        out: folder of the new run; None: the run's own, where files are replaced.
        overwrite: replace what is there.

    Raises:
        InputError: a file cannot be used, there are too few labels, or something must not be replaced.
    """
    _check(settings, graph or transactions, labels, out, overwrite)
    if transactions is not None and (graph is not None or labels is not None or settings):
        raise InputError(
            "recalibrate: --transactions is a table with labels, read as that of the run: name nothing else"
        )
    saved = load(folder)
    with Reporter() as reporter:
        if transactions is not None:
            fresh = saved, saved.next_transactions(transactions, history, need_label=True)
        else:
            fresh = _fresh(saved, settings, graph, labels, reporter)
        found = recalibrated(*fresh, reporter.say)
        found.save(out, overwrite=overwrite)
    show_recalibrated(found, out or folder)
    if out is None:
        print(f"note: {TABLES_BEFORE.format(folder)}")


def show_recalibrated(found: Recalibrated, out: Path) -> None:
    """Prints what fresh labels show, and what to do next; `out` is the folder of the new run."""
    later = "--transactions TABLE" if found.run.settings.data.entities else "--graph GRAPH"
    print(found.summary(), end="")
    print("\n".join(["", f"Saved to {out}. Next:", f"  calirare predict {shlex.quote(str(out))} {later} --out FOLDER"]))


def _check(settings: dict[str, Any], graph: str | None, labels: Path | None, out: Path | None, overwrite: bool) -> None:
    """Checks what was asked for, arguments as of `run`."""
    if graph is None and labels is None:
        raise InputError(
            "recalibrate: say where fresh labels are: --graph PATH, a graph that has them, --transactions PATH, or "
            "--labels FILE, a table with columns node and label of the run's own nodes"
        )
    of_graph = [name for name in settings if name != "unknown"]
    if labels is not None and of_graph:
        raise InputError(
            f"recalibrate: {spelled(of_graph[0])} says how a graph is read, and with --labels it is the run's "
            "own, read as in its training: leave it out"
        )
    if out is None and not overwrite:
        raise InputError(
            "recalibrate: pass --out FOLDER for a run of its own, or --overwrite to put the calibrators into this"
        )
    if out is not None and out.exists() and not overwrite:
        raise InputError(f"recalibrate: {out} exists already: take another --out, or pass --overwrite to replace it")


def _fresh(
    saved: SavedRun, settings: dict[str, Any], graph: str | None, labels: Path | None, reporter: Reporter
) -> tuple[SavedRun, Graph]:
    """Returns the run and the graph with fresh labels; arguments as of `run`."""
    if labels is not None:
        own, data = saved.graph_to_label(graph), saved.settings.data
        fresh = Labels.read(labels, own, settings.get("unknown", data.unknown), data)
        if fresh.absent and "unknown" in settings:
            reporter.say(f"note: {labels}: no label is {listed(fresh.absent)}, which --unknown names")
        return saved.with_fresh_labels(own, fresh)
    assert graph is not None
    columns = saved.settings.data.columns()
    reading = settings if "label" in settings or not columns.get("label") else settings | {"label": columns["label"]}
    return saved, scored_graph(saved, graph, reading)
