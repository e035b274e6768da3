"""Labels in order of time: what each period shows of P(rare), and whether other nodes are later."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from calirare.calibration import Calibrator, Target, period_spans
from calirare.graph import Graph, newest_first
from calirare.run.parties import party_groups
from calirare.run.probabilities import p_rare
from calirare.run.verdict import Evidence

LATER = 0.95  # of the labels that calibrate, than which most other nodes are later


class ByTime(NamedTuple):
    """Labelled nodes, the oldest first: int64 [m], their P(rare) without their labels, which are rare, which tested."""

    nodes: Tensor
    p: Tensor
    rare: Tensor
    test: Tensor


def are_later(graph: Graph, nodes: Tensor) -> bool:
    """Returns whether nodes are later than the labels that calibrate; no where there is no time."""
    split = graph.split
    if graph.time is None or split is None or not nodes.numel():
        return False
    own = split.val if split.val.numel() else split.train
    return bool(graph.time[nodes].nanmedian() > graph.time[own].quantile(LATER))


def newest(graph: Graph) -> Tensor:
    """Returns the scored nodes that are no older than the labels that calibrate, int64; all where there is no time."""
    nodes, split = graph.scored_nodes, graph.split
    if graph.time is None or split is None or not split.val.numel():
        return nodes
    return nodes[~(graph.time[nodes] < graph.time[split.val].min())]


def labels_by_time(
    graph: Graph, nodes: Tensor, own_logits: Tensor | None, logits: Tensor, calibrators: dict[Target, Calibrator]
) -> ByTime | None:
    """Returns labels in order of time, those that trained by models without them; None where there is no time.

    Args:
        graph: the graph.
        nodes: that trained, int64 [m].
        own_logits: theirs by models without each, [m, k], NaN where there is none; None: of all there is none.
        logits: of every node, [n, k].
        calibrators: the fitted calibrator of each target.
    """
    if graph.time is None or graph.split is None or graph.y is None or own_logits is None:
        return None
    known, test = torch.isfinite(own_logits).all(1), graph.split.test[graph.y[graph.split.test] >= 0]
    every = torch.cat([nodes[known], test])
    p = p_rare(torch.cat([own_logits[known].double(), logits[test].double()]), calibrators).detach()
    tested = torch.arange(len(every), device=every.device) >= len(every) - len(test)
    order = newest_first(graph.time[every]).flip(0).to(every.device)
    return ByTime(every[order], p[order], graph.y[every[order]] == 1, tested[order])


def periods(graph: Graph, labels: ByTime | None) -> list[dict[str, Any]]:
    """Returns predicted over observed rare nodes in spans of time with as many labels each; none without times."""
    rows = list[dict[str, Any]]()
    for span in [] if labels is None else map(torch.from_numpy, period_spans(len(labels.nodes))):
        assert labels is not None
        assert graph.time is not None
        nodes = labels.nodes[span]
        y, groups = labels.rare[span].long().numpy(), party_groups(graph, nodes.cpu().numpy())
        found = Evidence.of("test nodes", y, labels.p[span].numpy(), groups=groups)
        ends = graph.time[nodes]
        row = {"from": float(ends.min()), "to": float(ends.max()), "test": int(labels.test[span].sum())}
        names = ("nodes", "rare", "predicted", "ratio", "low", "high")
        rows.append(row | {name: getattr(found, name) for name in names})
    return rows
