"""`calirare report`: one HTML page of a saved run."""

from __future__ import annotations

import sys
from pathlib import Path

from calirare._util.console import Reporter
from calirare._util.errors import InputError, one_line
from calirare._util.output import check_free, fresh_files
from calirare._util.run_files import changed_file
from calirare.page import html_of
from calirare.run import load


def run(
    folder: Path,
    graph: str | None = None,
    out: Path | None = None,
    overwrite: bool = False,
) -> None:
    """Writes the page.

    Args:
        folder: the run's folder.
        graph: where the run's graph is now; None: where it was. Where it is gone the page has no slices, and says so.
        out: HTML file to write; None: `report.html` in the run's folder, in place of an unchanged one.
        overwrite: replace a file that is there.

    Raises:
        InputError: the folder is not a run, the graph that was named is another one, or the file cannot be written.
    """
    path = out or folder / "report.html"
    if path.suffix not in (".html", ".htm"):
        raise InputError(f"report: --out must end in .html, got {path}")
    as_written = out is None and changed_file(folder, [path.name]) is None
    check_free([path], "report", overwrite=overwrite or as_written)
    saved = load(folder)
    own, why_not = saved.graph_if_there(graph)
    if own is None:
        absent = "slices and labels' audit" if saved.settings.many else "slices, reasons and labels' audit"
        print(f"calirare: report: without {absent}: {one_line(why_not)}", file=sys.stderr)
    with Reporter():
        page = html_of(saved, own, why_not)
    write_page(page, path)
    print(path)


def write_page(page: str, path: Path) -> None:
    """Writes a page where it belongs, as a whole or not at all."""
    with fresh_files(path.parent, f"report: {path}") as partial:
        (partial / path.name).write_text(page, encoding="utf-8")
