"""The command line: `calirare --help`. Exit codes: 0 done, 1 failure, 2 bad usage or input, 3 drift where asked."""

from __future__ import annotations

import errno
import gc
import io
import os
import runpy
import signal
import sys
import traceback
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import FrameType

from calirare._util.errors import InputError, one_line
from calirare._util.startup import INTERRUPTED, STOPPED, handle, is_command
from calirare.cli import plugins
from calirare.cli.options import UsageError
from calirare.cli.parser import COMMANDS, note_renamed, parser_of, unknown

DEBUG = "--debug"
PIPE_CLOSED = 141  # and for a program whose reader has gone
NO_ROOM = ("can't allocate memory", "out of memory", "failed to map segment")  # as torch and the loader say it
GROUPS = {
    "Workflow": ("train", "predict", "explain", "review", "report"),
    "Labels": ("audit", "suggest", "update"),
    "Maintain": ("recalibrate", "evaluate"),
    "Setup": ("datasets", "doctor"),
}
ABOUT = "Find rare nodes or transactions, such as fraud, with calibrated probabilities."


def main() -> None:
    """Runs the command line; the entry point of the `calirare` script."""
    _stand_alone()
    debug = DEBUG in sys.argv[1:]
    words = [word for word in sys.argv[1:] if word != DEBUG]
    try:
        code = run(words)
        sys.stdout.flush()
    except KeyboardInterrupt:
        code = INTERRUPTED
        exec("")  # else CPython ends with the signal where it came within an exec, as imports of SciPy have one
    except BrokenPipeError:  # the reader has gone, as `head` does: what is left has nowhere to go
        code = PIPE_CLOSED
        for stream in (sys.stdout, sys.stderr):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    except Exception as error:  # what a signal raises may come out of a C library as another error
        code = STOPPED.get("by") or _failed(error, debug)
    finally:
        STOPPED.clear()
    if code == INTERRUPTED:
        print("calirare: interrupted", file=sys.stderr)
    if is_command() and "duckdb" not in sys.modules:  # it complains of what is left at the end
        gc.freeze()  # else Python looks through all that was imported before it ends, for most of a second
    sys.exit(code)


def _failed(error: Exception, debug: bool) -> int:
    """Says what went wrong and returns the exit code."""
    if debug:
        traceback.print_exc()
    elif isinstance(error, InputError):
        print(f"calirare: {error}", file=sys.stderr)
    elif isinstance(error, MemoryError) or any(words in str(error) for words in NO_ROOM):
        print(
            "calirare: memory ran out, and what was there before is unchanged: end other programs, allow more (`ulimit "
            "-v`, the container's limit), or take fewer columns, labels or processes",
            file=sys.stderr,
        )
    elif isinstance(error, PermissionError) and error.filename is not None:
        print(f"calirare: {error.filename}: {error.strerror}: see who may read and write there", file=sys.stderr)
    elif isinstance(error, OSError) and error.errno == errno.ENOSPC and error.filename is None:
        print(
            "calirare: the disk is full, so the output could not be printed. The files are complete.", file=sys.stderr
        )
    else:
        what = one_line(" ".join(str(error).split()))
        print(f"calirare: failed: {type(error).__name__}: {what} (--debug shows where)", file=sys.stderr)
    return 2 if isinstance(error, InputError) else 1


def _stand_alone() -> None:
    """Makes what is written and drawn independent of where the command was started."""
    os.environ["MPLBACKEND"] = "agg"  # pictures go to files; a backend that is not there would fail after training
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed: what is said goes nowhere
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - for the process's lifetime
        elif isinstance(stream := getattr(sys, name), io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal of a few letters gets the others by number


def run(words: list[str]) -> int:
    """Runs the command that the first word names, with the others, and returns its exit code.

    Raises:
        UsageError: there is no such command, or not with these words.
    """
    name, *rest = words or ["--help"]
    old, name = name, _command(name, rest)
    if name != old:
        note_renamed(f"calirare {old}", f"calirare {name}")
    if name in ("--help", "-h"):
        print(_help(), end="")
    elif name == "--version":
        print(f"calirare {version()}")
    elif name in COMMANDS:
        if "--help-all" in rest:
            parser_of(name, every=True).print_help()
            return 0
        given = parser_of(name).values(rest)
        gc.disable()  # what is imported stays: Python need not look through it again and again
        command = import_module(f"calirare.cli.{name.replace('-', '_')}")
        if is_command():
            gc.freeze()
        gc.enable()
        _ready()
        return command.run(**given) or 0
    else:
        entry = None if name.startswith("-") else plugins.find(name)
        if entry is None:
            what = "option" if name.startswith("-") else "command"
            raise UsageError(f"{unknown(what, name, [*COMMANDS, '--help', '--version'])} (see `calirare --help`)")
        return plugins.run(entry, rest, _ready) or 0
    return 0


def _command(name: str, words: list[str]) -> str:
    """Returns the present name of a command whose name changed."""
    if name == "audit" and any(word.partition("=")[0] == "--next" for word in words):
        return "suggest"
    return "evaluate" if name == "metrics" else name


def version() -> str:
    """Returns the version, read without importing what it is the version of."""
    spec = find_spec("calirare_ext")
    assert spec is not None
    return runpy.run_path(str(Path(str(spec.origin)).with_name("_version.py")))["__version__"]


def _help() -> str:
    rows = [
        line
        for title, names in GROUPS.items()
        for line in ("", f"{title}:", *(f"  {name:<12}{COMMANDS[name].help}" for name in names))
    ]
    others = [f"  of other packages: {', '.join(sorted(plugins.commands()))}"] if plugins.commands() else []
    options = ["  --version   Print the version.", "  --help      Print this, or after a command its options."]
    options.append("  --debug     After a command: show the whole traceback of an error.")
    lines = ["usage: calirare COMMAND [OPTIONS]", "", ABOUT, *rows, *others, "", "options:", *options]
    return "\n".join(lines) + "\n"


def _ready() -> None:
    """Ends the time in which a Ctrl-C ends the process on the spot: everything is imported."""
    handle({"SIGINT": _interrupt, "SIGTERM": _stop, "SIGHUP": _stop})


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Raises what Ctrl-C raises in any program."""
    STOPPED["by"] = INTERRUPTED
    signal.default_int_handler(number, frame)


def _stop(number: int, frame: object) -> None:
    """Ends the program as an error would, so that nothing half-written stays behind."""
    STOPPED["by"] = 128 + number
    sys.exit(128 + number)
