"""The pictures of a run: reliability before and after calibration, of P(rare), detection, and intervals."""

from __future__ import annotations

import math
from pathlib import Path

import torch

from calirare.calibration import PriorPlattCalibrator, budget_curve
from calirare.plots import (
    Panel,
    budget_diagram,
    confidence_panel,
    interval_diagram,
    precision_recall_diagram,
    rare_reliability_diagram,
    reliability_diagram,
)
from calirare.run.deciding import nodes_to_decide
from calirare.run.probabilities import p_rare
from calirare.run.rare_class import KNOWN_OR_DRAWN, judged_labels, judging_maps
from calirare.run.report import evaluated_logits, evaluated_nodes, judged_rare
from calirare.run.result import RunResult

DRAWN = 20_000  # nodes in reliability and intervals; of more a sample is drawn, and the picture says so


def draw(outcome: RunResult, folder: Path) -> None:
    """Draws `reliability.png`, `intervals.png`, `precision_recall.png` and `p_rare.png` of the judged nodes.

    And `budget.png` of the nodes decided on, where the uncertainty of P(rare) is known.
    """
    _draw_confidence(outcome, folder)
    _draw_rare(outcome, folder)
    if outcome.decision.expected is not None:
        _draw_budget(outcome, folder)


def _draw_budget(outcome: RunResult, folder: Path) -> None:
    fitted, decision, y = outcome.calibrators["population"], outcome.decision, outcome.graph.y
    assert isinstance(fitted, PriorPlattCalibrator)
    assert y is not None
    nodes, on = nodes_to_decide(outcome.graph)
    curve = budget_curve(fitted, outcome.logits[nodes])
    known = (y[nodes] == 1).cpu().numpy() if on == "held-out" else None
    title = (
        f"{outcome.graph.name}: {outcome.graph.class_names[1]} found by a budget of alerts ({len(nodes):,} {on} nodes)"
    )
    budget_diagram(curve, folder / "budget.png", rare=known, chosen=decision.alerts, title=title)


def _draw_rare(outcome: RunResult, folder: Path) -> None:
    data, rare = judged_rare(outcome), outcome.graph.class_names[1]
    rare = f"known {rare}" if data.on == KNOWN_OR_DRAWN else rare
    y, where = (data.labels == 1).long(), f"({data.labels.numel():,} {data.on} nodes)"
    titles = {s: "before calibration" if s == "raw" else f"after, target {s}" for s in data.probabilities}
    panels = {side: Panel(titles[side], y, p[:, 1]) for side, p in data.probabilities.items()}
    _, draws = data.draws
    title = f"{outcome.graph.name}: is P({rare}) right? {where}"
    path = folder / "p_rare.png"
    rare_reliability_diagram(list(panels.values()), path, event=rare, n_draws=draws, title=title)
    chosen = panels["population" if "population" in panels else "raw"]
    if data.on == "test":  # in double precision as the decision is made: a node may lie at its threshold
        chosen = chosen._replace(p=p_rare(outcome.logits[data.nodes], outcome.calibrators).detach().cpu())
    title = f"{outcome.graph.name}: finding {rare} {where}"
    operating = _below(outcome.decision.threshold)
    precision_recall_diagram([chosen], folder / "precision_recall.png", threshold=operating, n_draws=draws, title=title)


def _below(threshold: float) -> float | None:
    """Returns the largest number below a threshold: the picture's alerts lie above; None where there is no alert."""
    return math.nextafter(threshold, 0.0) if threshold <= 1 else None


def _draw_confidence(outcome: RunResult, folder: Path) -> None:
    judged_on, nodes = evaluated_nodes(outcome)
    logits = evaluated_logits(outcome, judged_on, nodes).cpu()
    labels = judged_labels(outcome, judged_on, nodes).cpu()
    maps = judging_maps(outcome, judged_on, logits)
    if nodes.numel() > DRAWN:
        order = torch.randperm(nodes.numel(), generator=torch.Generator().manual_seed(0))[:DRAWN].sort().values
        judged_on = f"{DRAWN:,} random ones of {nodes.numel():,} {judged_on}"
        nodes, logits, labels = nodes[order.to(nodes.device)], logits[order], labels[order]
    target, result = outcome.settings.calibration.target, outcome.jackknife
    before = torch.softmax(logits, 1)
    sides = [("before calibration", before)]
    if target in maps:
        sides.append((f"after, target {target}", maps[target].transform(logits)))
    rare = outcome.graph.class_names[1]
    panels = [confidence_panel(f"all nodes, {side}", labels, p) for side, p in sides]
    panels += [confidence_panel(f"nodes of {rare}, {side}", labels, p, cls=1) for side, p in sides]
    title = f"{outcome.graph.name}: is the predicted class right as often as it says? ({judged_on} nodes)"
    reliability_diagram(panels, folder / "reliability.png", n_columns=len(sides), title=title)
    chosen = outcome.probabilities(target)[:, 1]
    lower, upper = result.lower[nodes].cpu(), result.upper[nodes].cpu()
    interval_diagram(
        labels,
        chosen[nodes].detach().cpu(),
        torch.minimum(lower, upper),  # the convention "paper" turns intervals upside down
        torch.maximum(lower, upper),
        folder / "intervals.png",
        class_names=(outcome.graph.class_names[0], rare),
        title=f"{outcome.graph.name}: P({rare}) with its {result.coverage:.0%} jackknife interval ({judged_on} nodes)",
    )
