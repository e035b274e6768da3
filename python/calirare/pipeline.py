"""The main job: train, leave every label out, calibrate, make intervals. Stages are functions of values."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from calirare._util.device import choose_device
from calirare._util.errors import InputError
from calirare._util.tracing import named
from calirare.calibration import TARGETS, AffineCalibrator, Calibrator, JackknifeCalibrator, Target, target_weights
from calirare.curvature import with_class_zero
from calirare.eice import train_calirare
from calirare.graph import Graph, check_trainable, scale_note
from calirare.intervals import JackknifeResult, LogitMap, Streaming, jackknife, streams
from calirare.leave_one_out import Agreement, LooResult, OwnLogits, choose_damping, leave_one_out
from calirare.models import GcnFit
from calirare.run import Outcome, Settings, ignored_settings
from calirare.training import (
    HOPS,
    WEIGHT_DECAYS,
    choose_hops,
    choose_weight_decay,
    cross_fitted_logits,
    loo_loss,
)

MAX_EPOCHS = 400
CHECKPOINT_EVERY = 50
PATIENCE = 3  # checkpoints without a lower leave-one-out loss before training stops
CALIRARE_EPOCHS = 200  # of Algorithm 2, where none are given
Report = Callable[[str, int, int], None]  # stage, done, of how many
StreamingMaker = Callable[[Graph, Report], Streaming]
T = TypeVar("T")


def train(
    graph: Graph | None = None,
    settings: Settings | None = None,
    *,
    report: Report | None = None,
    streaming: StreamingMaker | None = None,
    **changes: Any,
) -> Outcome:
    """Trains, calibrates and explains a network on a graph with a split.

    Args:
        graph: a graph with labels and a split (`load_dataset`, `Graph.from_data`, ...); None: the settings' data.
        settings: how; None: the defaults.
        report: called as stages proceed: name, steps done, steps in all.
        streaming: makes what evaluates a large graph in blocks, from the graph on its device; None: one without files.
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
    """
    if settings is not None and not isinstance(settings, Settings):
        raise TypeError(f"train: settings must be Settings, got {type(settings).__name__}: or give them by name")
    settings = (settings or Settings()).but("train", **changes)
    if graph is None and settings.data.dataset is not None:
        graph = settings.data.load(settings.seed)
    if not isinstance(graph, Graph):
        got = type(graph).__name__
        raise TypeError(f"train: graph must be a calirare.Graph, got {got}: take Graph.from_data, from_networkx, ...")
    check_trainable(graph)
    return _run(graph.to(choose_device(settings.device)), settings, report or _silent, streaming)


def _silent(stage: str, done: int, total: int) -> None:
    """Reports to nobody."""


@dataclass(frozen=True, eq=False)
class Job:
    """What every stage reads.

    Attributes:
        graph: the graph, on its device.
        settings: how.
        nodes: the labels that train, int64 [m].
        calibration_nodes: which of them represent the population, drawn at random and not so many per class, bool [m].
        report: called as stages proceed.
    """

    graph: Graph
    settings: Settings
    nodes: Tensor
    calibration_nodes: Tensor
    report: Report

    @classmethod
    def of(cls, graph: Graph, settings: Settings, report: Report) -> Job:
        """Returns the job of a graph: with method "jackknife" the validation labels train too."""
        assert graph.split is not None
        train, val = graph.split.train, graph.split.val
        nodes = torch.cat([train, val]) if settings.method == "jackknife" else train
        representative = torch.zeros(nodes.numel(), dtype=torch.bool, device=graph.device)
        representative[train.numel() :] = True
        if not bool(representative.any()):
            representative[:] = True
        return cls(graph, settings, nodes, representative, report)


@dataclass(frozen=True, eq=False)
class LeftOutLabels:
    """Every label's logits without itself, and what was decided on the way.

    Attributes:
        logits: to calibrate on, [m, k]; NaN where a label has no model.
        damping: of the leave-one-out step.
        agreement: how leave-one-out loss and held-out loss compare; None without the check.
        result: at every node, of methods other than plain `ALO`.
        notes: sentences a user should read.
    """

    logits: Tensor
    damping: float | None
    agreement: Agreement | None = None
    result: LooResult | None = None
    notes: tuple[str, ...] = ()


@dataclass
class _Clock:
    """Wall time of each stage."""

    seconds: dict[str, float] = field(default_factory=dict)

    def time(self, stage: str, work: Callable[[], T]) -> T:
        """Returns what the work returns."""
        started = time.perf_counter()
        with named(stage):
            out = work()
        self.seconds[stage] = time.perf_counter() - started
        return out


def _run(graph: Graph, settings: Settings, report: Report, streaming: StreamingMaker | None) -> Outcome:
    """Runs every stage."""
    clock, evaluator = _Clock(), None
    if clock.time("prepare", lambda: streams(graph, settings.training.n_layers, graph.n_classes)):
        evaluator = Streaming(graph, report=report) if streaming is None else streaming(graph, report)
    job = Job.of(graph, settings, report)
    _check_validation(job)
    fitted, training_notes = clock.time("train", lambda: fit(job))
    logits = clock.time("predict", lambda: _first_logits(job, fitted, whole=evaluator is None))
    _check_finite(graph, logits)
    left_out = clock.time("check", lambda: leave_labels_out(job, fitted))
    if left_out.result is not None:  # a label without a model calibrates nothing
        job = replace(job, calibration_nodes=job.calibration_nodes & torch.isfinite(left_out.logits).all(1))
    calibrators, notes = clock.time("calibrate", lambda: calibrate(job, logits, left_out.logits, evaluator is None))
    result = clock.time("jackknife", lambda: _intervals(job, fitted, left_out, calibrators, evaluator))
    if evaluator is not None:
        assert evaluator.logits is not None
        logits = evaluator.logits
        _check_finite(graph, logits)
    said = [scale_note(graph), *ignored_settings(settings), *training_notes, *left_out.notes, *notes]
    said += [result.note] if settings.method == "jackknife" else []
    notes = list(dict.fromkeys(note for note in said if note))
    return Outcome(graph, settings, fitted, logits, calibrators, result, left_out.agreement, notes, clock.seconds)


def _check_validation(job: Job) -> None:
    assert job.graph.split is not None
    if job.settings.method in ("ts", "calirare") and job.graph.split.val.numel() == 0:
        raise InputError(
            f"graph {job.graph.name!r}: method {job.settings.method} needs validation nodes, but the split has "
            "none: take method jackknife (command line: --method jackknife), which needs none"
        )


def _check_finite(graph: Graph, logits: Tensor) -> None:
    if not bool(torch.isfinite(logits).all()):
        raise InputError(
            f"graph {graph.name!r}: training ran away, the network's outputs are not finite: lower the learning rate "
            "or scale the features"
        )


def _first_logits(job: Job, fitted: GcnFit, *, whole: bool) -> Tensor:
    """Returns every node's logits; of a large graph, whose come with its intervals, those a map is fitted on."""
    assert job.graph.split is not None
    val = job.graph.split.val
    some = None if whole else val if val.numel() else job.nodes
    with torch.no_grad():
        return fitted.model(job.graph, some)


