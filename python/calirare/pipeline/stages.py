"""The main job: train, leave every label out, calibrate, make intervals. Stages are functions of values."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from calirare._util.arrays import all_finite
from calirare._util.device import choose_device
from calirare._util.errors import InputError
from calirare._util.torch_state import named, plain_torch
from calirare.calibration import LEAKS, Calibrator, Target
from calirare.calibration.decisions import fewest_rare
from calirare.datasets import with_task
from calirare.features import FeatureMap
from calirare.graph import Graph, check_graph, check_trainable, known_rare
from calirare.graph.features import scale_note, weights_note
from calirare.graph.splits import split_note
from calirare.intervals import JackknifeResult, Known, LogitMap, Streaming, jackknife, streams
from calirare.leave_one_out import ALO
from calirare.models import DETECTORS, Given, GivenFit
from calirare.pipeline.auto import fit_auto, tree_weights
from calirare.pipeline.calibrators import (
    Maps,
    calibrate,
    calibrate_known,
    check_prevalence,
    out_of_fold_logits,
    rare_left,
    with_known,
)
from calirare.pipeline.classes import check_many, unjudged, with_neighbours
from calirare.pipeline.job import Job, LeftOutLabels, Report, Trained
from calirare.pipeline.left_out import fit_network, leave_labels_out
from calirare.pipeline.no_sample import given_away_classes
from calirare.run import Decided, Outcome, RareView, Settings, check_decision, decided, ignored_settings, known_logits
from calirare.training import Fitted

StreamingMaker = Callable[[Graph, Report], Streaming]
T = TypeVar("T")


@plain_torch()
def train(
    graph: Graph | None = None,
    settings: Settings | None = None,
    *,
    report: Report | None = None,
    streaming: StreamingMaker | None = None,
    given: Given | None = None,
    **changes: Any,
) -> Outcome:
    """Trains and calibrates a detector on a graph: of a rare class, or with `task="classes"` of every class.

    With task "classes" no class is merged with others, and there are no intervals, alerts and decisions.

    Args:
        graph: a graph with labels (`load_dataset`, `Graph.from_data`, ...), one without a split gets one as
            `load_dataset` draws it; None: the settings' data.
        settings: how; None: the defaults.
        report: called as stages proceed: name, steps done, steps in all.
        streaming: makes what evaluates a large graph in blocks, from the graph on its device; None: one without files.
        given: logits of a network of yours; nothing is trained, and the setting model is "given".
        **changes: settings by name, over `settings`; for example `epochs=200, target="population", loo=ALO(steps=5)`.

    Returns:
        The outcome.

    Raises:
        InputError: the graph cannot be trained on, or a setting does not suit it.

    Example:
        >>> import calirare
        >>> outcome = calirare.train(calirare.load_dataset("digits"), epochs=100, folds=0)
        >>> outcome.probabilities("balanced").shape
        torch.Size([1797, 2])
        >>> digits = calirare.load_dataset("digits", task="classes", label_rate=5)
        >>> calirare.train(digits, task="classes", model="gcn", epochs=60, folds=0).probabilities().shape
        torch.Size([1797, 10])
    """
    if settings is not None and not isinstance(settings, Settings):
        raise TypeError(f"train: settings must be Settings, got {type(settings).__name__}: or give them by name")
    if given is not None:
        if not isinstance(given, Given):
            got = type(given).__name__
            raise TypeError(f"train: given must be calirare.models.Given, got {got}: take models.Given(logits)")
        changes["model"] = "given"
    settings = (settings or Settings()).but("train", **changes)
    if graph is None and settings.data.dataset is not None:
        graph = settings.data.load(settings.seed)
    check_graph("train", graph)
    assert isinstance(graph, Graph)
    _check_no_split(graph, changes)
    device = choose_device(settings.device)
    graph, features, mapped = prepared(graph, settings)
    there = mapped.to(device)
    user_graph = there
    if settings.positive_only:
        user_graph = dataclasses.replace(mapped, y=graph.y, split=graph.split, trusted=True).to(device)
    outcome = _run(Job.of(there, settings, report or silent, user_graph, given, graph), streaming)
    return replace(outcome.on_cpu(), graph=graph, features=features, mapped=mapped)


def _check_no_split(graph: Graph, changes: dict[str, Any]) -> None:
    """Checks that a split is asked for by name of graphs alone that have none, or were read as these settings say.

    Raises:
        InputError: it would not be the graph's.
    """
    asked = [name for name in ("split", "label_rate") if changes.get(name) is not None]
    if asked and "dataset" not in changes and graph.split is not None:
        raise InputError(
            f"train: {asked[0]} is for a graph without a split, and graph {graph.name!r} has one: leave it out, or "
            "take graph.with_split"
        )


def prepared(graph: Graph, settings: Settings) -> tuple[Graph, FeatureMap, Graph]:
    """Returns a graph with the task and split that it is trained with, the features' map, and the graph that it makes.

    Raises:
        InputError: the graph cannot be trained on, or a setting does not suit it.
    """
    data = settings.data
    if settings.positive_only:
        graph = known_rare(graph, data.minority)
    else:
        graph = with_task(graph, data.task, settings.seed, data.minority, data.split, data.label_rate)
        check_trainable(graph)
    if settings.many:
        check_many(graph, settings)
    check_decision(settings.decision, settings.method, settings.calibration.map, graph.n_classes)
    graph = graph.to("cpu")
    if not settings.positive_only:
        check_prevalence(graph, settings.calibration.prevalence)
    taught = with_known(graph, settings) if settings.positive_only else graph
    features = _fit_features(taught, settings)
    return graph, features, features.own(taught)


def _fit_features(graph: Graph, settings: Settings) -> FeatureMap:
    """Returns what the features of a run's graph become: fitted on all its nodes, and labels that train."""
    assert graph.split is not None
    nodes, data = graph.split.train, settings.data
    if settings.method == "jackknife":
        nodes = torch.cat([nodes, graph.split.val])
    return FeatureMap.fit(
        graph, data.scale, impute=data.impute, one_hot=data.one_hot, nodes=nodes, seed=settings.seed % 2**32
    )


