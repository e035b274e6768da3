"""Every label's logits without itself, and their check."""

from __future__ import annotations

import torch
from torch import Tensor

from calirare.calibration import target_weights
from calirare.curvature import with_class_zero
from calirare.leave_one_out import OwnLogits, choose_damping, leave_one_out
from calirare.pipeline.job import Job, LeftOutLabels, Trained
from calirare.pipeline.networks import first_damping
from calirare.training import FittedNetwork, FoldFitted, cross_fitted_logits, folds_for

# Held-out labels that judge, and of each class: as many folds as hold them are retrained, up to so many labels all.
JUDGES, OF_EACH_CLASS = 20_000, 1_000


def leave_labels_out(job: Job, trained: Trained) -> LeftOutLabels:
    """Returns the logits to calibrate on, with the damping at which they agree with held-out ones."""
    settings, fitted = job.settings, trained.fitted
    if isinstance(fitted, FoldFitted):
        return LeftOutLabels(fitted.own_logits, None)
    assert isinstance(fitted, FittedNetwork)
    if not settings.plain_alo:
        return _other_leave_one_out(job, fitted)
    own_logits, start = OwnLogits(fitted.linearisation), first_damping(job, fitted)
    if settings.method != "jackknife" or not settings.calibration.folds or settings.loo.damping is not None:
        return LeftOutLabels(own_logits(start), start)
    held_out, said = _held_out(job, trained)
    judges = job.calibration_nodes & torch.isfinite(held_out).all(1)
    agreement = choose_damping(own_logits, start, held_out, judges, _weights(job, fitted.targets))
    notes: tuple[str, ...] = (f"{said}: standard error {agreement.standard_error:.2g}",) if said else ()
    notes += (own_logits.sampling_note(agreement.damping),) if own_logits.form == "sampled" else ()
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
        f"{judged:,} of the {m:,} labels"
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