# Training, with what is chosen by leave-one-out loss.


def fit(job: Job) -> tuple[GcnFit, list[str]]:
    """Returns the trained network, with weight decay, hops and epochs chosen where they are "auto", and notes."""
    training = job.settings.training
    if job.settings.method == "calirare":
        return _fit_calirare(job)
    if training.weight_decay == "auto":
        fitted = _with_chosen_weight_decay(job)
    else:
        fitted = _fit_with(job, training.weight_decay)
    return (_with_chosen_hops(job, fitted) if training.hops == "auto" else fitted), []


def _fit_calirare(job: Job) -> tuple[GcnFit, list[str]]:
    settings, notes = job.settings, []
    epochs = CALIRARE_EPOCHS if settings.training.epochs == "auto" else settings.training.epochs
    options = settings.eice
    if options.coverage is None:
        options = replace(options, coverage=settings.intervals.coverage)
    if epochs <= options.start:
        notes.append(f"the EICE term counts from epoch {options.start + 1} on, so {epochs} epochs trained without it")
    detector = settings.training.detector(settings.seed, epochs)
    return train_calirare(job.graph, detector, options, progress=lambda e: job.report("train", e, epochs)), notes


def _with_chosen_weight_decay(job: Job) -> GcnFit:
    fits: dict[float, GcnFit] = {}

    def loss(decay: float) -> float:
        job.report("weight decay", len(fits), len(WEIGHT_DECAYS))
        fits[decay] = _fit_with(job, decay)
        return _loo_loss(job, fits[decay])

    chosen = choose_weight_decay(loss)
    job.report("weight decay", len(fits), len(WEIGHT_DECAYS))
    return fits[chosen]


