"""Commands made by typer, as the command line of calirare calls those of other packages."""

from __future__ import annotations

from typing import Any

import typer

from calirare.cli.options import UsageError

# typer keeps its copy of click under a private name: what it exports leads to the class of every usage error.
USAGE_ERROR: Any = typer.BadParameter.__mro__[1]


class Commands(typer.Typer):
    """A typer app that is called with words, returns an exit code, and raises the usage errors of calirare."""

    def __call__(self, words: list[str]) -> Any:
        """Runs a command.

        Args:
            words: what was typed after the name.

        Raises:
            UsageError: a word is not known.
            KeyboardInterrupt: it was stopped.
        """
        name = f"calirare {self.info.name}"
        try:
            return super().__call__(args=words or None, prog_name=name, standalone_mode=False)
        except USAGE_ERROR as error:
            message = error.format_message().rstrip(".").replace(". ", "; ")
            context = getattr(error, "ctx", None)
            raise UsageError(f"{message} (see `{name if context is None else context.command_path} --help`)") from error
        except typer.Abort:
            raise KeyboardInterrupt from None
