"""`calirare train`: the main job, from a data set to a run's folder."""

from __future__ import annotations

import dataclasses
import platform
import time
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from calirare._util.console import Reporter
from calirare._util.device import choose_device
from calirare._util.errors import InputError
from calirare._util.output import fresh_folder
from calirare.graph import Graph
from calirare.leave_one_out import Streaming
from calirare.run import LABELS, Outcome, Report, Settings, read_yaml, train, typed
from calirare_ext import __version__


def run(
    settings: dict[str, Any], out: Path, assignments: list[str], config: Path | None = None, overwrite: bool = False
) -> None:
    """Trains on a data set, writes the run's folder and prints what calibration did.

    Args:
        settings: by their short names; they win over the file's.
        out: the run's folder.
        assignments: any settings, as "loo.damping=0.01"; they win over both.
        config: YAML file with settings.
        overwrite: replace a folder that is there.

    Raises:
        InputError: the data set, a setting or the folder cannot be used; nothing is left behind.
    """
    base = Settings() if config is None else _settings_of(config)
    chosen = base.but("command line", **settings)
    chosen = chosen.but("--set", **typed(chosen, assignments, "--set"))
    if chosen.data.dataset is None:
        chosen = chosen.but("command line", dataset="digits")
    if out.name in ("", ".."):
        raise InputError(f"train: --out must name a folder of its own, such as runs/run, got {str(out)!r}")
    outcome, names = _run(chosen, out, overwrite=overwrite)
    console = Console()
    print(outcome.summary(console.width if console.is_terminal else 120), end="")
    for name in names:
        print(out / name)


def _settings_of(config: Path) -> Settings:
    """Returns the settings of a file; labels of an updated run lie next to it, wherever its folder was moved to."""
    base = Settings.from_mapping(read_yaml(config), f"config {config}")
    named, beside = base.data.relabel, config.parent / LABELS
    if named is None or Path(named).is_file() or Path(named).name != LABELS or not beside.is_file():
        return base
    return dataclasses.replace(base, data=dataclasses.replace(base.data, relabel=str(beside.resolve())))


def _run(settings: Settings, out: Path, *, overwrite: bool) -> tuple[Outcome, list[str]]:
    """Returns the outcome, and the names of the files written of it."""
    started = time.perf_counter()
    held: list[Streaming] = []

    def streaming(graph: Graph, report: Report) -> Streaming:
        held.append(Streaming(graph, out.with_name(f".{out.name}.blocks"), report=report))
        return held[0]

    with fresh_folder(out, overwrite=overwrite) as folder, Reporter() as reporter:
        graph = settings.data.load(settings.seed)
        reporter.say(str(graph))
        if settings.loo.name == "retrain":
            reporter.say(_warning(graph, settings))
        outcome = train(graph, settings, report=reporter, streaming=streaming)
        notes = outcome.metrics["notes"]
        if held and held[0].resumed:
            reporter.say("resumed: finished blocks of nodes of an earlier start were taken")
        for line in outcome.features.log if outcome.features is not None else ():
            reporter.say(f"features: {line}")
        for note in notes:
            reporter.log(f"note: {note}")  # the summary shows it
        outcome.write(folder)
        _log(reporter, outcome, time.perf_counter() - started)
        (folder / "log.txt").write_text("\n".join(reporter.lines) + "\n", encoding="utf-8")
        names = sorted(path.name for path in folder.iterdir())
    for evaluator in held:
        evaluator.finish()
    return outcome, names


def _warning(graph: Graph, settings: Settings) -> str:
    """Returns what a user should know before every label's network is trained again."""
    split = graph.split
    assert split is not None
    m = split.train.numel() + (split.val.numel() if settings.method == "jackknife" else 0)
    m = min(m, getattr(settings.loo, "n_models", None) or m)
    return (
        f"note: loo.method retrain trains the network again without each of {m:,} labels, in seconds to minutes "
        "each; `calirare loo-check` does so for 30 labels of a run that was trained with another method"
    )


def _log(reporter: Reporter, outcome: Outcome, seconds: float) -> None:
    reporter.log(f"calirare {__version__}, torch {torch.__version__}, Python {platform.python_version()}")
    reporter.log(f"device {choose_device(outcome.settings.device)}, {torch.get_num_threads()} threads")
    for stage, spent in outcome.seconds.items():
        reporter.log(f"{stage}: {spent:.3f} s")
    reporter.log(f"everything but imports: {seconds:.3f} s")
