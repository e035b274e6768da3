"""`calirare train`: the main job, from a data set to a run's folder."""

from __future__ import annotations

import platform
import sys
import time
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from calirare._util.console import Reporter
from calirare._util.device import choose_device
from calirare._util.errors import InputError
from calirare._util.output import fresh_folder
from calirare._util.ranks import Ranks, join
from calirare._util.startup import leave
from calirare.datasets import load_dataset
from calirare.graph import Graph
from calirare.intervals import Streaming, streams
from calirare.pipeline import Report, train
from calirare.plots import confidence_panel, interval_diagram, reliability_diagram
from calirare.run import Outcome, Settings, write_json
from calirare.run.folder import save_model, write_config
from calirare.run.report import judge, judged_logits, judged_nodes
from calirare.run.tables import write_review, write_table
from calirare_ext import __version__

ROWS = (
    ("recall", "recall of the rare class"),
    ("precision", "precision of the rare class"),
    ("macro_f1", "macro-F1"),
    ("ace_minority", "ACE of the rare class"),
    ("macro_ace", "Macro-ACE"),
    ("ece", "ECE"),
    ("nll", "NLL"),
    ("brier", "Brier score"),
)
DRAWN = 20_000  # nodes in a picture; of more a sample is drawn, and the picture says so
FLOORS = {"ace_minority", "macro_ace", "ece"}


def run_train(data: dict[str, Any], settings: Settings, out: Path, *, overwrite: bool) -> None:
    """Trains on a data set, writes the run's folder and prints what calibration did.

    Args:
        data: keywords of `load_dataset` under its names, `dataset` for the name.
        settings: how to train.
        out: the run's folder.
        overwrite: replace a folder that is there.

    Raises:
        InputError: the data set, a setting or the folder cannot be used; nothing is left behind.
    """
    started = time.perf_counter()
    if out.name in ("", ".."):
        raise InputError(f"train: --out must name a folder of its own, such as runs/run, got {str(out)!r}")
    ranks = join(settings.device)
    blocks = out.with_name(f".{out.name}.blocks")
    try:
        if ranks.rank > 0:
            _serve(data, settings, blocks, ranks)
            return
        with fresh_folder(out, overwrite=overwrite) as folder, Reporter() as reporter:
            graph = _load(data)
            reporter.say(str(graph))
            if settings.loo == "retrain" and settings.convention == "corrected":
                reporter.say(_warning(graph, settings))
            held: list[Streaming] = []

            def streaming(graph: Graph, report: Report) -> Streaming:
                held.append(Streaming(graph, blocks, ranks=ranks, report=report))
                return held[0]

            outcome = train(graph, settings, report=reporter, streaming=streaming)
            metrics = judge(outcome)
            if held and held[0].resumed:
                reporter.say("resumed: finished blocks of nodes of an earlier start were taken")
            if ranks.size > 1 and not held:
                reporter.say(f"note: the graph is too small to share, one of {ranks.size} processes did all the work")
            ranks.send(None)
            for note in metrics["notes"]:
                reporter.say(f"note: {note}")
            _write(outcome, data, metrics, folder)
            _log(reporter, outcome, time.perf_counter() - started)
            (folder / "log.txt").write_text("\n".join(reporter.lines) + "\n", encoding="utf-8")
            names = sorted(path.name for path in folder.iterdir())
        for evaluator in held:
            evaluator.finish()
    except SystemExit:
        if ranks.size > 1:  # the launcher stops every process when one has ended
            print(
                f"calirare: rank {ranks.rank} was stopped, because another process of the job ended or the job was "
                "cancelled: start the same command again, finished blocks are kept",
                file=sys.stderr,
            )
        raise
    finally:
        leave()
    print_summary(outcome, metrics)
    for name in names:
        print(out / name)


def _load(data: dict[str, Any]) -> Graph:
    options = {name: value for name, value in data.items() if name not in ("dataset", "root")}
    return load_dataset(data["dataset"], data["root"], **options)


def _warning(graph: Graph, settings: Settings) -> str:
    """Returns what a user should know before every label's network is trained again."""
    split = graph.split
    assert split is not None
    m = split.train.numel() + (split.val.numel() if settings.method == "jackknife" else 0)
    return (
        f"note: --loo retrain trains the network again without each of {m:,} labels, which takes seconds to minutes "
        "each; `calirare loo-check` does so for 30 labels of a run that was trained with another --loo"
    )


def _serve(data: dict[str, Any], settings: Settings, blocks: Path, ranks: Ranks) -> None:
    """Evaluates blocks of nodes for rank 0."""
    graph = _load(data).to(choose_device(settings.device))
    if streams(graph, settings.n_layers, graph.n_classes):
        Streaming(graph, blocks, ranks=ranks).serve()
    else:
        ranks.receive()


