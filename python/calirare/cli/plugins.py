"""Commands of other installed packages, looked up when a name is not one of ours.

A package registers a command in the entry-point group `calirare.commands`: name -> "module:object", where the object
is a function that takes the words after the name and returns an exit code, or a `typer.Typer`. The module should be
light to import; what the command imports later, the module may name in `PRELOAD`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from calirare._util.errors import InputError
from calirare.cli.options import UsageError

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

    Raises:
        UsageError: a word is not known to a typer app.
    """
    command = entry.load()
    needed = getattr(import_module(entry.module), "PRELOAD", None)
    if needed is not None and "--help" not in words:
        import_module(needed)
    ready()
    typer: Any = sys.modules.get("typer")
    if typer is None or not isinstance(command, typer.Typer):
        return command(words)
    # typer keeps its copy of click under a private name: what it exports leads to the class of every usage error.
    usage_error = typer.BadParameter.__mro__[1]
    try:
        return command(args=words or None, prog_name=f"calirare {entry.name}", standalone_mode=False)
    except usage_error as error:
        message = error.format_message().rstrip(".").replace(". ", "; ")
        context = getattr(error, "ctx", None)
        path = f"calirare {entry.name}" if context is None else context.command_path
        raise UsageError(f"{message} (see `{path} --help`)") from error
    except typer.Abort:
        raise KeyboardInterrupt from None
