"""What is other where many classes are taken as they are, and none is made the rare one."""

from __future__ import annotations

import dataclasses

import torch

from calirare._util.errors import InputError
from calirare.graph import Graph, check_trainable
from calirare.models import NeighbourPool
from calirare.pipeline.job import Trained
from calirare.run import Deciding, Settings


def unjudged(graph: Graph) -> str:
    """Returns a sentence where test nodes have labels, but none of some class, of which nothing is measured."""
    assert graph.split is not None
    assert graph.y is not None
    tested = graph.y[graph.split.test]
    counts = torch.bincount(tested[tested >= 0], minlength=graph.n_classes)
    none, k = int((counts == 0).sum()), graph.n_classes
    if not none or none == k:
        return ""
    return (
        f"of {none:,} of the {k:,} classes no test node has a label, so that nothing is measured of them: with --split "
        "all every label trains, and is judged without itself"
    )


def with_neighbours(trained: Trained, graph: Graph) -> Trained:
    """Returns a detector that has folds with a node's neighbours asked too, and a note of how much they count."""
    folded = trained.fitted.folded
    if folded is None:
        return trained
    pool = NeighbourPool.of(folded, graph)
    return dataclasses.replace(trained, fitted=pool, notes=(*trained.notes, pool.sentence))


def check_many(graph: Graph, settings: Settings) -> None:
    """Checks that a graph can be trained on with every class as it is, and nothing is asked for of a rare class.

    Raises:
        InputError: it cannot, or a setting is for a rare class.
    """
    check_trainable(graph)
    where = f"graph {graph.name!r}, task classes"
    if graph.original_y is not None:
        raise InputError(
            f"{where}: its classes were merged into {graph.class_names[1]!r} and the rest: give the graph before "
            "`rare`, or load it with task='classes'"
        )
    if settings.method == "calirare":
        raise InputError(f"{where}: method calirare is for a rare class: take method jackknife, ts or uncalibrated")
    if settings.decision != Deciding():
        raise InputError(f"{where}: settings of the decision are for a rare class: leave them out")
    if settings.calibration.prevalence is not None:
        raise InputError(f"{where}: prevalence is that of a rare class: leave it out")
    split = graph.split
    assert split is not None
    assert graph.y is not None
    if settings.method != "jackknife" and not bool((graph.y[split.test] >= 0).any()):
        raise InputError(
            f"{where}: method {settings.method} leaves no label out, so it needs labelled test nodes to be judged on, "
            "but the split has none: take method jackknife, or put some into the test part"
        )