def _write(outcome: Outcome, data: dict[str, Any], metrics: dict[str, Any], folder: Path) -> None:
    """Writes what a run's folder holds, its log aside."""
    graph = outcome.graph
    write_config(outcome, data, folder / "config.yaml")
    write_json(metrics, folder / "metrics.json")
    chosen = outcome.probabilities(outcome.settings.target)
    raw = outcome.probabilities()[:, 1]
    write_table(graph, raw, chosen, outcome.jackknife, graph.split, folder)
    write_review(graph, raw, chosen, outcome.jackknife, graph.split, folder)
    save_model(outcome, folder / "model.safetensors")
    draw(outcome, folder)


def draw(outcome: Outcome, folder: Path) -> None:
    """Draws `reliability.png` and `intervals.png` of the judged nodes."""
    judged_on, nodes = judged_nodes(outcome)
    logits = judged_logits(outcome, judged_on, nodes).cpu()
    if nodes.numel() > DRAWN:
        order = torch.randperm(nodes.numel(), generator=torch.Generator().manual_seed(0))[:DRAWN].sort().values
        judged_on = f"{DRAWN:,} random ones of {nodes.numel():,} {judged_on}"
        nodes, logits = nodes[order.to(nodes.device)], logits[order]
    y = outcome.graph.y
    assert y is not None
    labels, result = y[nodes].cpu(), outcome.jackknife
    before = torch.softmax(logits, 1)
    sides = [("before calibration", before)]
    if outcome.calibrator is not None:
        sides.append((f"after, target {outcome.settings.target}", outcome.calibrator.transform(logits)))
    rare = outcome.graph.class_names[1]
    panels = [confidence_panel(f"all nodes, {side}", p, labels) for side, p in sides]
    panels += [confidence_panel(f"nodes of {rare}, {side}", p, labels, cls=1) for side, p in sides]
    title = f"{outcome.graph.name}: is the predicted class right as often as it says? ({judged_on} nodes)"
    reliability_diagram(panels, folder / "reliability.png", n_columns=len(sides), title=title)
    chosen = outcome.probabilities(outcome.settings.target)[:, 1]
    lower, upper = result.lower[nodes].cpu(), result.upper[nodes].cpu()
    interval_diagram(
        torch.minimum(lower, upper),  # the convention "paper" turns intervals upside down
        torch.maximum(lower, upper),
        chosen[nodes].detach().cpu(),
        labels,
        folder / "intervals.png",
        class_names=(outcome.graph.class_names[0], rare),
        title=f"{outcome.graph.name}: P({rare}) with its {result.coverage:.0%} jackknife interval ({judged_on} nodes)",
    )


def print_summary(outcome: Outcome, metrics: dict[str, Any]) -> None:
    """Prints the table before and after calibration."""
    facts, target = metrics["graph"], metrics["target"]
    sides = [("raw", "before")]
    for name in metrics["report"]:
        if name != "raw":
            sides.append((name, f"after, {name}" + (" *" if name == target else "")))
    judged = f"{metrics['n_judged']:,} {metrics['judged_on']} nodes, {metrics['n_judged_rare']} of them rare"
    table = Table(title=f"{facts['name']}: {judged}", title_justify="left")
    table.add_column("measure")
    for _, title in sides:
        table.add_column(title, justify="right")
    for key, label in ROWS:
        cells = []
        for side, _ in sides:
            report = metrics["report"][side]
            floor = f" (floor {report[key + '_noise_floor']:.3f})" if key in FLOORS else ""
            cells.append(f"{report[key]:.3f}{floor}")
        table.add_row(label, *cells)
    eice = metrics["eice"]
    table.add_row("EICE, all nodes", *(f"{eice[side]:.3f}" if side in eice else "" for side, _ in sides))
    console = Console(width=None if Console().is_terminal else 120, markup=False, emoji=False)
    console.print(table, highlight=False)
    print("floor: what a perfectly calibrated model scores on as many nodes by chance")
    if len(sides) > 1:
        print(f"* the probabilities in predictions.csv (target {target}); the other target: --target")
    covered = metrics["interval_coverage"]
    shown = ", ".join(f"{name} {covered[name]:.1%}" for name in ("all", "rare", "rest") if covered[name] is not None)
    print(f"intervals hold the label: {shown} (wanted {covered['wanted']:.0%})")
    if metrics["agreement"] is not None:
        print(f"leave-one-out check: {metrics['agreement']['verdict']} ({metrics['agreement']['reason']})")
    for note in metrics["notes"]:
        print(f"note: {note}")


def _log(reporter: Reporter, outcome: Outcome, seconds: float) -> None:
    reporter.log(f"calirare {__version__}, torch {torch.__version__}, Python {platform.python_version()}")
    reporter.log(f"device {outcome.graph.device}, {torch.get_num_threads()} threads")
    for stage, spent in outcome.seconds.items():
        reporter.log(f"{stage}: {spent:.3f} s")
    reporter.log(f"everything but imports: {seconds:.3f} s")
