"""The command line, one module per command."""

from calirare.cli.app import main

__all__ = ["main"]
