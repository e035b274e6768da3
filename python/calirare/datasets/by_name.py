"""Data sets by name: the digits, and the published ones of calirare-lab or another package, where one is installed."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

COMMANDS = "calirare.commands"  # the entry points of packages that belong to this one
NO_CATALOGUE = "published data sets are in calirare-lab, which is not installed: pip install 'calirare[lab]'"


@cache
def published_sets() -> Any:
    """Returns the module `published` of a package whose commands are entry points; None where there is none.

    It has `CATALOGUE`, entries by the names of data sets, `read(name, root, fetch=, progress=)`, which returns a graph
    and the number of its rare class, `raise_label_rate` and `print_table(root)`.
    """
    for package in sorted({entry.module.partition(".")[0] for entry in entry_points(group=COMMANDS)}):
        spec = find_spec(package)
        if spec is not None and spec.submodule_search_locations and find_spec(f"{package}.published"):
            return import_module(f"{package}.published")
    return None


def is_named(dataset: str | Path | None) -> bool:
    """Returns whether a data set is known by this name, and not the path of a file."""
    if dataset == "digits":
        return True
    catalogue = published_sets() if str(dataset).isidentifier() else None
    return catalogue is not None and str(dataset) in catalogue.CATALOGUE
