"""`calirare train`: the main job, from a data set to a run's folder."""

from __future__ import annotations

import dataclasses
import platform
import shlex
import sys
import time
from pathlib import Path
from typing import Any

import torch

from calirare._util.console import Reporter
from calirare._util.device import choose_device
from calirare._util.errors import InputError
from calirare._util.output import fresh_folder
from calirare.cli.report import write_page
from calirare.page import html_of
from calirare.run import LABELS, Outcome, Settings, load, read_yaml, train, typed
from calirare_ext import __version__


def run(
    settings: dict[str, Any],
    out: Path,
    assignments: list[str],
    config: Path | None = None,
    overwrite: bool = False,
    report: bool = True,
    verbose: bool = False,
) -> None:
    """Trains on a data set, writes the run's folder and its report, and prints a summary.

    Args:
        settings: by their short names; they win over the file's.
        out: the run's folder.
        assignments: any settings, as "loo.damping=0.01"; they win over both.
        config: YAML file with settings.
        overwrite: replace a folder that is there.
        report: write report.html too.
        verbose: print the tables behind the summary, features and files too.

    Raises:
        InputError: the data set, a setting or the folder cannot be used; nothing is left behind.
    """
    started = time.perf_counter()
    base = Settings() if config is None else _settings_of(config)
    chosen = base.but("command line", **settings)
    chosen = chosen.but("--set", **typed(chosen, assignments, "--set"))
    if chosen.data.source is None:
        chosen = chosen.but("command line", dataset="digits")
    if out.name in ("", ".."):
        raise InputError(f"train: --out must name a folder of its own, such as runs/run, got {str(out)!r}")
    show(_run(chosen, out, overwrite=overwrite), out, started, report=report, verbose=verbose)


def show(
    outcome: Outcome, out: Path, started: float, more: str = "", *, report: bool = True, verbose: bool = False
) -> None:
    """Writes the page of a new run, and prints its summary, `more`, and what to do next; see `run`."""
    if report:
        _write_report(outcome, out)
    outcome.seconds["files"] = time.perf_counter() - started - sum(outcome.seconds.values())
    print(outcome.summary(verbose=verbose, printed=() if verbose else outcome.graph.notes) + more, end="")
    if verbose:
        for line in () if outcome.features is None else outcome.features.log:
            print(f"features: {line}")
        for path in sorted(out.iterdir()):
            print(path)
    print("\n".join(["", f"Saved to {out}. Next:", *next_commands(out, report=report)]))


def _settings_of(config: Path) -> Settings:
    """Returns the settings of a file; labels of an updated run lie next to it, wherever its folder was moved to."""
    base = Settings.from_mapping(read_yaml(config), f"config {config}")
    named, beside = base.data.relabel, config.parent / LABELS
    if named is None or Path(named).is_file() or Path(named).name != LABELS or not beside.is_file():
        return base
    return dataclasses.replace(base, data=dataclasses.replace(base.data, relabel=str(beside.resolve())))


def next_commands(out: Path, *, report: bool) -> list[str]:
    """Returns two commands that go on from a run, each with what it is for where a line has room."""
    folder = shlex.quote(str(out))
    page = f"open {shlex.quote(str(out / 'report.html'))}" if report else f"calirare report {folder}"
    commands = {f"calirare review {folder}": "work through the ranked queue", page: "full report"}
    wide = max(map(len, commands)) + 3
    lines = {command: f"  {command:<{wide}}{words}" for command, words in commands.items()}
    return [line if len(line) <= 80 else f"  {command}" for command, line in lines.items()]


def _write_report(outcome: Outcome, out: Path) -> None:
    """Writes the page of `calirare report` into the run's folder."""
    try:
        saved, graph = load(out), outcome.graph.to("cpu")
        saved.remember(graph, outcome.mapped)
        with Reporter():
            page = html_of(saved, graph)
        write_page(page, out / "report.html")
    except InputError as error:
        print(f"calirare: report.html was not written: {error}", file=sys.stderr)


def _run(settings: Settings, out: Path, *, overwrite: bool) -> Outcome:
    """Trains and writes the run's folder."""
    started = time.perf_counter()
    with fresh_folder(out, overwrite=overwrite) as folder, Reporter() as reporter:
        if settings.data.transactions is None:
            graph = settings.data.load(settings.seed)
        else:
            graph, data = settings.data.read_transactions()
            settings = dataclasses.replace(settings, data=data)
        reporter.log(str(graph))
        for note in graph.notes:
            reporter.say(f"note: {note}")
        outcome = train(graph, settings, report=reporter)
        notes = outcome.metrics["notes"]
        for line in outcome.features.log if outcome.features is not None else ():
            reporter.log(f"features: {line}")
        reporter.log(str(outcome.verdict))
        for note in notes:
            reporter.log(f"note: {note}")  # the summary shows it
        outcome.write(folder)
        _log(reporter, outcome, time.perf_counter() - started)
        (folder / "log.txt").write_text("\n".join(reporter.lines) + "\n", encoding="utf-8")
    return outcome


def _log(reporter: Reporter, outcome: Outcome, seconds: float) -> None:
    reporter.log(f"calirare {__version__}, torch {torch.__version__}, Python {platform.python_version()}")
    reporter.log(f"device {choose_device(outcome.settings.device)}, {torch.get_num_threads()} threads")
    for stage, spent in outcome.seconds.items():
        reporter.log(f"{stage}: {spent:.3f} s")
    reporter.log(f"everything but imports: {seconds:.3f} s")
