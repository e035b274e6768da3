"""`calirare explain`: why nodes of a saved run have their P(rare)."""

from __future__ import annotations

import json
import os
from pathlib import Path

from calirare._util.errors import InputError
from calirare._util.output import check_free, fresh_files
from calirare.explain import draw, picture_name, text_of
from calirare.run import load, write_json

STORED = 10  # labels of each node in JSON


def run(
    folder: Path,
    graph: str | None = None,
    node: list[str] | None = None,
    top: int | None = None,
    *,
    labels: int | None = None,
    group: str | None = None,
    as_json: bool = False,
    out: Path | None = None,
    pictures: Path | None = None,
    overwrite: bool = False,
) -> None:
    """Prints why nodes have their P(rare), and writes it as JSON where it is asked for.

    Args:
        folder: the run's folder.
        graph: where the run's graph is now; None: where it was.
        node: names of nodes, or their numbers where the graph has no names.
        top: how many of the likeliest alerts, in place of nodes.
        labels: how many labels of each node are told of; None: `STORED` in JSON, as many as fit a screen in text.
        group: column of the node table; labels of one value of it are left out together.
        as_json: print JSON in place of text.
        out: JSON file to write.
        pictures: folder for a picture of each node among its neighbours.
        overwrite: replace a file that is there.

    Raises:
        InputError: the folder is not a run, the graph is gone, a node is unknown, or a file is there.
    """
    if labels is not None and labels < 1:
        raise InputError(f"explain: --labels must be at least 1, got {labels}")
    if out is not None and out.suffix != ".json":
        raise InputError(f"explain: --out must end in .json, got {out}")
    check_free([] if out is None else [out], "explain", overwrite=overwrite)
    saved = load(folder)
    explainer = saved.explainer(graph)
    node = None if node is None else [as_terminals_write(name) for name in node]
    found = saved.explain(node, explainer=explainer, top=top, labels=STORED if labels is None else labels, group=group)
    drawn = {} if pictures is None else {pictures / picture_name(each): each for each in found}
    check_free([*([] if out is None else [out]), *drawn], "explain", overwrite=overwrite)
    if out is not None:
        with fresh_files(out.parent, f"explain: {out}") as partial:
            write_json(found.to_mapping(), partial / out.name)
    if pictures is not None:
        with fresh_files(pictures, f"explain: {pictures}") as partial:
            for path, each in drawn.items():
                draw(each, explainer.subject, partial / path.name)
    if as_json:
        print(json.dumps(found.to_mapping(), indent=2, allow_nan=False))
        return
    print(text_of(found) if labels is None else text_of(found, labels=labels), end="")
    for path in [*([] if out is None else [out]), *drawn]:
        print(f"wrote        {path}")


def as_terminals_write(name: str) -> str:
    """Returns a name from the command line as UTF-8, where the locale knows no more than ASCII; no path, any bytes."""
    try:
        return os.fsencode(name).decode("utf-8")
    except UnicodeError:
        return name
