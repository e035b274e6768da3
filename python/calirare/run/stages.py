"""The main job: train, leave every label out, calibrate, make intervals. Stages are functions of values."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor

from calirare._util.arrays import all_finite
from calirare._util.device import choose_device
from calirare._util.errors import InputError
from calirare._util.torch_state import named, plain_torch
from calirare.calibration import Calibrator, Target
from calirare.calibration.decisions import Labelled
from calirare.graph import Graph, check_graph
from calirare.graph.features import weights_note
from calirare.graph.splits import split_note
from calirare.leave_one_out import JackknifeResult, Streaming, streams
from calirare.models import DETECTORS, Given, NeighbourPool
from calirare.run.auto import fit_auto, tree_weights
from calirare.run.calibrators import Calibrated, calibrate, out_of_fold_logits
from calirare.run.data import OutOfFold, Report, Trained, TrainingData, prepare
from calirare.run.deciding import Decided, decided
from calirare.run.interval_nodes import intervals_of, known_logits
from calirare.run.left_out import fit_network, leave_labels_out
from calirare.run.outcome import Outcome
from calirare.run.periods import are_later, labels_by_time
from calirare.run.ranges import ranges_of
from calirare.run.report import judge
from calirare.run.result import RareView
from calirare.run.settings import Settings
from calirare.run.unused import ignored_settings
from calirare.transactions import Transactions

T = TypeVar("T")


@plain_torch()
def train(
    graph: Graph | Transactions | None = None,
    settings: Settings | None = None,
    *,
    report: Report | None = None,
    given: Given | None = None,
    **changes: Any,
) -> Outcome:
    """Trains and calibrates a detector on a graph: of a rare class, or with `task="classes"` of every class.

    With task "classes" no class is merged with others, and there are no intervals, alerts and decisions.

    Args:
        graph: a graph with labels (`load_dataset`, `Graph.from_data`, ...), one without a split gets one as
            `load_dataset` draws it; or `Transactions`, split by time; None: the settings' data.
        settings: how; None: the defaults.
        report: called as stages proceed: name, steps done, steps in all.
        given: logits of a network of yours; nothing is trained, and the setting model is "given".
        **changes: settings by name, over `settings`; for example `epochs=200, calibrate_for="balanced", loo="grouped"`.

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
    if isinstance(graph, Transactions) or (settings.data.transactions is not None and graph is None):
        graph, read = settings.data.read_transactions(graph)
        settings = replace(settings, data=read)
    elif graph is None and settings.data.dataset is not None:
        graph = settings.data.load(settings.seed)
    check_graph("train", graph)
    assert isinstance(graph, Graph)
    _check_no_split(graph, changes)
    device, report, clock = choose_device(settings.device), report or silent, Clock()
    prepared = prepare(graph, settings)
    data = prepared.to(device)
    evaluator = clock.time("prepare", lambda: _evaluator(data.graph, settings, report))
    trained = fit(data, settings, given, report, clock)
    out_of_fold = OutOfFold(None)
    if not settings.many or settings.method == "jackknife":
        out_of_fold = clock.time("check", lambda: leave_labels_out(data, settings, trained, report))
    calibrated = clock.time("calibrate", lambda: calibrate(data, settings, trained, out_of_fold))
    if settings.positive_only:
        trained = replace(trained, logits=out_of_fold_logits(trained, out_of_fold))
    rare = None
    if not settings.many:
        n_rare, left = int((trained.fitted.targets == 1).sum()), calibrated.left
        proportion = None if left is None else left.share
        of, maps = settings.decision, calibrated.calibrators
        by_time = labels_by_time(data.user_graph, data.nodes, out_of_fold.logits, trained.logits, maps)
        earlier = None
        if by_time is not None:
            rule = of.rule_on(data.user_graph, by_time.nodes)
            earlier = Labelled(by_time.p.cpu().numpy(), by_time.rare.cpu().numpy(), rule.weights)
        known = calibrated.labelled, n_rare, proportion, earlier
        work = partial(decided, of, data.user_graph, trained.logits, maps, *known)
        decision = clock.time("decide", work)
        make = partial(_intervals, data, settings, trained, out_of_fold, calibrated, decision, evaluator)
        result = clock.time("jackknife", make)
        ranges = partial(ranges_of, trained.fitted, data.graph, trained.logits, maps, result.ends_of)
        rare = RareView(result, decision, clock.time("ranges", ranges))
    outcome = Outcome(
        graph=prepared.raw_graph,
        mapped=prepared.graph,
        features=prepared.features,
        settings=settings,
        fit=trained.fitted,
        logits=trained.logits,
        own_logits=out_of_fold.logits,
        held_out=out_of_fold.held_out,
        calibrators=calibrated.calibrators,
        rare=rare,
        agreement=out_of_fold.agreement,
        damping=rare.jackknife.facts.damping if rare else out_of_fold.damping or 0.0,
        choice=trained.choice,
        notes=_notes(data, settings, trained, out_of_fold, calibrated, rare),
        seconds=clock.seconds,
    ).on_cpu()
    verdict = clock.time("judge", lambda: judge(outcome, calibrated))
    notes, rare = outcome.notes, outcome.rare
    if verdict.cause in ("labels", "time") or verdict.evidence is None:  # the verdict says so, or the opposite
        notes = [note for note in notes if note not in calibrated.notes]
    sure = verdict.answer == "calibrated" or not are_later(outcome.graph, outcome.graph.unlabelled)
    if rare is not None and not (verdict.counts and sure):
        rare = replace(rare, decision=replace(rare.decision, expected=None, caveat=verdict.no_counts))
    return replace(outcome, verdict=verdict, notes=notes, rare=rare)


