"""Out-of-fold logits of every label, their check, and networks whose settings are chosen by them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

import torch
from torch import Tensor

from calirare._util.amounts import amount
from calirare._util.errors import InputError
from calirare.calibration import target_weights
from calirare.curvature import with_class_zero
from calirare.leave_one_out import OwnLogits, choose_damping, closed_form_fits, leave_one_out
from calirare.leave_one_out.eice import train_calirare
from calirare.models import (
    HOPS,
    WEIGHT_DECAYS,
    FittedNetwork,
    GcnFit,
    choose,
    cross_fitted_logits,
    fold_network,
    folds_for,
    loo_loss,
)
from calirare.run.data import OutOfFold, Report, Trained, TrainingData
from calirare.run.settings import Settings

# Held-out labels that judge, and of each class: as many folds as hold them are retrained, up to so many labels all.
JUDGES, OF_EACH_CLASS = 20_000, 1_000
MAX_EPOCHS = 400
CHECKPOINT_EVERY = 50
PATIENCE = 3  # checkpoints without a lower leave-one-out loss before training stops
Candidate = TypeVar("Candidate", int, float)
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
    """Returns the trained network, with weight decay, hops and epochs chosen where they are "auto"."""
    training, notes = settings.training, list[str]()
    fitting = _Fitting(data, settings, report)
    if settings.method == "calirare":
        fitted, notes = _fit_calirare(data, settings, report)
    elif training.weight_decay == "auto":
        fitted = fitting.chosen("weight decay", WEIGHT_DECAYS, fitting.fit)
    else:
        fitted = fitting.fit(training.weight_decay)
    if training.hops == "auto":
        decay = fitted.weight_decay
        fitted = fitting.chosen("hops", HOPS, lambda hops: fitting.fit(decay, hops), fitted)
    detector = training.detector(settings.seed, max(fitted.epochs, 1), fitted.weight_decay, fitted.hops)
    plain = settings.method == "jackknife" and settings.plain_alo and settings.loo.damping is None
    if plain and settings.calibration.folds > 1 and not closed_form_fits(fitted.linearisation):
        folds = min(settings.calibration.folds, data.nodes.numel())
        notes.append(
            f"{amount(data.nodes.numel(), 'label')} are too many to leave out one by one in closed form: each is "
            f"judged by the network without its fold, one of {folds}"
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


class _Fitting:
    """Networks on the same labels with other settings, compared by their leave-one-out losses."""

    def __init__(self, data: TrainingData, settings: Settings, report: Report) -> None:
        self.data, self.settings, self.report = data, settings, report

    def fit(self, weight_decay: float, hops: int | None = None) -> GcnFit:
        """Returns a network, its epochs chosen where they are "auto"."""
        epochs, seed = self.settings.training.epochs, self.settings.seed
        if epochs == "auto":
            return self._with_chosen_epochs(weight_decay, hops)
        detector = self.settings.training.detector(seed, epochs, weight_decay, hops)
        data, report = self.data, self.report
        return detector.fit(data.graph, data.nodes, progress=lambda e: report("train", e, epochs))

    def loss(self, fitted: FittedNetwork) -> float:
        """Returns the leave-one-out loss over the calibration nodes, for the run's target."""
        own, chosen = OwnLogits(fitted.linearise())(_first_damping(self.settings, fitted)), self.data.calibration_nodes
        return loo_loss(own[chosen], fitted.targets[chosen], self.settings.calibration.calibrate_for)

    def chosen(
        self, what: str, candidates: Sequence[Candidate], fit: Callable[[Candidate], GcnFit], *known: GcnFit
    ) -> GcnFit:
        """Returns the network of the lowest loss, `known` being those of the first candidates."""
        fits = dict(zip(candidates, known, strict=False))

        def loss(value: Candidate) -> float:
            self.report(what, len(fits), len(candidates))
            if value not in fits:
                fits[value] = fit(value)
            return self.loss(fits[value])

        best = choose(loss, candidates, what)
        self.report(what, len(fits), len(candidates))
        return fits[best]

    def _with_chosen_epochs(self, weight_decay: float, hops: int | None) -> GcnFit:
        """Trains once and keeps the checkpoint with the lowest loss."""
        best: tuple[float, int] = (float("inf"), 0)
        state: dict[str, Tensor] = {}
        waited = 0

        def look(epoch: int, so_far: GcnFit) -> bool:
            nonlocal best, state, waited
            loss = self.loss(so_far)
            waited += 1
            if loss < best[0]:
                best, waited = (loss, epoch), 0
                state = {name: value.clone() for name, value in so_far.model.state_dict().items()}
            return waited >= PATIENCE

        trained = self.settings.training.detector(self.settings.seed, MAX_EPOCHS, weight_decay, hops).fit(
            self.data.graph,
            self.data.nodes,
            every=CHECKPOINT_EVERY,
            at_checkpoint=look,
            progress=lambda e: self.report("train", e, MAX_EPOCHS),
        )
        if not state:
            raise InputError(
                f"graph {self.data.graph.name!r}: the leave-one-out loss is not finite at any checkpoint: lower the "
                "learning rate or scale the features"
            )
        trained.model.load_state_dict(state)
        self.report("train", MAX_EPOCHS, MAX_EPOCHS)
        return replace(trained, losses=trained.losses[: best[1]])


def _first_damping(settings: Settings, fitted: FittedNetwork) -> float:
    """Returns the damping that is set, or else the weight decay."""
    return fitted.weight_decay if settings.loo.damping is None else settings.loo.damping
