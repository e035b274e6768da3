"""Which nodes get an interval where every node's would cost several times what its score does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor

from calirare.calibration import Calibrator, Target
from calirare.graph import Graph
from calirare.leave_one_out import ALO, JackknifeResult, Known, LeaveOneOutMethod, LogitMap, jackknife
from calirare.models import Fitted
from calirare.run.deciding import review_order
from calirare.run.probabilities import Probabilities
from calirare.run.settings import IntervalNodes, Settings
from calirare.run.tables import REVIEWED

MOST = 5_000  # alerts that get an interval, the likeliest
LARGE = 50_000  # nodes from which intervals that take each fold's model are made of no others


def known_logits(
    settings: Settings,
    fitted: Fitted,
    graph: Graph,
    logits: Tensor,
    maps: dict[Target, Calibrator],
    threshold: float | Tensor,
    judged: Tensor | None = None,
    wanted: IntervalNodes = "auto",
) -> Known | None:
    """Returns the nodes that get an interval, and every node's logits; None where all get one.

    Those are the likeliest alerts, the nodes that review.csv begins with, and what the run is judged on. With
    "auto" all nodes get one unless an interval costs as many evaluations as there are folds, and the graph is large or
    evaluated at some nodes at a time.

    Args:
        settings: of the run.
        fitted: the detector.
        graph: the graph.
        logits: of its nodes, [n, k].
        maps: the fitted map of each target.
        threshold: from which P(rare) a node is an alert, likewise of each node [n].
        judged: nodes that get one in any case, int64; None: none.
        wanted: which nodes; "auto": as the settings have it.
    """
    wanted = settings.intervals.interval_nodes if wanted == "auto" else wanted
    cheap = graph.n_nodes < LARGE or fitted.folded is None
    whole = settings.intervals.uncertainty == "midpoint" or (cheap and len(fitted.parts_of(graph)) == 1)
    if wanted == "all" or (wanted == "auto" and whole) or not graph.n_nodes:
        return None
    said = Probabilities.of(logits, maps, settings.calibration.calibrate_for, threshold)
    order = torch.argsort(said.rare, descending=True, stable=True)
    alerts = order[said.alert[order]][: 0 if settings.many else MOST]
    chosen = [alerts, review_order(settings.decision, graph, said, None)[:REVIEWED]]
    nodes = torch.unique(torch.cat(chosen if judged is None else [*chosen, judged]))
    return Known(logits, nodes)


def interval_nodes_for_score(settings: Settings, n: int, wanted: IntervalNodes | None) -> IntervalNodes:
    """Returns which nodes of another graph get an interval: those asked for, else as the run's settings have it.

    Where both leave it open a large graph is scored, and its alerts alone get one: it costs several times a score.

    Args:
        settings: of the run.
        n: nodes of the graph.
        wanted: for this graph; None: as the run's.

    Raises:
        InputError: it is no such word, or the run's uncertainty needs every node's interval.
    """
    chosen = replace(settings.intervals, interval_nodes=wanted or settings.intervals.interval_nodes)
    if chosen.interval_nodes == "auto" and n >= LARGE and chosen.uncertainty != "midpoint":
        return "alerts"
    return chosen.interval_nodes


def interval_notes(result: JackknifeResult) -> list[str]:
    """Returns a sentence for the user where some nodes alone have an interval."""
    if result.ends_of is None:
        return []
    made, n = result.ends_of.numel(), result.lower.numel()
    return [
        f"{made:,} of {n:,} nodes have an interval: the {MOST:,} likeliest alerts at most, those that review.csv "
        "begins with, and labelled and test nodes of the run; --interval-nodes all makes every node's"
    ]


def intervals_of(
    settings: Settings,
    fitted: Fitted,
    graph: Graph,
    maps: dict[Target, Calibrator],
    method: LeaveOneOutMethod,
    **more: Any,
) -> JackknifeResult:
    """Returns the intervals of a run's nodes, see `jackknife`, which takes `more`."""
    return jackknife(
        fitted,
        graph,
        method if fitted.closed_form is not None else ALO(),  # the folds' models answer by themselves
        coverage=settings.intervals.coverage,
        calibrator=cast(LogitMap | None, maps.get(settings.calibration.calibrate_for)),
        uncertainty=settings.intervals.uncertainty,
        population_map=maps.get("population") if settings.calibration.map == "prior" else None,
        **more,
    )