def _with_chosen_hops(job: Job, first: GcnFit) -> GcnFit:
    """Returns the network with the number of hops of the lowest leave-one-out loss, at the first one's decay."""
    fits = {HOPS[0]: first}

    def loss(hops: int) -> float:
        job.report("hops", len(fits), len(HOPS))
        if hops not in fits:
            fits[hops] = _fit_with(job, first.weight_decay, hops)
        return _loo_loss(job, fits[hops])

    chosen = choose_hops(loss)
    job.report("hops", len(fits), len(HOPS))
    return fits[chosen]


def _fit_with(job: Job, weight_decay: float, hops: int | None = None) -> GcnFit:
    epochs, seed = job.settings.training.epochs, job.settings.seed
    if epochs == "auto":
        return _with_chosen_epochs(job, weight_decay, hops)
    detector = job.settings.training.detector(seed, epochs, weight_decay, hops)
    return detector.fit(job.graph, job.nodes, progress=lambda e: job.report("train", e, epochs))


def _with_chosen_epochs(job: Job, weight_decay: float, hops: int | None) -> GcnFit:
    """Trains once and keeps the checkpoint with the smallest leave-one-out loss for the target population."""
    best: tuple[float, int] = (float("inf"), 0)
    state: dict[str, Tensor] = {}
    waited = 0

    def look(epoch: int, so_far: GcnFit) -> bool:
        nonlocal best, state, waited
        loss = _loo_loss(job, so_far)
        waited += 1
        if loss < best[0]:
            best, waited = (loss, epoch), 0
            state = {name: value.clone() for name, value in so_far.model.state_dict().items()}
        return waited >= PATIENCE

    trained = job.settings.training.detector(job.settings.seed, MAX_EPOCHS, weight_decay, hops).fit(
        job.graph,
        job.nodes,
        every=CHECKPOINT_EVERY,
        at_checkpoint=look,
        progress=lambda e: job.report("train", e, MAX_EPOCHS),
    )
    if not state:
        raise InputError(
            f"graph {job.graph.name!r}: the leave-one-out loss is not finite at any checkpoint: lower the learning "
            "rate or scale the features"
        )
    trained.model.load_state_dict(state)
    job.report("train", MAX_EPOCHS, MAX_EPOCHS)
    return replace(trained, losses=trained.losses[: best[1]])


def _loo_loss(job: Job, fitted: GcnFit) -> float:
    own = OwnLogits(fitted.linearise())(_first_damping(job, fitted))
    chosen = job.calibration_nodes
    return loo_loss(own[chosen], fitted.targets[chosen], job.settings.calibration.target)


def _first_damping(job: Job, fitted: GcnFit) -> float:
    return fitted.weight_decay if job.settings.loo.damping is None else job.settings.loo.damping


# Leave-one-out, its check, and the maps.


