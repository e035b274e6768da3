"""`calirare recalibrate`: whether a saved run's P(rare) holds on fresh labels, and its maps fitted on them anew."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from calirare._util.console import Reporter
from calirare._util.errors import InputError
from calirare.cli.predict import scored_graph
from calirare.run import load, recalibrated


def run(folder: Path, graph: str, settings: dict[str, Any], out: Path | None = None, overwrite: bool = False) -> None:
    """Fits the maps of a saved run on fresh labels, writes the run with them and says what it was and is.

    Args:
        folder: the run's folder.
        graph: name or path of a graph with labels that the run has not seen.
        settings: keywords of `read_graph`, as for `calirare predict`.
        out: folder of the new run; None: the run's own, where model.safetensors is replaced.
        overwrite: replace what is there.

    Raises:
        InputError: a file cannot be used, there are no labels of both classes, or something must not be replaced.
    """
    if out is None and not overwrite:
        raise InputError(
            "recalibrate: pass --out FOLDER for a run of its own, or --overwrite to put the maps into this"
        )
    if out is not None and out.exists() and not overwrite:
        raise InputError(f"recalibrate: {out} exists already: take another --out, or pass --overwrite to replace it")
    saved = load(folder)
    columns = saved.settings.data.columns()
    labelled = settings if "label" in settings or not columns.get("label") else settings | {"label": columns["label"]}
    with Reporter() as reporter:
        found = recalibrated(saved, scored_graph(saved, graph, labelled), reporter.say)
    paths = found.replace() if out is None else found.save(out, overwrite=overwrite)
    print(found.summary(), end="")
    if out is None:
        print(f"note: tables and pictures of {folder} are of the map before; `calirare predict` writes its nodes anew")
    for path in paths:
        print(path)
