"""Commands of other installed packages, looked up when a name is not one of ours.

A package registers a command in the entry-point group `calirare.commands`: name -> "module:object", where the object
takes the words after the name and returns an exit code. The module should be light to import; what the command imports
later, the module may name in `PRELOAD`.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points

from calirare._util.errors import InputError

GROUP = "calirare.commands"
# Commands of the packages that are developed with this one.
OTHERS = {"multilabel": "calirare-multilabel"} | dict.fromkeys(("paper", "profile", "study"), "calirare-lab")


def commands() -> dict[str, EntryPoint]:
    """Returns the entry points of other packages' commands by name."""
    return {entry.name: entry for entry in entry_points(group=GROUP)}


def find(name: str) -> EntryPoint | None:
    """Returns a command's entry point, None where nobody has it.

    Raises:
        InputError: it belongs to one of `OTHERS`, which is not installed.
    """
    entry = commands().get(name)
    if entry is None and name in OTHERS:
        package = OTHERS[name]
        raise InputError(
            f"{name} is a command of {package}, which is not installed: `pip install "
            f"calirare[{package.removeprefix('calirare-')}]`, or in a checkout `make setup`"
        )
    return entry


def run(entry: EntryPoint, words: list[str], ready: Callable[[], None]) -> int | None:
    """Runs a command of another package and returns its exit code.

    Args:
        entry: of the command.
        words: what was typed after its name.
        ready: called when everything is imported.
    """
    command = entry.load()
    needed = getattr(import_module(entry.module), "PRELOAD", None)
    if needed is not None and "--help" not in words:
        import_module(needed)
    ready()
    code: int | None = command(words)
    return code
