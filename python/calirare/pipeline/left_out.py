"""Every label's logits without itself, and their check."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from calirare._util.amounts import amount
from calirare._util.errors import InputError
from calirare.calibration import target_weights
from calirare.curvature import with_class_zero
from calirare.intervals.eice import train_calirare
from calirare.leave_one_out import OwnLogits, choose_damping, closed_form_fits, leave_one_out
from calirare.models import GcnFit, fold_network
from calirare.pipeline.job import Job, LeftOutLabels, Trained
from calirare.training import (
    HOPS,
    WEIGHT_DECAYS,
    FittedNetwork,
    choose_hops,
    choose_weight_decay,
    cross_fitted_logits,
    folds_for,
    loo_loss,
)

# Held-out labels that judge, and of each class: as many folds as hold them are retrained, up to so many labels all.
JUDGES, OF_EACH_CLASS = 20_000, 1_000


def leave_labels_out(job: Job, trained: Trained) -> LeftOutLabels:
    """Returns the logits to calibrate on, with the damping at which they agree with held-out ones."""
    settings, fitted = job.settings, trained.fitted
    if fitted.folded is not None:
        return LeftOutLabels(fitted.folded.own_logits, None)
    network = fitted.closed_form
    assert network is not None
    if not settings.plain_alo:
        return _other_leave_one_out(job, network)
    own_logits, start = OwnLogits(network.linearisation), first_damping(job, network)
    if settings.method != "jackknife" or not settings.calibration.folds or settings.loo.damping is not None:
        return LeftOutLabels(own_logits(start), start)
    held_out, said = _held_out(job, trained)
    judges = job.calibration_nodes & torch.isfinite(held_out).all(1)
    agreement = choose_damping(own_logits, start, held_out, judges, _weights(job, fitted.targets))
    notes: tuple[str, ...] = (f"{said}: standard error {agreement.standard_error:.2g}",) if said else ()
    if agreement.verdict == "do not trust":
        notes += (f"{agreement.reason}: the map was fitted on cross-validated logits instead",)
        return LeftOutLabels(held_out, agreement.damping, agreement, held_out=held_out, notes=notes)
    return LeftOutLabels(own_logits(agreement.damping), agreement.damping, agreement, held_out=held_out, notes=notes)


def _held_out(job: Job, trained: Trained) -> tuple[Tensor, str]:
    """Returns each label's logits by a network without its fold, NaN where there is none; and what is missing."""
    m, fitted = job.nodes.numel(), trained.fitted
    folds = min(job.settings.calibration.folds, m)
    few = folds if job.settings.positive_only else folds_for(fitted.targets, folds, JUDGES, OF_EACH_CLASS)
    assert trained.detector is not None
    out = cross_fitted_logits(
        job.graph,
        job.nodes,
        trained.detector,
        n_folds=folds,
        left_out=few,
        progress=lambda k: job.report("check", k, few),
    )
    if few == folds:
        return out, ""
    judged = int(torch.isfinite(out).all(1).sum())
    return out, (
        f"the leave-one-out check retrained {few} of {folds} folds, drawn at random: it compares the losses of "
        f"{judged:,} of the {amount(m, 'label')}"
    )


def _weights(job: Job, targets: Tensor) -> Tensor:
    """Returns each label's weight in the target population, of which the calibration nodes are the sample; else 0."""
    chosen, target = job.calibration_nodes, job.settings.calibration.target
    weights = torch.zeros(targets.numel(), dtype=torch.float64, device=targets.device)
    weights[chosen] = target_weights(targets[chosen], job.graph.n_classes, target)
    return weights


def _other_leave_one_out(job: Job, fitted: FittedNetwork) -> LeftOutLabels:
    """Returns the same for a method other than plain `ALO`, without a check."""
    m, method = fitted.nodes.numel(), job.settings.leave_one_out
    result = leave_one_out(fitted, job.graph, method, progress=lambda done: job.report(method.name, done, m))
    own = with_class_zero(fitted.linearisation.differences + result.own)
    return LeftOutLabels(own, method.damping, result=result)


MAX_EPOCHS = 400
CHECKPOINT_EVERY = 50
PATIENCE = 3  # checkpoints without a lower leave-one-out loss before training stops
CALIRARE_EPOCHS = 200  # of Algorithm 2, where none are given


def fit_network(job: Job) -> Trained:
    """Returns the trained network, with weight decay, hops and epochs chosen where they are "auto"."""
    training, notes = job.settings.training, list[str]()
    if job.settings.method == "calirare":
        fitted, notes = _fit_calirare(job)
    elif training.weight_decay == "auto":
        fitted = _with_chosen_weight_decay(job)
    else:
        fitted = _fit_with(job, training.weight_decay)
    if training.hops == "auto":
        fitted = _with_chosen_hops(job, fitted)
    epochs = max(fitted.epochs, 1)
    detector = training.detector(job.settings.seed, epochs, fitted.weight_decay, fitted.hops)
    if _by_folds(job, fitted):
        folds = min(job.settings.calibration.folds, job.nodes.numel())
        notes.append(
            f"{amount(job.nodes.numel(), 'label')} are too many to leave out one by one in closed form: each is judged "
            f"by the network without its fold, one of {folds}"
        )
        return Trained(fold_network(detector, job.graph, fitted, folds), notes=tuple(notes))
    return Trained(fitted, detector, tuple(notes))


def _by_folds(job: Job, fitted: GcnFit) -> bool:
    """Returns whether networks without each fold of the labels take the place of leave-one-out in closed form."""
    settings = job.settings
    plain = settings.method == "jackknife" and settings.plain_alo and settings.loo.damping is None
    return plain and settings.calibration.folds > 1 and not closed_form_fits(fitted.linearisation)


def _fit_calirare(job: Job) -> tuple[GcnFit, list[str]]:
    settings, notes = job.settings, list[str]()
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
        return loo_loss_of(job, fits[decay])

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
        return loo_loss_of(job, fits[hops])

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
        loss = loo_loss_of(job, so_far)
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


def loo_loss_of(job: Job, fitted: FittedNetwork) -> float:
    """Returns the network's leave-one-out loss over the calibration nodes, for the run's target."""
    own = OwnLogits(fitted.linearise())(first_damping(job, fitted))
    chosen = job.calibration_nodes
    return loo_loss(own[chosen], fitted.targets[chosen], job.settings.calibration.target)


def first_damping(job: Job, fitted: FittedNetwork) -> float:
    """Returns the damping that is asked for, or else the weight decay."""
    return fitted.weight_decay if job.settings.loo.damping is None else job.settings.loo.damping