def silent(stage: str, done: int, total: int) -> None:
    """Reports to nobody."""


@dataclass
class Clock:
    """Wall time of each stage."""

    seconds: dict[str, float] = field(default_factory=dict)

    def time(self, stage: str, work: Callable[[], T]) -> T:
        """Returns what the work returns."""
        started = time.perf_counter()
        with named(stage):
            out = work()
        self.seconds[stage] = time.perf_counter() - started
        return out


def _run(job: Job, streaming: StreamingMaker | None) -> Outcome:
    """Runs every stage."""
    graph, settings, report = job.graph, job.settings, job.report
    clock, evaluator, many = Clock(), None, settings.many
    streamed = not many and settings.model == "gcn" and settings.intervals.interval_nodes != "alerts"
    if streamed and clock.time("prepare", lambda: streams(graph, settings.training.n_layers, graph.n_classes)):
        evaluator = Streaming(graph, report=report) if streaming is None else streaming(graph, report)
    _check_validation(job)
    _check_provable(job)
    trained = clock.time("train", lambda: fit(job))
    if many and settings.method == "jackknife" and graph.n_edges:
        trained = clock.time("neighbours", lambda: with_neighbours(trained, graph))
    fitted = trained.fitted
    progress = partial(job.report, "predict")
    logits = clock.time("predict", lambda: fitted.logits_of(job.graph, progress=progress))
    _check_finite(graph, logits)
    left_out = LeftOutLabels(torch.empty(0, 0), None)
    if not many or settings.method == "jackknife":
        left_out = clock.time("check", lambda: leave_labels_out(job, trained))
        if left_out.partial or many:  # a label without a model calibrates nothing
            job = replace(job, calibration_nodes=job.calibration_nodes & torch.isfinite(left_out.logits).all(1))
    maps = clock.time("calibrate", lambda: _maps(job, fitted, logits, left_out))
    logits = out_of_fold_logits(job, fitted, logits, left_out)
    rare = None if many else _of_rare(job, fitted, left_out, maps, logits, clock, evaluator)
    of_maps = maps.notes if rare else (*(note for note in maps.notes if LEAKS not in note), given_away_classes(job))
    said = [
        _split_note(job.graph) if rare else unjudged(graph),
        scale_note(graph),
        weights_note(job.user_graph),
        *ignored_settings(settings),
        *trained.notes,
        *left_out.notes,
        *of_maps,
        _majority_note(job.user_graph, logits, maps.maps) if rare else "",
        rare.jackknife.note if rare and settings.method == "jackknife" else "",
    ]
    return Outcome(
        graph,
        settings,
        fitted,
        logits,
        left_out.logits if left_out.logits.numel() else None,
        maps.maps,
        rare,
        left_out.agreement,
        list(dict.fromkeys(note for note in said if note)),
        rare.jackknife.facts.damping if rare else left_out.damping or 0.0,
        clock.seconds,
        choice=trained.choice,
        held_out=left_out.held_out,
    )


