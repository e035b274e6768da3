"""`calirare report`: one HTML page of a saved run."""

from __future__ import annotations

from pathlib import Path

from calirare._util.errors import InputError
from calirare._util.output import check_free, fresh_files
from calirare.page import html_of
from calirare.run import load


def run(
    folder: Path,
    graph: str | None = None,
    out: Path | None = None,
    against: Path | None = None,
    overwrite: bool = False,
) -> None:
    """Writes the page.

    Args:
        folder: the run's folder.
        graph: where the run's graph is now; None: where it was. Where it is gone the page has no slices, and says so.
        out: HTML file to write; None: `report.html` in the run's folder.
        against: folder of another run, to be shown beside it.
        overwrite: replace a file that is there.

    Raises:
        InputError: the folder is not a run, the graph that was named is another one, or the file cannot be written.
    """
    path = out or folder / "report.html"
    if path.suffix not in (".html", ".htm"):
        raise InputError(f"report: --out must end in .html, got {path}")
    check_free([path], "report", overwrite=overwrite)
    saved, other = load(folder), None if against is None else load(against)
    page = html_of(saved, *saved.graph_if_there(graph), other)
    with fresh_files(path.parent, f"report: {path}") as partial:
        (partial / path.name).write_text(page, encoding="utf-8")
    print(path)
