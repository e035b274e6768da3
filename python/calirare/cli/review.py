"""`calirare review`: the review queue of a saved run on a local page, and the answers as a table of labels."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from calirare._util.amounts import amount
from calirare._util.claims import claimed
from calirare._util.errors import InputError
from calirare._util.output import check_free
from calirare.page import Desk, ReviewServer, Verdicts, export
from calirare.run import SavedRun, load, load_classes, node_names, of_classes

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
            to be exported, or the port cannot be had.
    """
    if not 0 <= port <= HIGHEST_PORT:
        raise InputError(f"review: --port must be from 0 (any that is free) to {HIGHEST_PORT}, got {port}")
    of_many = load_classes(folder) if of_classes(folder) else None
    saved, own = of_many.run if of_many else load(folder), folder.resolve()
    n_classes = len(saved.scorer.class_names)
    if of_many is None and n_classes > 2:
        raise InputError(
            f"review: the run has {n_classes} classes of which none was made rare: train with "
            "task classes (calirare train --task classes, calirare.train_classes)"
        )
    path = out or own.with_name(own.name + SUFFIX)
    if to is not None:
        return _export(saved, path, to, overwrite)
    there, why = saved.graph_if_there(graph)
    explainer = None if there is None else partial(saved.explainer, there)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        names = partial(node_names, own)
        with (
            claimed(path, f"review: {path}"),
            Verdicts(path, saved.fingerprint, saved.scorer.class_names, names) as verdicts,
        ):
            _serve(Desk(of_many or saved, verdicts, explainer, why), port, path)
    except OSError as error:
        raise InputError(f"review: {path} cannot be written: {error.strerror or error}: take another --out") from error


def _export(saved: SavedRun, path: Path, to: Path, overwrite: bool) -> None:
    """Writes the answers of a file as labels."""
    if to.suffix != ".csv":
        raise InputError(f"review: --export must end in .csv, got {to}")
    if not path.is_file():
        raise InputError(f"review: {path} is not there, so there are no answers yet: review first, or name it by --out")
    check_free([to], "review", overwrite=overwrite)
    names = saved.scorer.class_names
    with Verdicts(path, saved.fingerprint, names, partial(node_names, saved.folder), every=True) as verdicts:
        n = export(verdicts.latest(), names, to)
    print(f"{amount(n, 'label')} for `calirare update --labels`:")
    print(to)


def _serve(desk: Desk, port: int, path: Path) -> None:
    """Serves until Ctrl-C, then says what is saved."""
    with ReviewServer(desk, port) as server:
        print(f"review {desk.progress(desk.verdicts.latest())}")
        print(f"answers are saved in {path}")
        print(f"open {server.address} (Ctrl-C ends it)", flush=True)
        try:
            server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            print(f"\nsaved in {path}: {desk.progress(desk.verdicts.latest())}")
