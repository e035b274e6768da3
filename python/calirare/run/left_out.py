"""Out-of-fold logits of every label, their check, and networks whose settings are chosen by them."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from calirare._util.amounts import amount
from calirare._util.errors import InputError
from calirare.calibration import target_weights
from calirare.curvature import with_class_zero
from calirare.leave_one_out import OwnLogits, choose_damping, closed_form_fits, leave_one_out
from calirare.leave_one_out.eice import train_calirare
from calirare.models import FittedNetwork, GcnFit, cross_fitted_logits, fold_network, folds_for, loo_loss
from calirare.run.data import OutOfFold, Report, Trained, TrainingData
from calirare.run.settings import Settings

# Held-out labels that judge, and of each class: as many folds as hold them are retrained, up to so many labels all.
JUDGES, OF_EACH_CLASS = 20_000, 1_000
MAX_EPOCHS = 400
CHECKPOINT_EVERY = 50
PATIENCE = 3  # checkpoints without a lower leave-one-out loss before training stops
CALIRARE_EPOCHS = 200  # of Algorithm 2, where none are given


def leave_labels_out(data: TrainingData, settings: Settings, trained: Trained, report: Report) -> OutOfFold:
    """Returns the logits to calibrate on, with the damping at which they agree with held-out ones."""
    fitted, network = trained.fitted, trained.fitted.closed_form
    if fitted.folded is not None:
        return OutOfFold(fitted.folded.own_logits)
    assert network is not None
    if not settings.plain_alo:
        m, method = fitted.nodes.numel(), settings.leave_one_out
        result = leave_one_out(network, data.graph, method, progress=lambda done: report(method.name, done, m))
        own = with_class_zero(network.linearisation.differences + result.own)
        return OutOfFold(own, method.damping, result=result)
    own_logits, start = OwnLogits(network.linearisation), _first_damping(settings, network)
    if settings.method != "jackknife" or not settings.calibration.folds or settings.loo.damping is not None:
        return OutOfFold(own_logits(start), start)
    held_out, said = _held_out(data, settings, trained, report)
    judges = data.calibration_nodes & torch.isfinite(held_out).all(1)
    weights = torch.zeros(fitted.targets.numel(), dtype=torch.float64, device=fitted.targets.device)
    chosen, target = data.calibration_nodes, settings.calibration.calibrate_for
    weights[chosen] = target_weights(fitted.targets[chosen], data.graph.n_classes, target)
    agreement = choose_damping(own_logits, start, held_out, judges, weights)
    notes: tuple[str, ...] = (f"{said}: standard error {agreement.standard_error:.2g}",) if said else ()
    if agreement.verdict == "do not trust":
        notes += (f"{agreement.reason}: the calibrator was fitted on cross-validated logits instead",)
        return OutOfFold(held_out, agreement.damping, agreement, held_out=held_out, notes=notes)
    return OutOfFold(own_logits(agreement.damping), agreement.damping, agreement, held_out=held_out, notes=notes)


def _held_out(data: TrainingData, settings: Settings, trained: Trained, report: Report) -> tuple[Tensor, str]:
    """Returns each label's logits by a network without its fold, NaN where there is none; and what is missing."""
    m = data.nodes.numel()
    folds = min(settings.calibration.folds, m)
    few = folds if settings.positive_only else folds_for(data.targets, folds, JUDGES, OF_EACH_CLASS)
    assert trained.detector is not None
    out = cross_fitted_logits(
        data.graph,
        data.nodes,
        trained.detector,
        n_folds=folds,
        left_out=few,
        progress=lambda k: report("check", k, few),
    )
    if few == folds:
        return out, ""
    judged = int(torch.isfinite(out).all(1).sum())
    return out, (
        f"the leave-one-out check retrained {few} of {folds} folds: it compares the losses of "
        f"{judged:,} of the {amount(m, 'label')}"
    )


def fit_network(data: TrainingData, settings: Settings, report: Report) -> Trained:
    """Returns the trained network, with epochs chosen where they are "auto"."""
    training, notes = settings.training, list[str]()
    if settings.method == "calirare":
        fitted, notes = _fit_calirare(data, settings, report)
    elif training.epochs == "auto":
        fitted = _with_chosen_epochs(data, settings, report)
    else:
        epochs = training.epochs
        detector = training.detector(settings.seed, epochs)
        fitted = detector.fit(data.graph, data.nodes, progress=lambda e: report("train", e, epochs))
    detector = training.detector(settings.seed, max(fitted.epochs, 1))
    plain = settings.method == "jackknife" and settings.plain_alo and settings.loo.damping is None
    if plain and settings.calibration.folds > 1 and not closed_form_fits(fitted.linearisation):
        folds = min(settings.calibration.folds, data.nodes.numel())
        notes.append(
            f"{amount(data.nodes.numel(), 'label')} are too many for the closed form of leave-one-out: each is "
            f"predicted by one of {folds} networks, trained without its fold"
        )
        return Trained(fold_network(detector, data.graph, fitted, folds), notes=tuple(notes))
    return Trained(fitted, detector=detector, notes=tuple(notes))


def _fit_calirare(data: TrainingData, settings: Settings, report: Report) -> tuple[GcnFit, list[str]]:
    """Returns a network trained by the paper's Algorithm 2, and notes."""
    notes = list[str]()
    epochs = CALIRARE_EPOCHS if settings.training.epochs == "auto" else settings.training.epochs
    options = settings.eice
    if options.coverage is None:
        options = replace(options, coverage=settings.intervals.coverage)
    if epochs <= options.start:
        notes.append(f"the EICE term counts from epoch {options.start + 1} on, so {epochs} epochs trained without it")
    detector = settings.training.detector(settings.seed, epochs)
    return train_calirare(data.graph, detector, options, progress=lambda e: report("train", e, epochs)), notes


def _with_chosen_epochs(data: TrainingData, settings: Settings, report: Report) -> GcnFit:
    """Trains once and keeps the checkpoint with the lowest leave-one-out loss of the calibration nodes."""
    best: tuple[float, int] = (float("inf"), 0)
    state: dict[str, Tensor] = {}
    waited, chosen = 0, data.calibration_nodes

    def look(epoch: int, so_far: GcnFit) -> bool:
        nonlocal best, state, waited
        own = OwnLogits(so_far.linearise())(_first_damping(settings, so_far))
        loss = loo_loss(own[chosen], so_far.targets[chosen], settings.calibration.calibrate_for)
        waited += 1
        if loss < best[0]:
            best, waited = (loss, epoch), 0
            state = {name: value.clone() for name, value in so_far.model.state_dict().items()}
        return waited >= PATIENCE

    trained = settings.training.detector(settings.seed, MAX_EPOCHS).fit(
        data.graph,
        data.nodes,
        every=CHECKPOINT_EVERY,
        at_checkpoint=look,
        progress=lambda e: report("train", e, MAX_EPOCHS),
    )
    if not state:
        raise InputError(
            f"graph {data.graph.name!r}: the leave-one-out loss is not finite at any checkpoint: lower the "
            "learning rate or scale the features"
        )
    trained.model.load_state_dict(state)
    report("train", MAX_EPOCHS, MAX_EPOCHS)
    return replace(trained, losses=trained.losses[: best[1]])


def _first_damping(settings: Settings, fitted: FittedNetwork) -> float:
    """Returns the damping that is set, or else the weight decay."""
    return fitted.weight_decay if settings.loo.damping is None else settings.loo.damping