def leave_labels_out(job: Job, fitted: GcnFit) -> LeftOutLabels:
    """Returns the logits to calibrate on, with the damping at which they agree with held-out ones."""
    settings = job.settings
    if not settings.plain_alo:
        return _other_leave_one_out(job, fitted)
    own_logits, start = OwnLogits(fitted.linearisation), _first_damping(job, fitted)
    if settings.method != "jackknife" or not settings.calibration.folds or settings.loo.damping is not None:
        return LeftOutLabels(own_logits(start), start)
    folds = min(settings.calibration.folds, job.nodes.numel())
    epochs = max(len(fitted.losses), 1)
    held_out = cross_fitted_logits(
        job.graph,
        job.nodes,
        settings.training.detector(settings.seed, epochs, fitted.weight_decay, fitted.model.hops),
        n_folds=folds,
        progress=lambda k: job.report("check", k, folds),
    )
    agreement = choose_damping(own_logits, start, held_out, job.calibration_nodes, _weights(job, fitted.targets))
    if agreement.verdict == "do not trust":
        note = f"{agreement.reason}: the map was fitted on cross-validated logits instead"
        return LeftOutLabels(held_out, agreement.damping, agreement, notes=(note,))
    return LeftOutLabels(own_logits(agreement.damping), agreement.damping, agreement)


def _weights(job: Job, targets: Tensor) -> Tensor:
    """Returns each label's weight in the target population, of which the calibration nodes are the sample; else 0."""
    chosen, target = job.calibration_nodes, job.settings.calibration.target
    weights = torch.zeros(targets.numel(), dtype=torch.float64, device=targets.device)
    weights[chosen] = target_weights(targets[chosen], job.graph.n_classes, target)
    return weights


def _other_leave_one_out(job: Job, fitted: GcnFit) -> LeftOutLabels:
    """Returns the same for a method other than plain `ALO`, without a check."""
    m, method = fitted.nodes.numel(), job.settings.leave_one_out
    result = leave_one_out(fitted, job.graph, method, progress=lambda done: job.report(method.name, done, m))
    own = with_class_zero(fitted.linearisation.differences + result.own)
    return LeftOutLabels(own, method.damping, result=result)


def calibrate(
    job: Job, logits: Tensor, loo_logits: Tensor, of_every_node: bool = True
) -> tuple[dict[Target, Calibrator], list[str]]:
    """Returns the fitted map for each target, and notes.

    Args:
        job: the job.
        logits: of every node [n, k], or of the validation nodes alone.
        loo_logits: of the labels without themselves, [m, k].
        of_every_node: which of the two `logits` are.
    """
    split, labels = job.graph.split, job.graph.y
    assert split is not None
    assert labels is not None
    if job.settings.method == "ts":
        z = logits[split.val] if of_every_node else logits
        return {t: AffineCalibrator(with_bias=False, target=t).fit(z, labels[split.val]) for t in TARGETS}, []
    if job.settings.method != "jackknife":
        return {}, []
    maps: dict[Target, Calibrator] = {}
    notes, chosen = [], job.calibration_nodes
    for target in TARGETS:
        sharpen = job.settings.calibration.sharpen and target == "balanced"
        fitted = JackknifeCalibrator(target=target, sharpen=sharpen).fit(loo_logits[chosen], labels[job.nodes][chosen])
        notes.append(fitted.note_)
        if fitted.note_ and sharpen:
            notes.append("sharpen changed nothing: a temperature has no sharpness of its own")
        maps[target] = fitted
    if split.val.numel() == 0:
        notes.append(
            "no validation nodes: the map was fitted on the training nodes, which may not represent the population"
        )
    return maps, notes


def _intervals(
    job: Job,
    fitted: GcnFit,
    left_out: LeftOutLabels,
    calibrators: dict[Target, Calibrator],
    evaluator: Streaming | None,
) -> JackknifeResult:
    settings = job.settings
    return jackknife(
        fitted,
        job.graph,
        replace(settings.leave_one_out, damping=left_out.damping),
        coverage=settings.intervals.coverage,
        calibrator=cast(LogitMap | None, calibrators.get(settings.calibration.target)),
        result=left_out.result,
        uncertainty=settings.intervals.uncertainty,
        calibration_nodes=job.calibration_nodes,
        evaluator=evaluator,
    )
