"""Commands of other installed packages, above all of calirare-lab, looked up when a name is not one of ours.

A package registers a command in the entry-point group `calirare.commands`: name -> "module:app", a `typer.Typer` whose
module is light to import; what the command imports later, the module may name in `PRELOAD`.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import typer.main
from typer.core import TyperGroup

from calirare._util.errors import InputError

GROUP = "calirare.commands"
LAB = ("paper", "profile", "study")  # commands of calirare-lab


def installed() -> dict[str, EntryPoint]:
    """Returns the entry points of other packages' commands by name."""
    return {entry.name: entry for entry in entry_points(group=GROUP)}


def preload(command: str) -> None:
    """Imports what a command of another package needs, where it says so; a name that nobody has is left alone."""
    entry = installed().get(command)
    module = None if entry is None else getattr(import_module(entry.module), "PRELOAD", None)
    if module is not None:
        import_module(module)


class CommandGroup(TyperGroup):
    """Our commands, and behind them those of other installed packages."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Returns all names, ours first."""
        own = super().list_commands(ctx)
        return [*own, *sorted(installed().keys() - set(own))]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Returns a command by its name, None where nobody has it.

        Raises:
            InputError: it belongs to calirare-lab, which is not installed.
        """
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            return command
        entry = installed().get(cmd_name)
        if entry is not None:
            return typer.main.get_command(entry.load())
        if cmd_name in LAB:
            raise InputError(
                f"{cmd_name} is a command of calirare-lab, which is not installed: `pip install calirare[lab]`, or in "
                "a checkout `pip install --no-deps ./python/calirare_lab`"
            )
        return None
