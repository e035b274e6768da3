"""`calirare explain`: why nodes of a saved run have their P(rare), or of a run of many classes their P(class)."""

from __future__ import annotations

import json
from pathlib import Path

from calirare._util.console import Reporter
from calirare._util.errors import InputError
from calirare._util.output import check_free, fresh_files
from calirare._util.steps import one_step
from calirare.explain import text_of
from calirare.run import load, write_json


def run(
    folder: Path,
    graph: str | None = None,
    node: list[str] | None = None,
    top: int | None = None,
    *,
    class_name: str | None = None,
    labels: int | None = None,
    as_json: bool = False,
    out: Path | None = None,
    overwrite: bool = False,
) -> None:
    """Prints why nodes have their P(rare), or P(class), and writes it as JSON where it is asked for.

    Args:
        folder: the run's folder.
        graph: where the run's graph is now; None: where it was.
        node: names of nodes, or their numbers where the graph has no names.
        top: how many of the likeliest alerts, or of the nodes that are likeliest of the class, in place of nodes.
        class_name: of a run of many classes the class; None: of each node its likeliest.
        labels: how many labels of each node are shown; None: 10 in JSON, as many as fit a screen in text.
        as_json: print JSON in place of text.
        out: JSON file to write.
        overwrite: replace a file that is there.

    Raises:
        InputError: the folder is not a run, the graph is gone, a node or the class is unknown, or a file is there.
    """
    if labels is not None and labels < 1:
        raise InputError(f"explain: --labels must be at least 1, got {labels}")
    if out is not None and out.suffix != ".json":
        raise InputError(f"explain: --out must end in .json, got {out}")
    check_free([] if out is None else [out], "explain", overwrite=overwrite)
    with Reporter():
        with one_step("reading the run"):
            saved = load(folder)
            explainer = saved.explainer(graph)
        found = saved.explain(node, explainer=explainer, class_name=class_name, top=top, labels=labels)
    if out is not None:
        with fresh_files(out.parent, f"explain: {out}") as partial:
            write_json(found.to_mapping(), partial / out.name)
    if as_json:
        print(json.dumps(found.to_mapping(), indent=2, allow_nan=False))
        return
    wrote = "" if out is None else f"wrote        {out}\n"
    print((text_of(found) if labels is None else text_of(found, labels=labels)) + wrote, end="")
