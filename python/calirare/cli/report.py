"""`calirare report`: one HTML page of a saved run."""

from __future__ import annotations

import sys
from pathlib import Path

from calirare._util.console import Reporter
from calirare._util.errors import InputError, one_line
from calirare._util.output import check_free, fresh_files
from calirare.graph import Graph
from calirare.page import html_of, html_of_classes, read_elsewhere
from calirare.run import SavedClasses, SavedRun, load, load_classes, of_classes


def run(
    folder: Path,
    graph: str | None = None,
    out: Path | None = None,
    against: Path | None = None,
    drift: Path | None = None,
    overwrite: bool = False,
) -> None:
    """Writes the page.

    Args:
        folder: the run's folder.
        graph: where the run's graph is now; None: where it was. Where it is gone the page has no slices, and says so.
        out: HTML file to write; None: `report.html` in the run's folder.
        against: folder of another run, to be shown beside it.
        drift: JSON file that `calirare predict` wrote of another graph, to be told of.
        overwrite: replace a file that is there.

    Raises:
        InputError: the folder is not a run, the graph that was named is another one, the other run is of another task
            or other classes, or the file cannot be written.
    """
    path = out or folder / "report.html"
    if path.suffix not in (".html", ".htm"):
        raise InputError(f"report: --out must end in .html, got {path}")
    check_free([path], "report", overwrite=overwrite)
    classes = of_classes(folder)
    if classes and drift is not None:
        raise InputError("report: --drift is for runs of a rare class: predict's own summary says it of many classes")
    elsewhere = None if drift is None else read_elsewhere(drift)
    if against is not None:
        _check_alike(folder, against, classes)
    saved = load_classes(folder).run if classes else load(folder)
    other = None if against is None else load_classes(against).run if classes else load(against)
    own, why_not = saved.graph_if_there(graph)
    if own is None:
        absent = "slices and labels' audit" if classes else "slices, reasons and labels' audit"
        print(f"calirare: report: without {absent}: {one_line(why_not)}", file=sys.stderr)
    with Reporter():
        page = (
            _page_of_classes(saved, own, why_not, other) if classes else html_of(saved, own, why_not, other, elsewhere)
        )
    with fresh_files(path.parent, f"report: {path}") as partial:
        (partial / path.name).write_text(page, encoding="utf-8")
    print(path)


def _page_of_classes(saved: SavedRun, own: Graph | None, why_not: str, other: SavedRun | None) -> str:
    """Returns the page of a run of many classes, arguments as of `html_of_classes`."""
    return html_of_classes(SavedClasses(saved), own, why_not, None if other is None else SavedClasses(other))


def _check_alike(folder: Path, against: Path, classes: bool) -> None:
    """Checks that two runs are of one task; a folder that is no run is told of where it is read."""
    if not against.is_dir() or of_classes(against) == classes:
        return
    tasks = ("of task classes", "of a rare class") if classes else ("of a rare class", "of task classes")
    raise InputError(
        f"report: --against must be a run {tasks[0]}, as {folder} is, but {against} is {tasks[1]}: name another run"
    )
