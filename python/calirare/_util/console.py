"""Progress of a job: bars on a terminal, plain lines when piped, and a log."""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from calirare._util.steps import step_listener

PLAIN_STEPS = 4  # lines per stage when piped
PLAIN_SECONDS = 60.0  # and one more after such a silence
PATIENCE = 5.0  # seconds of a part of a stage before it is worth a line


class Screen(Console):
    """A console that leaves it to the command line what happens when its reader has gone."""

    def on_broken_pipe(self) -> None:
        """Raises BrokenPipeError, as print does, in the place of an exit with code 1."""
        self.quiet = True
        raise BrokenPipeError


def screen(piped: int) -> Screen:
    """Returns a console as wide as the terminal, or of so many columns where there is none."""
    plain = Screen(markup=False, emoji=False, highlight=False)
    return plain if plain.is_terminal else Screen(width=piped, markup=False, emoji=False, highlight=False)


class Reporter:
    """Shows stages and keeps the lines for `log.txt`. Everything goes to stderr; results go to stdout.

    It shows the parts of stages too (`calirare._util.steps`): on a terminal each has a bar while it lasts, elsewhere
    lines if it lasts long.

    Attributes:
        lines: what was shown or logged, each with the seconds since the start.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._console = Screen(stderr=True, markup=False, emoji=False, highlight=False)
        self._started = time.perf_counter()
        self._last = self._started
        self._shown: dict[str, int] = {}
        self._tasks: dict[str, TaskID] = {}
        self._progress: Progress | None = None
        self._began: dict[str, float] = {}  # of parts of stages
        self._open = ExitStack()

    def __enter__(self) -> Self:
        """Starts the bars where there is a terminal."""
        if sys.stderr.isatty():
            columns = (TextColumn("{task.description:12}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
            self._progress = Progress(*columns, console=self._console)
        self._open.enter_context(step_listener(self.part))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stops the bars."""
        self._open.close()
        if self._progress is not None:
            self._progress.live.transient = not self._tasks  # or an empty line stays
            self._progress.stop()

    def say(self, line: str) -> None:
        """Shows and logs one line."""
        self.log(line)
        self._console.print(line, soft_wrap=True)

    def log(self, line: str) -> None:
        """Logs one line without showing it."""
        self.lines.append(f"{time.perf_counter() - self._started:9.3f} s  {line}")

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Shows how far a stage is."""
        self._bar(stage, done, total)
        self._line(stage, done, total)

    def part(self, stage: str, done: int, total: int) -> None:
        """Shows how far a part of a stage is, see `calirare._util.steps.report_step`."""
        now = time.perf_counter()
        if done == 0 or stage not in self._began:
            self._began[stage] = now
            self._shown.pop(stage, None)
        self._bar(stage, done, total)
        if done == total and self._progress is not None:
            self._progress.remove_task(self._tasks.pop(stage))
        if total > 1 and now - self._began[stage] > PATIENCE:  # of one step a line would say that it is over
            self._line(stage, done, total)

    def _bar(self, stage: str, done: int, total: int) -> None:
        """Moves the bar of a stage where there are bars."""
        if self._progress is not None:
            self._progress.start()
            if stage not in self._tasks:
                self._tasks[stage] = self._progress.add_task(stage, total=total)
            self._progress.update(self._tasks[stage], completed=done, total=total)

    def _line(self, stage: str, done: int, total: int) -> None:
        """Shows how far a stage is at every fourth of it, and after a silence; on a terminal only in the log."""
        step = done * PLAIN_STEPS // max(total, 1)
        now = time.perf_counter()
        if step > self._shown.get(stage, 0) or now - self._last > PLAIN_SECONDS:
            self._shown[stage] = step
            self._last = now
            line = f"{stage}: {done} of {total}"
            if self._progress is None:
                self.say(line)
            else:
                self.log(line)
