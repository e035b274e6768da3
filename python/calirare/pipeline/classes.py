"""Many classes as they are: train, leave every label out, calibrate, with no class made the rare one."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor

from calirare._util.device import choose_device
from calirare._util.errors import InputError
from calirare._util.torch_state import plain_torch
from calirare.calibration import AWAY
from calirare.datasets import with_task
from calirare.graph import Graph, check_graph, check_trainable, scale_note, weights_note
from calirare.models import NeighbourPool
from calirare.pipeline.job import Job, Report, Trained
from calirare.pipeline.left_out import leave_labels_out
from calirare.pipeline.maps import calibrate
from calirare.pipeline.no_sample import given_away_classes
from calirare.pipeline.stages import Clock, check_finite, check_no_split, check_validation, fit, fit_features, silent
from calirare.run import ClassesOutcome, Deciding, Settings, ignored_settings
from calirare.training import FoldFitted


@plain_torch()
def train_classes(
    graph: Graph | None = None,
    settings: Settings | None = None,
    *,
    report: Report | None = None,
    **changes: Any,
) -> ClassesOutcome:
    """Trains and calibrates a detector of every class of a graph.

    As `train`, but no class is merged with others, and there are no intervals: what it returns are calibrated
    probabilities of every class.

    Args:
        graph: a graph with two classes or more, one without a split gets one; None: the settings' data.
        settings: how; None: the defaults.
        report: called as stages proceed: name, steps done, steps in all.
        **changes: settings by name, over `settings`, such as `model="gcn"`.

    Returns:
        The outcome.

    Raises:
        InputError: the graph cannot be trained on, or a setting belongs to a rare class.

    Example:
        >>> import calirare
        >>> graph = calirare.load_dataset("digits", task="classes", label_rate=5)
        >>> outcome = calirare.train_classes(graph, model="gcn", epochs=60, folds=0)
        >>> outcome.probabilities("population").shape
        torch.Size([1797, 10])
    """
    settings = (settings or Settings()).but("train_classes", **changes)
    if graph is None and settings.data.dataset is not None:
        settings = dataclasses.replace(settings, data=dataclasses.replace(settings.data, task="classes"))
        graph = settings.data.load(settings.seed)
    check_graph("train_classes", graph)
    assert isinstance(graph, Graph)
    check_no_split("train_classes", graph, changes)
    graph = with_task(graph, "classes", settings.seed, split=settings.data.split, label_rate=settings.data.label_rate)
    _check(graph, settings)
    device = choose_device(settings.device)
    graph = graph.to("cpu")
    features = fit_features(graph, settings)
    outcome = _run(features.own(graph).to(device), settings, report or silent, graph)
    return dataclasses.replace(outcome.on_cpu(), graph=graph, features=features)


def _run(mapped: Graph, settings: Settings, report: Report, raw: Graph) -> ClassesOutcome:
    """Runs every stage on a graph whose features are mapped; `raw` is the one that was given."""
    clock, job = Clock(), Job.of(mapped, settings, report, raw=raw, kind=_second(mapped))
    check_validation(job)
    trained = clock.time("train", lambda: fit(job))
    if settings.method == "jackknife" and mapped.n_edges:
        trained = clock.time("neighbours", lambda: _with_neighbours(trained, mapped))
    logits = clock.time("predict", lambda: trained.fitted.logits_of(mapped))
    check_finite(mapped, logits)
    own, left_out, notes = None, None, tuple[str, ...]()
    if settings.method == "jackknife":
        left_out = clock.time("check", lambda: leave_labels_out(job, trained))
        own, notes = left_out.logits, left_out.notes
        job = dataclasses.replace(job, calibration_nodes=job.calibration_nodes & torch.isfinite(own).all(1))
    maps = clock.time("calibrate", lambda: calibrate(job, trained.fitted, logits, _or_empty(own)))
    said = [*mapped.notes, _unjudged(mapped), scale_note(mapped), weights_note(mapped), *ignored_settings(settings)]
    told = [note for note in maps.notes if AWAY not in note]  # of the second class alone: each class is told of below
    said += [*trained.notes, *notes, *told, given_away_classes(job)]
    return ClassesOutcome(
        mapped,
        settings,
        trained.fitted,
        logits,
        own,
        maps.maps,
        left_out.agreement if left_out else None,
        list(dict.fromkeys(note for note in said if note)),
        left_out.damping or 0.0 if left_out else 0.0,
        left_out.held_out if left_out else None,
        clock.seconds,
        trained.choice,
    )


def _second(graph: Graph) -> str:
    """Returns the name of the second class."""
    return graph.class_names[1] if graph.class_names else "1"


def _unjudged(graph: Graph) -> str:
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


def _with_neighbours(trained: Trained, graph: Graph) -> Trained:
    """Returns a detector that has folds with a node's neighbours asked too, and a note of how much they count."""
    if not isinstance(trained.fitted, FoldFitted):
        return trained
    pool = NeighbourPool.of(trained.fitted, graph)
    return dataclasses.replace(trained, fitted=pool, notes=(*trained.notes, pool.sentence))


def _or_empty(own: Tensor | None) -> Tensor:
    """Returns leave-one-out logits; of a method that takes none, none."""
    return torch.empty(0, 0) if own is None else own


def _check(graph: Graph, settings: Settings) -> None:
    """Checks that nothing is asked for that belongs to a rare class."""
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
