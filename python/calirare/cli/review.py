"""`calirare review`: the review queue of a saved run on a local page, and the answers as a table of labels."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import pandas as pd

from calirare._util.amounts import amount
from calirare._util.errors import InputError
from calirare._util.file_locks import locked
from calirare._util.output import check_free
from calirare.page import ReviewServer, ReviewSession, Verdicts, export, other_nodes
from calirare.run import load

SUFFIX = ".review.sqlite"
HIGHEST_PORT = 65535


def run(
    folder: Path,
    graph: str | None = None,
    out: Path | None = None,
    port: int = 0,
    to: Path | None = None,
    overwrite: bool = False,
) -> None:
    """Serves the page until Ctrl-C, or writes the answers so far as labels.

    Args:
        folder: the run's folder.
        graph: where the run's graph is now; None: where it was. Where it is gone the page has no reasons, and says so.
        out: SQLite file of the answers; None: beside the run's folder, with its name.
        port: of 127.0.0.1; 0: any that is free.
        to: CSV to write the labels to, in place of the page.
        overwrite: replace a CSV that is there.

    Raises:
        InputError: the folder is not a run, the graph that was named is another one, a file cannot be used, nothing is
            to be exported, or the port is not available.
    """
    path = out or folder.resolve().with_name(folder.resolve().name + SUFFIX)
    if to is not None:
        return _export(folder, path, to, overwrite)
    if not 0 <= port <= HIGHEST_PORT:
        raise InputError(f"review: --port must be from 0 (any that is free) to {HIGHEST_PORT}, got {port}")
    saved = load(folder)
    there, why = saved.graph_if_there(graph)
    explainer = None if there is None else partial(saved.explainer, there)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        facts = path, saved.fingerprint, saved.scorer.class_names, lambda: saved.to_frame()["node"]
        with locked(path, f"review: {path}"), Verdicts(*facts) as verdicts:
            _note(verdicts.note)
            _serve(ReviewSession(saved, verdicts, explainer, why), port, path)
    except OSError as error:
        raise InputError(f"review: {path} cannot be written: {error.strerror or error}: take another --out") from error


def _note(note: str) -> None:
    if note:
        print(f"note: {note}", file=sys.stderr)


def _export(folder: Path, path: Path, to: Path, overwrite: bool) -> None:
    """Writes the answers of a file as labels, whatever has become of their run."""
    if to.suffix != ".csv":
        raise InputError(f"review: --export must end in .csv, got {to}")
    if not path.is_file():
        raise InputError(f"review: {path} is not there, so there are no answers yet: review first, or name it by --out")
    check_free([to], "review", overwrite=overwrite)
    with Verdicts.stored(path) as verdicts:
        labels = export(verdicts.latest(), verdicts.class_names, to)
    _note(_since(verdicts, labels, folder))
    print(f"{amount(len(labels), 'label')} for {_use(folder)}:")
    print(to)


def _use(folder: Path) -> str:
    """Returns what exported labels are for: a run with positive labels alone takes no update."""
    try:
        alone = load(folder).settings.positive_only
    except InputError:
        alone = False
    return "the data, as a positive-only run takes no update" if alone else "`calirare update --labels`"


def _since(verdicts: Verdicts, labels: pd.DataFrame, folder: Path) -> str:
    """Returns what to heed of exported labels where the run was trained again since; empty: nothing."""
    try:
        saved = load(folder)
        now = saved.fingerprint
        if now == verdicts.graph:
            return ""
        why = other_nodes(verdicts.graph, now, list(labels["node"]), saved.to_frame()["node"])
        return f"the labels are of another graph, {why}" if why else ""
    except InputError as error:
        return f"the labels could not be compared with the run's: {error}"


def _serve(session: ReviewSession, port: int, path: Path) -> None:
    """Serves until Ctrl-C, then says what is saved."""
    with ReviewServer(session, port) as server:
        print(f"review {session.progress(session.verdicts.latest())}")
        print(f"answers are saved in {path}")
        print(f"open {server.address} (Ctrl-C ends it)", flush=True)
        try:
            server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            session.verdicts.check_file()
            print(f"\nsaved in {session.verdicts.path}: {session.progress(session.verdicts.latest())}")
