"""What a run of many classes says of itself: every number of its metrics.json, and its summary for a terminal."""

from __future__ import annotations

import io
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from calirare._util.amounts import listed
from calirare.calibration import TARGETS, Target
from calirare.graph import PARTS
from calirare.run.choice import Choice
from calirare.run.class_judging import RAW, Judged
from calirare.run.class_measures import TOGETHER, rare_among
from calirare.run.result import RunResult
from calirare_ext import __version__


def class_report(outcome: RunResult) -> dict[str, Any]:
    """Returns everything `metrics.json` holds of a run of many classes: plain numbers and strings."""
    graph, settings = outcome.graph, outcome.settings
    names, split = graph.class_names, graph.split
    assert split is not None
    shares = outcome.probabilities("population")[graph.scored_nodes].mean(0).tolist()
    return {
        "task": "classes",
        "graph": {
            "name": graph.name,
            "nodes": graph.n_nodes,
            "directed_edges": graph.n_edges,
            "features": graph.n_features,
            "classes": list(names),
            "split": split.name,
            **{part: int(getattr(split, part).numel()) for part in PARTS},
            "labels_trained_on": int(outcome.fit.nodes.numel()),
        },
        "method": settings.method,
        "model": settings.model,
        "target": settings.calibration.target,
        **judge_of(outcome).measures(names),
        "estimated_shares": dict(zip(names, shares, strict=True)),
        "rare_classes": rare_among(names, shares),
        "agreement": None if outcome.agreement is None else vars(outcome.agreement),
        "calibrators": {str(t): c.state() for t, c in outcome.calibrators.items()},
        "version": __version__,
        "choice": None if outcome.choice is None else outcome.choice.to_mapping(),
        "notes": [*graph.notes, *outcome.notes],
    }


def judge_of(outcome: RunResult) -> Judged:
    """Returns what a run of many classes is judged by."""
    if outcome.judge is not None:
        return outcome.judge
    judged_on, nodes, logits = _judged(outcome)
    sides: dict[str, Target | None] = {RAW: None} | {str(t): t for t in TARGETS if t in outcome.calibrators}
    p = {side: outcome.mapped_logits(logits, t).cpu() for side, t in sides.items()}
    assert outcome.graph.y is not None
    return Judged(judged_on, outcome.graph.y[nodes].cpu(), p)


def _judged(outcome: RunResult) -> tuple[str, Tensor, Tensor]:
    """Returns what the run is judged on ("test" or "leave-one-out"), the nodes, and their logits.

    These are the labelled test nodes; where there is none the labelled nodes, each without its own label.
    """
    split, y, own = outcome.graph.split, outcome.graph.y, outcome.own_logits
    assert split is not None
    assert y is not None
    test = split.test[y[split.test] >= 0]
    if test.numel():
        return "test", test, outcome.logits[test]
    assert own is not None  # the training has refused a run that leaves no label out and has no test nodes
    known = torch.isfinite(own).all(1)
    return "leave-one-out", outcome.fit.nodes[known], own[known]


def class_summary(metrics: dict[str, Any], width: int) -> str:
    """Returns the summary of a run's metrics (`class_report`) for a terminal of some width."""
    out = io.StringIO()
    console = Console(file=out, width=width, markup=False, emoji=False)
    title = (
        f"{metrics['graph']['name']}: {metrics['n_judged']:,} {metrics['judged_on']} nodes of "
        f"{len(metrics['graph']['classes'])} classes"
    )
    console.print(_together(metrics, title), highlight=False)
    console.print(_by_class(metrics), highlight=False)
    lines = ["(floor): what a perfectly calibrated model scores on as many nodes by chance"]
    if len(metrics["report"]) > 1:
        lines.append("* the target of prediction and confidence in predictions.csv; --target takes the other")
    rare = metrics["rare_classes"]
    lines.append(f"rare classes (less than half of an equal share): {listed(rare) if rare else 'none'}")
    if metrics["agreement"] is not None:
        lines.append(f"leave-one-out check: {metrics['agreement']['verdict']} ({metrics['agreement']['reason']})")
    if metrics["choice"] is not None:
        lines += Choice.from_mapping(metrics["choice"]).lines()
    return out.getvalue() + "\n".join([*lines, *(f"note: {note}" for note in metrics["notes"])]) + "\n"


def _together(metrics: dict[str, Any], title: str) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column("measure")
    sides = sorted(metrics["report"], key=lambda side: (side != "raw", side))
    for side in sides:
        star = " *" if side == metrics["target"] else ""
        table.add_column("before" if side == "raw" else side + star, justify="right")
    for key, label in TOGETHER:
        floors = f"{key}_noise_floor" in metrics["report"]["raw"]
        cells = [
            f"{report[key]:.3f}" + (f" ({report[f'{key}_noise_floor']:.3f})" if floors else "")
            for report in (metrics["report"][side] for side in sides)
        ]
        table.add_row(label + (" (floor)" if floors else ""), *cells)
    return table


def _by_class(metrics: dict[str, Any]) -> Table:
    side = metrics["target"] if metrics["target"] in metrics["classes"] else "raw"
    table = Table(title=f"by class, {'before calibration' if side == 'raw' else side}", title_justify="left")
    table.add_column("class")
    for name in ("nodes", "share", "mean P / share", "recall", "precision", "AUPRC", "ECE of P (floor)"):
        table.add_column(name, justify="right")
    for row in metrics["classes"][side]:
        shown = [_number(row[key]) for key in ("mean_p_over_share", "recall", "precision", "auprc")]
        error = f"{row['ece']:.3f} ({row['ece_noise_floor']:.3f})"
        table.add_row(row["name"], f"{row['n']:,}", f"{row['share']:.1%}", *shown, error)
    return table


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
