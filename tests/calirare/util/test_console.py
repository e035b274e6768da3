"""Progress: plain lines when piped, bars on a terminal, and everything in the log."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from calirare._util.console import Reporter
from calirare._util.steps import progress, step_listener


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def piped(work) -> tuple[str, Reporter]:
    stream = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stderr", stream)
        with Reporter() as reporter:
            work(reporter)
    return stream.getvalue(), reporter


@contextmanager
def on_a_terminal() -> Iterator[tuple[Terminal, Reporter]]:
    stream = Terminal()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stderr", stream)
        patch.setenv("TERM", "xterm")
        with Reporter() as reporter:
            yield stream, reporter


@pytest.mark.parametrize(
    ("total", "lines"),
    [(1, ["1 of 1"]), (2, ["1 of 2", "2 of 2"]), (4, 4), (1000, ["250", "500", "750", "1000"]), (7, 4)],
)
def test_a_stage_takes_few_plain_lines(total, lines):
    def work(reporter):
        for done in range(total + 1):
            reporter("train", done, total)

    text, _ = piped(work)
    shown = text.splitlines()
    assert all(re.fullmatch(rf"train: \d+ of {total}", line) for line in shown)
    assert len(shown) == (lines if isinstance(lines, int) else len(lines))
    assert shown[-1] == f"train: {total} of {total}"


def test_lines_are_said_as_they_are():
    line = "a [bold]file[/bold] :smile: C:\\x" + " long" * 60
    text, reporter = piped(lambda reporter: reporter.say(line))
    assert text == line + "\n"
    assert reporter.lines[0].endswith(f" s  {line}")


def test_the_log_is_not_shown():
    text, reporter = piped(lambda reporter: reporter.log("a secret"))
    assert text == ""
    assert re.fullmatch(r" +\d+\.\d{3} s  a secret", reporter.lines[0])


def test_a_terminal_gets_bars_and_its_cursor_back():
    with on_a_terminal() as (stream, reporter):
        reporter("train", 5, 10)
    text = stream.getvalue()
    assert "train" in text
    assert "\x1b[?25l" in text
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l"), "the cursor is shown again"
    assert "train: 5 of 10" not in text
    assert any("train: 5 of 10" in line for line in reporter.lines)


def test_a_slow_stage_is_heard_of_after_a_silence(monkeypatch):
    monkeypatch.setattr("calirare._util.console.PLAIN_SECONDS", 0.0)
    text, _ = piped(lambda reporter: [reporter("retrain", done, 1000) for done in (1, 2)])
    assert text.splitlines() == ["retrain: 1 of 1000", "retrain: 2 of 1000"]


def test_parts_of_a_stage_are_told_of_where_they_last(monkeypatch):
    text, reporter = piped(lambda reporter: list(progress("part", range(8))))
    assert text == ""
    assert reporter.lines == []
    monkeypatch.setattr("calirare._util.console.PATIENCE", -1.0)
    text, _ = piped(lambda reporter: [*progress("part", range(8)), *progress("part", range(2))])
    assert text.splitlines() == [*(f"part: {done} of 8" for done in (2, 4, 6, 8)), "part: 1 of 2", "part: 2 of 2"]


def test_a_part_has_a_bar_while_it_lasts():
    with on_a_terminal() as (stream, reporter):
        for _ in progress("boosting", range(2)):
            reporter._progress.refresh()
        before = len(stream.getvalue())
        reporter._progress.refresh()
    assert "boosting" in stream.getvalue()[:before]
    assert "boosting" not in stream.getvalue()[before:], "nothing is left of it"


def test_items_are_told_before_they_are_worked_on_and_at_the_end():
    heard = []
    with step_listener(lambda *step: heard.append(step)):
        for item in progress("stage", ["a", "b"]):
            heard.append(item)
    assert heard == [("stage", 0, 2), "a", ("stage", 1, 2), "b", ("stage", 2, 2)]