def _of_rare(
    job: Job,
    fitted: Fitted,
    left_out: LeftOutLabels,
    maps: Maps,
    logits: Tensor,
    clock: Clock,
    evaluator: Streaming | None,
) -> RareView:
    """Returns what there is of a rare class alone: the decision and the intervals."""
    decision = clock.time("decide", lambda: _decide(job, fitted, maps, logits))
    known = _known(job, fitted, left_out, logits, maps.maps, decision)
    result = clock.time("jackknife", lambda: _intervals(job, fitted, left_out, maps.maps, known, evaluator))
    return RareView(result, decision, maps.check, maps.doubt)


def fit(job: Job) -> Trained:
    """Returns the trained detector of the run's kind."""
    settings = job.settings
    if settings.model == "given":
        return Trained(_given(job))
    if settings.model == "auto":
        return fit_auto(job)
    entry = DETECTORS[settings.model]
    if entry.network is not None:
        return fit_network(job)
    detector = entry.make(seed=settings.seed, hops=settings.training.reach)
    return Trained(detector.fit(job.graph, job.nodes, sample_weights=tree_weights(job)))


def _given(job: Job) -> GivenFit:
    """Returns logits that were trained elsewhere."""
    if job.given is None:
        raise InputError(
            "setting model given needs logits: calirare.train(graph, given=calirare.models.Given(logits)) in Python"
        )
    if job.settings.method != "jackknife" or job.settings.positive_only:
        raise InputError("setting model given needs method jackknife and labels of both classes")
    return job.given.fit(job.graph, job.nodes)


def _check_validation(job: Job) -> None:
    """Raises an InputError where the method, or what calibrates, needs validation nodes that there are not."""
    assert job.graph.split is not None
    if job.settings.calibration.calibrate_on == "val" and job.graph.split.val.numel() == 0:
        raise InputError(
            f"graph {job.graph.name!r}: calibrate_on=val needs validation nodes, but the split has none: take auto or "
            "all (command line: --calibrate-on), or put labels drawn at random into the validation part"
        )
    if job.settings.method in ("ts", "calirare") and job.graph.split.val.numel() == 0:
        raise InputError(
            f"graph {job.graph.name!r}: method {job.settings.method} needs validation nodes, but the split has "
            "none: take method jackknife (command line: --method jackknife), which needs none, or split random "
            "(--split random)"
        )


