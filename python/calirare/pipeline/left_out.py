"""Every label's logits without itself, their check, and the maps that are fitted on them."""

from __future__ import annotations

import torch
from torch import Tensor

from calirare.calibration import TARGETS, AffineCalibrator, Calibrator, JackknifeCalibrator, Target, target_weights
from calirare.curvature import with_class_zero
from calirare.leave_one_out import OwnLogits, choose_damping, leave_one_out
from calirare.pipeline.job import Job, LeftOutLabels, Trained
from calirare.pipeline.networks import first_damping
from calirare.training import FittedNetwork, FoldFitted, cross_fitted_logits


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
    folds = min(settings.calibration.folds, job.nodes.numel())
    assert trained.detector is not None
    held_out = cross_fitted_logits(
        job.graph,
        job.nodes,
        trained.detector,
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


def _other_leave_one_out(job: Job, fitted: FittedNetwork) -> LeftOutLabels:
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
