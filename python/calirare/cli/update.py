"""`calirare update`: a saved run with new, other or forgotten labels."""

from __future__ import annotations

import dataclasses
import time
from functools import partial
from pathlib import Path

from calirare._util.amounts import listed
from calirare._util.console import Reporter, screen
from calirare._util.errors import InputError, UnknownNodeError
from calirare._util.output import fresh_folder
from calirare._util.run_files import RECALIBRATION
from calirare.cli.recalibrate import show_recalibrated
from calirare.cli.train import show
from calirare.graph import Graph
from calirare.run import (
    LABELS,
    Labels,
    SavedRun,
    Updated,
    inert,
    load,
    update,
    update_calibrators,
    write_json,
    write_predictions,
)

CHANGES, FACTS = "changes", "update.json"
LATER = (
    "(later ones: `calirare predict --out FOLDER` and update FOLDER, or `calirare recalibrate --transactions TABLE`)"
)


def run(
    folder: Path,
    out: Path,
    labels: Path | None = None,
    forget: Path | None = None,
    drawn: str = "chosen",
    graph: str | None = None,
    overwrite: bool = False,
    unknown: list[str] | None = None,
    calibrator_only: bool = False,
) -> None:
    """Trains a saved run again with other labels, writes it as a run of its own and says what changed.

    Args:
        folder: the run's folder.
        out: folder of the new run.
        labels: table with columns node and label; unknown ones are forgotten.
        forget: table with a column node, whose labels are to be forgotten.
        drawn: "chosen" or "random": how nodes came to their first label.
        graph: where the run's graph is now; None: where it was.
        overwrite: replace a run that is there.
        unknown: labels of `labels` that stand for no label; None: those of the run.
        calibrator_only: keep the detector, and fit the calibrators again on old and new labels.

    Raises:
        InputError: a file cannot be used, no label changes, or the labels that are left cannot train.
    """
    started = time.perf_counter()
    if labels is None and forget is None:
        raise InputError("update: say which labels change (--labels FILE) or are to be forgotten (--forget FILE)")
    if drawn not in ("chosen", "random"):
        raise InputError(f"update: --drawn must be chosen or random, got {drawn!r}")
    if out.resolve() == folder.resolve():
        raise InputError(f"update: --out must be another folder than the run's own, got {out}")
    if calibrator_only:
        with Reporter() as reporter:
            saved = load(folder)
            own = saved.graph_to_label(graph)
            changes = _changes(own, labels, forget, unknown, saved, reporter)
            fitted = update_calibrators(saved, own, changes, chosen=drawn == "chosen", say=reporter.say)
            fitted.save(out, overwrite=overwrite)
        show_recalibrated(fitted, out)
        return
    with fresh_folder(out, overwrite=overwrite) as place, Reporter() as reporter:
        saved = load(folder)
        if (folder / RECALIBRATION).is_file():
            p = "P(class)" if saved.settings.many else "P(rare)"
            reporter.say(
                "note: the run's calibrator was fitted on fresh labels (calirare recalibrate); the new run's is fitted "
                f"on its own labels, so {p} moves by that too: recalibrate the new run again"
            )
        read = partial(_changes, labels=labels, forget=forget, own=unknown, saved=saved, reporter=reporter)
        saved, own, changes, stored = saved.to_update(graph, read, place)
        found = update(saved, own, changes, chosen=drawn == "chosen", report=reporter)
        for note in found.outcome.notes:
            reporter.say(f"note: {note}")
        data = found.outcome.settings.data
        before = None if data.relabel is None else Path(data.relabel)
        before = folder / LABELS if (folder / LABELS).is_file() else before
        _write(found, own, before, place, out, stored)
        (place / "log.txt").write_text("\n".join(reporter.lines) + "\n", encoding="utf-8")
    show(found.outcome, out, started, f"\n{found.summary(screen(80).width)}")


def _changes(
    graph: Graph, labels: Path | None, forget: Path | None, own: list[str] | None, saved: SavedRun, reporter: Reporter
) -> Labels:
    """Returns the labels of both tables; `own`, or where that is None those the run's data name, stand for no label."""
    data = saved.settings.data
    gone = None if forget is None else Labels.forgotten(forget, graph)
    if labels is None:
        assert gone is not None
        return gone
    try:
        given = Labels.read(labels, graph, data.unknown if own is None else own, data)
    except UnknownNodeError as error:
        if not data.entities or saved.is_scoring:
            raise
        raise InputError(f"{error} {LATER}") from error
    if given.absent and own is not None:
        reporter.say(f"note: {labels}: no label is {listed(given.absent)}, which --unknown names")
    if gone is None:
        return given
    both = set(gone.nodes.tolist()) & set(given.nodes.tolist())
    if both:
        raise InputError(
            f"update: node {graph.node_name(min(both))!r} stands in {labels} and in {forget}: remove it from one"
        )
    return given.over(gone)


def _write(found: Updated, graph: Graph, before: Path | None, place: Path, out: Path, stored: str) -> None:
    """Writes the run, its labels over those of an earlier update, and what changed; `stored` holds its graph."""
    settings = found.outcome.settings
    labels = found.labels if before is None else found.labels.over(Labels.read(before, graph, settings.data.unknown))
    inert(labels.to_frame(found.outcome.graph)).to_csv(place / LABELS, index=False)
    data = dataclasses.replace(settings.data, relabel=str(out.resolve() / LABELS))
    if stored:
        data = data.moved(str(out.resolve() / stored), None)
    outcome = dataclasses.replace(found.outcome, settings=dataclasses.replace(settings, data=data))
    outcome.write(place)
    write_predictions(found.to_frame(), place, CHANGES)
    write_json(found.to_mapping(), place / FACTS)