def _check_no_split(graph: Graph, changes: dict[str, Any]) -> None:
    """Checks that a split is asked for by name of graphs alone that have none, or were read as these settings say."""
    asked = [name for name in ("split", "label_rate") if changes.get(name) is not None]
    if asked and "dataset" not in changes and graph.split is not None:
        raise InputError(
            f"train: {asked[0]} is for a graph without a split, and graph {graph.name!r} has one: leave it out, or "
            "take graph.with_split"
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


def _evaluator(graph: Graph, settings: Settings, report: Report) -> Streaming | None:
    """Returns what evaluates a large graph in blocks; None for one that is better taken as a whole."""
    entry = DETECTORS.get(settings.model)
    if entry is None or not entry.convolves or not streams(graph, settings.training.n_layers, graph.n_classes):
        return None
    return Streaming(graph, report=report)


def fit(data: TrainingData, settings: Settings, given: Given | None, report: Report, clock: Clock) -> Trained:
    """Returns the trained detector of the run's kind, and its logits of every node.

    With every class as it is, a detector that has folds reads a node's neighbours too, see `NeighbourPool`.

    Raises:
        InputError: the logits are not finite.
    """
    graph = data.graph
    trained = clock.time("train", lambda: _detector(data, settings, given, report))
    folded = trained.fitted.folded
    if settings.many and settings.method == "jackknife" and graph.n_edges and folded is not None:
        pool = clock.time("neighbours", lambda: NeighbourPool.of(folded, graph))
        trained = replace(trained, fitted=pool, notes=(*trained.notes, pool.sentence))
    fitted, progress = trained.fitted, partial(report, "predict")
    logits = clock.time("predict", lambda: fitted.logits_of(graph, progress=progress))
    if not all_finite(logits):
        raise InputError(
            f"graph {graph.name!r}: training ran away, the network's outputs are not finite: lower the learning rate "
            "or scale the features"
        )
    return replace(trained, logits=logits)


def _detector(data: TrainingData, settings: Settings, given: Given | None, report: Report) -> Trained:
    """Returns the trained detector of the run's kind."""
    if settings.model == "given":
        if given is None:
            raise InputError(
                "setting model given needs logits: calirare.train(graph, given=calirare.models.Given(logits)) in Python"
            )
        if settings.method != "jackknife" or settings.positive_only:
            raise InputError("setting model given needs method jackknife and labels of both classes")
        return Trained(given.fit(data.graph, data.nodes))
    if settings.model == "auto":
        return fit_auto(data, settings, report)
    entry = DETECTORS[settings.model]
    if entry.network is not None:
        return fit_network(data, settings, report)
    detector = entry.make(seed=settings.seed, hops=settings.training.reach)
    return Trained(detector.fit(data.graph, data.nodes, sample_weights=tree_weights(data, settings)))


def _intervals(
    data: TrainingData,
    settings: Settings,
    trained: Trained,
    out_of_fold: OutOfFold,
    calibrated: Calibrated,
    decision: Decided,
    evaluator: Streaming | None,
) -> JackknifeResult:
    """Returns the intervals: of every node, as where labels are left out at every node, or of those that matter."""
    fitted, graph, maps = trained.fitted, data.user_graph, calibrated.calibrators
    assert graph.split is not None
    known = None
    if out_of_fold.result is None:
        judged = torch.cat([fitted.nodes, graph.split.test])
        thresholds = settings.decision.thresholds(decision.threshold, graph)
        known = known_logits(settings, fitted, graph, trained.logits, maps, thresholds, judged)
    return intervals_of(
        settings,
        fitted,
        data.graph,
        maps,
        replace(settings.leave_one_out, damping=out_of_fold.damping),
        result=out_of_fold.result,
        calibration_nodes=out_of_fold.usable(data.calibration_nodes),
        evaluator=evaluator,
        known=known,
    )


def _notes(
    data: TrainingData,
    settings: Settings,
    trained: Trained,
    out_of_fold: OutOfFold,
    calibrated: Calibrated,
    rare: RareView | None,
) -> list[str]:
    """Returns what a user should read, each sentence once."""
    graph, split, y = data.user_graph, data.graph.split, data.graph.y
    assert y is not None
    assert split is not None
    few = _untested(y, split.test, graph.n_classes) if rare is None else split_note(split, int((y == 1).sum()))
    notes = [
        few,
        weights_note(graph),
        *ignored_settings(settings),
        *trained.notes,
        *out_of_fold.notes,
        *calibrated.notes,
        "" if rare is None else _majority_note(graph, trained.logits, calibrated.calibrators),
        rare.jackknife.note if rare and settings.method == "jackknife" else "",
    ]
    return list(dict.fromkeys(note for note in notes if note))


def _untested(y: Tensor, test: Tensor, k: int) -> str:
    """Returns a sentence where test nodes have labels, but none of some class, of which nothing is measured."""
    tested = y[test]
    counts = torch.bincount(tested[tested >= 0], minlength=k)
    none = int((counts == 0).sum())
    if not none or none == k:
        return ""
    return (
        f"{none:,} of the {k:,} classes have no labelled test node, so they are not measured: with --split all every "
        "label trains, and is judged by out-of-fold predictions"
    )


def _majority_note(graph: Graph, logits: Tensor, maps: dict[Target, Calibrator]) -> str:
    """Returns a sentence where most nodes are expected to be of the rare class: another one may have been meant."""
    if "population" not in maps:
        return ""
    mean = float(maps["population"].transform(logits[graph.scored_nodes].double())[:, 1].mean())
    if mean <= 0.5:
        return ""
    return (
        f"{graph.class_names[1]!r}, the rare class, is expected to be {mean:.0%} of the nodes: if another class is "
        "meant, name it with graph.rare(NAME) (command line: --rare-class NAME)"
    )