def _check_provable(job: Job) -> None:
    """Raises an InputError where there are fewer rare labels than what the decision has to prove takes at the least."""
    deciding, what = job.settings.decision, job.settings.decision.decide
    if deciding.confidence is None or what not in ("precision", "recall") or job.graph.n_classes != 2:
        return
    at_least = float(getattr(deciding, what))
    assert job.graph.y is not None
    needed, m = fewest_rare(what, at_least, deciding.confidence), int((job.graph.y[job.nodes] == 1).sum())
    if m < needed:
        raise InputError(
            f"a {what} of {at_least:g} cannot be proved with confidence {deciding.confidence:g} by {m} rare labels, "
            f"{needed} are needed at least: lower one of the two, or leave the confidence out"
        )


def _check_finite(graph: Graph, logits: Tensor) -> None:
    """Raises an InputError where logits are not finite."""
    if not all_finite(logits):
        raise InputError(
            f"graph {graph.name!r}: training ran away, the network's outputs are not finite: lower the learning rate "
            "or scale the features"
        )


def _maps(job: Job, fitted: Fitted, logits: Tensor, left_out: LeftOutLabels) -> Maps:
    """Returns the fitted maps."""
    if job.settings.positive_only:
        return calibrate_known(job, fitted, left_out)
    return calibrate(job, fitted, logits, left_out.logits)


def _decide(job: Job, fitted: Fitted, maps: Maps, logits: Tensor) -> Decided:
    """Returns the threshold from which a node is an alert."""
    n_rare, how = int((fitted.targets == 1).sum()), job.settings.decision
    left = rare_left(job.graph, job.settings.calibration.prevalence)
    share = None if left is None or job.settings.positive_only else left.share
    return decided(how, job.user_graph, logits, maps.maps, maps.labelled, n_rare, share)


def _known(
    job: Job,
    fitted: Fitted,
    left_out: LeftOutLabels,
    logits: Tensor,
    maps: dict[Target, Calibrator],
    decision: Decided,
) -> Known | None:
    """Returns the nodes that get an interval; None where all do, as of labels left out at every node."""
    split = job.user_graph.split
    assert split is not None
    if left_out.result is not None:
        return None
    judged = torch.cat([fitted.nodes, split.test])
    return known_logits(job.settings, fitted, job.user_graph, logits, maps, decision.threshold, judged)


def _intervals(
    job: Job,
    fitted: Fitted,
    left_out: LeftOutLabels,
    calibrators: dict[Target, Calibrator],
    known: Known | None,
    evaluator: Streaming | None,
) -> JackknifeResult:
    settings = job.settings
    method = replace(settings.leave_one_out, damping=left_out.damping)
    return jackknife(
        fitted,
        job.graph,
        method if fitted.closed_form is not None else ALO(),  # the folds' models answer by themselves
        coverage=settings.intervals.coverage,
        calibrator=cast(LogitMap | None, calibrators.get(settings.calibration.target)),
        result=left_out.result,
        uncertainty=settings.intervals.uncertainty,
        population_map=calibrators.get("population") if settings.calibration.map == "prior" else None,
        calibration_nodes=job.calibration_nodes,
        evaluator=evaluator,
        known=known,
    )


def _split_note(graph: Graph) -> str:
    """Returns a sentence where too few labels are rare to hold any out."""
    assert graph.y is not None
    assert graph.split is not None
    return split_note(graph.split, int((graph.y == 1).sum()))


def _majority_note(graph: Graph, logits: Tensor, maps: dict[Target, Calibrator]) -> str:
    """Returns a sentence where most nodes are expected to be of the rare class: another one may have been meant."""
    if "population" not in maps or graph.n_classes != 2:
        return ""
    p = maps["population"].transform(logits[graph.scored_nodes].double())[:, 1]
    mean = float(p.mean())
    if mean <= 0.5:
        return ""
    return (
        f"{graph.class_names[1]!r}, the rare class, is expected to be {mean:.0%} of the nodes: if another class is "
        "meant, name it with graph.rare(NAME) (command line: --minority NAME)"
    )
