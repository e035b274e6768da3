"""The pictures of a run: reliability before and after calibration, and intervals."""

from __future__ import annotations

from pathlib import Path

import torch

from calirare.plots import confidence_panel, interval_diagram, reliability_diagram
from calirare.run.report import evaluated_logits, evaluated_nodes
from calirare.run.result import RunResult

DRAWN = 20_000  # nodes in a picture; of more a sample is drawn, and the picture says so


def draw(outcome: RunResult, folder: Path) -> None:
    """Draws `reliability.png` and `intervals.png` of the nodes the run is judged on."""
    judged_on, nodes = evaluated_nodes(outcome)
    logits = evaluated_logits(outcome, judged_on, nodes).cpu()
    if nodes.numel() > DRAWN:
        order = torch.randperm(nodes.numel(), generator=torch.Generator().manual_seed(0))[:DRAWN].sort().values
        judged_on = f"{DRAWN:,} random ones of {nodes.numel():,} {judged_on}"
        nodes, logits = nodes[order.to(nodes.device)], logits[order]
    y, target = outcome.graph.y, outcome.settings.calibration.target
    assert y is not None
    labels, result = y[nodes].cpu(), outcome.jackknife
    before = torch.softmax(logits, 1)
    sides = [("before calibration", before)]
    if outcome.calibrator is not None:
        sides.append((f"after, target {target}", outcome.calibrator.transform(logits)))
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
