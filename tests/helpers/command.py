"""The command line called in this process: the same entry point, without a second for every import."""

from __future__ import annotations

import base64
import dataclasses
import functools
import io
import math
import os
import signal
import sys
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import NamedTuple, TextIO
from unittest import mock

from calirare.cli import main
from calirare.metrics import calibration_report

# A training of a fraction of a second.
QUICK = ("--preset", "paper", "--epochs", "12", "--folds", "0")


class Said(NamedTuple):
    """Exit code and what was written to stdout and stderr."""

    code: int
    out: str
    err: str


def call(*arguments: object, pictures: bool = False, report: bool = False, closed: Collection[str] = ()) -> Said:
    """Runs `calirare ARGUMENTS`; a run gets rough numbers, and without `pictures` empty ones: it saves seconds.

    A training writes no report unless `report`: that saves seconds too.

    Of streams that are `closed` Python has None, as of those that were closed when it started.
    """
    out, err = io.StringIO(), io.StringIO()
    if arguments[:1] == ("train",) and not report:
        arguments = (*arguments, "--no-report")
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(sys, "argv", ["calirare", *map(str, arguments)]))
        stack.enter_context(redirect_stdout(None if "stdout" in closed else out))
        stack.enter_context(redirect_stderr(None if "stderr" in closed else err))
        stack.enter_context(rough_runs(pictures))
        stack.enter_context(mock.patch("calirare._util.console.PATIENCE", math.inf))  # on a slow machine too
        try:
            main()
        except SystemExit as stop:
            return Said(int(stop.code or 0), out.getvalue(), err.getvalue())
        finally:
            for stream in closed:
                getattr(sys, stream).close()  # what the command writes to instead
            for number, handler in before.items():
                signal.signal(number, handler)
    raise AssertionError("main() must end with an exit code")


def succeed(*arguments: object, silent: bool = False, pictures: bool = False, report: bool = False) -> Said:
    """Runs a command as `call` does and asserts that it ends well, and if `silent` without a word on stderr."""
    said = call(*arguments, pictures=pictures, report=report)
    assert said.code == 0, said.err
    assert not silent or said.err == ""
    return said


PICTURES = ("precision_recall.png", "p_rare.png")
PICTURES_OF_CLASSES = ("reliability.png", "classes.png")
DOT = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR42mNgAAAAAgAB5Sfe/AAAAABJRU5ErkJggg=="
)  # a picture of one black dot
rough_report = functools.partial(calibration_report, n_draws=3)


@contextmanager
def rough_runs(pictures: bool = False) -> Iterator[None]:
    """Meanwhile runs take noise floors and intervals from the fewest draws; without `pictures` none is drawn."""
    with ExitStack() as stack:
        stack.enter_context(mock.patch("calirare.run.report.calibration_report", rough_report))
        stack.enter_context(mock.patch.multiple("calirare._util.memory", RESAMPLES=0, DRAWS=0, LEAST=3))
        if not pictures:
            stack.enter_context(mock.patch("calirare.run.outcome.draw", _no_pictures))
            stack.enter_context(mock.patch("calirare.run.judging.Judged.draw", _no_pictures_of_classes))
            stack.enter_context(mock.patch("calirare.plots.canvas.save", _dot))
        yield


@contextmanager
def few_candidates() -> Iterator[None]:
    """Meanwhile `auto` has one network of each kind, trained for few epochs, 20 trees of each kind, and two folds."""
    settings = {"LINEAR_DECAYS": (1e-2,), "HOPS_DECAYS": (5e-2,), "GCNS": ((2, 2e-3),), "FOLDS": 2, "EPOCHS": 20}
    with (
        mock.patch.multiple("calirare.run.auto", **settings),
        mock.patch("calirare.models.trees.TreesTraining._most", 20),
    ):
        yield


@contextmanager
def empty_pictures() -> Iterator[None]:
    """Meanwhile every picture is drawn, but its file is written empty: rendering takes longer than drawing."""
    with mock.patch("calirare.plots.canvas.save", _saved_empty):
        yield


def _saved_empty(figure: object, path: str | Path, marks: object = ()) -> Path:
    Path(path).write_bytes(b"")
    return Path(path)


def _no_pictures(outcome: object, folder: Path) -> None:
    for name in PICTURES:
        (folder / name).write_bytes(b"")


def _no_pictures_of_classes(judged: object, folder: Path, *_: object) -> None:
    for name in PICTURES_OF_CLASSES:
        (folder / name).write_bytes(DOT)


def _dot(figure: object, path: str | Path, *_: object) -> Path:
    Path(path).write_bytes(DOT)
    return Path(path)


@contextmanager
def forked(*arguments: object) -> Iterator[Forked]:
    """Runs `calirare ARGUMENTS` in a copy of this process, where all is imported; it is killed at the end."""
    out, err = os.pipe(), os.pipe()
    number = os.fork()
    if number == 0:
        code = 1
        try:
            for (read, write), stream in ((out, 1), (err, 2)):
                os.close(read)
                os.dup2(write, stream)
            sys.stdout, sys.stderr = (open(stream, "w", buffering=1) for stream in (1, 2))  # noqa: SIM115
            for signals in (signal.SIGTERM, signal.SIGHUP):
                signal.signal(signals, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            sys.argv = ["calirare", *map(str, arguments)]
            main()
        except SystemExit as stop:
            code = int(stop.code or 0)
        finally:
            with suppress(OSError):
                sys.stdout.flush()
            os._exit(code)
    for _, write in (out, err):
        os.close(write)
    with open(out[0]) as said, open(err[0]) as noted:
        process = Forked(number, said, noted)
        try:
            yield process
        finally:
            process.end(signal.SIGKILL)


@dataclasses.dataclass
class Forked:
    """A command in a process of its own: its number, what it writes, and its exit code once it has ended."""

    pid: int
    stdout: TextIO
    stderr: TextIO
    code: int | None = None

    def end(self, number: int) -> int:
        """Sends a signal, unless the process has ended, and returns its exit code."""
        if self.code is None:
            os.kill(self.pid, number)
            self.code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.code


def assert_refused(said: Said, code: int = 2) -> str:
    """Asserts a refusal: the code, nothing on stdout, one line of at most three sentences on stderr; returns it."""
    assert (said.code, said.out) == (code, ""), said
    lines = said.err.splitlines()
    assert len(lines) == 1, said.err
    assert lines[0].startswith("calirare: ")
    assert lines[0].count(". ") <= 2, "what happened, where; why; how to fix it"
    assert "Traceback" not in said.err
    return lines[0]
