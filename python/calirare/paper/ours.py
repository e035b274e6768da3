"""Our default method: train on every label, calibrate on leave-one-out logits of the validation nodes.

The default was chosen by `calirare paper search`, which looks at validation nodes only; docs/reproduction.md shows it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from calirare.calibration import AffineCalibrator, Target
from calirare.calibration.affine import SCALE_PRIOR
from calirare.calibration.jackknife import FALLBACK_PRIOR, MIN_RARE
from calirare.paper.context import Context
from calirare.training import TrainingSettings

TRAINING = TrainingSettings(learning_rate=0.03, epochs=400)
N_NETWORKS = 3
BALANCE = 0.8  # t of `target_weights`: at 1 the decision moves so far that macro-F1 suffers (docs/reproduction.md)


@dataclass(frozen=True)
class Recipe:
    """What a method on all labels may vary.

    Attributes:
        training: how each network is trained.
        n_networks: networks whose logits are averaged.
        target: see `calirare.calibration.target_weights`.
        with_bias: Platt map; otherwise a temperature.
        source: where the calibration logits come from: "jackknife", "cross-fit", or "in-sample" (a control).
        adapt_damping: take the damping at which leave-one-out loss agrees with cross-fitted loss; otherwise mu.
    """

    training: TrainingSettings = TRAINING
    n_networks: int = N_NETWORKS
    target: Target = BALANCE
    with_bias: bool = True
    source: str = "jackknife"
    adapt_damping: bool = True


def calibrated(context: Context, recipe: Recipe) -> tuple[Tensor, dict[str, float]]:
    """Returns probabilities of the test nodes [n, k] and the numbers of the map.

    Args:
        context: the place.
        recipe: the method.

    Returns:
        Probabilities, and scale, bias and damping.
    """
    runs = [context.settings(recipe.training, network) for network in range(recipe.n_networks)]
    damping = _damping(context, recipe, runs[0])
    held = torch.stack([_calibration_logits(context, recipe, run, damping) for run in runs])
    labels = context.y[context.split.val]
    few = int(torch.bincount(labels, minlength=2).min()) < MIN_RARE
    calibrator = AffineCalibrator(
        with_bias=recipe.with_bias and not few,
        target=recipe.target,
        prior=FALLBACK_PRIOR if few else SCALE_PRIOR,
    ).fit(held.mean(0)[context.val_rows], labels)
    logits = torch.stack([context.logits("both", run, context.split.test).double() for run in runs]).mean(0)
    assert calibrator.bias is not None
    numbers = {"scale": calibrator.scale, "bias": float(calibrator.bias[1]), "damping": damping}
    return calibrator.transform(logits), numbers


def _damping(context: Context, recipe: Recipe, run: TrainingSettings) -> float:
    if recipe.source == "jackknife" and recipe.adapt_damping:
        return context.agreement(run).damping
    return run.weight_decay


def _calibration_logits(context: Context, recipe: Recipe, run: TrainingSettings, damping: float) -> Tensor:
    if recipe.source == "jackknife":
        return _centred(context.leave_one_out(run, damping))
    if recipe.source == "cross-fit":
        return _centred(context.cross_fitted(run))
    return _centred(context.logits("both", run, context.both))


def _centred(logits: Tensor) -> Tensor:
    """Returns logits with class 0 at 0: averaging networks needs a common zero."""
    return (logits - logits[:, :1]).double()
