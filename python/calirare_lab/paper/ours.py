"""Our default method: train on every label, calibrate on leave-one-out logits of the validation nodes.

The default was chosen by `calirare paper search` on validation nodes only; docs/research/reproduction.md shows it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from calirare.calibration import AffineCalibrator, Target
from calirare.calibration.affine import FALLBACK_PRIOR, MIN_RARE
from calirare.models import GcnTraining
from calirare_lab.paper.choosing import HOPS, WEIGHT_DECAYS
from calirare_lab.paper.context import Context
from calirare_lab.paper.sharpness import sharpened

TRAINING = GcnTraining(learning_rate=0.03, epochs=400, order="propagated")
N_NETWORKS = 3
BIAS_PRIOR = 1e-3  # as the search had it; for classes of a tenth or more it moves the mean probability by a few percent
BALANCE = 0.85  # t of `target_weights`: 1 costs macro-F1 (docs/research/reproduction.md)


@dataclass(frozen=True)
class Recipe:
    """What a method on all labels may vary.

    Attributes:
        training: how each network is trained.
        weight_decays: what its weight decay is chosen among, by the leave-one-out loss of the first network on the
            validation nodes; none: that of `training`.
        hops: what its number of hops is chosen among, likewise and after it; none: that of `training`.
        n_networks: networks whose logits are averaged.
        target: see `calirare.calibration.target_weights`.
        with_bias: Platt map; otherwise a temperature.
        source: where the calibration logits come from: "jackknife", "cross-fit", or "in-sample" (a control).
        sharpen: give the map the sharpness that suits each true class; the decision stays.
    """

    training: GcnTraining = TRAINING
    weight_decays: tuple[float, ...] = WEIGHT_DECAYS
    hops: tuple[int, ...] = HOPS
    n_networks: int = N_NETWORKS
    target: Target = BALANCE
    with_bias: bool = True
    source: str = "jackknife"
    sharpen: bool = True


BEFORE = Recipe(hops=(), target=0.9)  # the default until hops were chosen; its test measures had been seen


def calibrated(context: Context, recipe: Recipe) -> tuple[Tensor, dict[str, float]]:
    """Returns probabilities of the test nodes [n, k] and the numbers of the map.

    Args:
        context: the place.
        recipe: the method.

    Returns:
        Probabilities, and scale, bias, weight decay and hops.
    """
    runs = networks(context, recipe)
    held = torch.stack([_calibration_logits(context, recipe, run) for run in runs]).mean(0)[context.val_rows]
    labels = context.y[context.split.val]
    few = int(torch.bincount(labels, minlength=2).min()) < MIN_RARE
    calibrator = AffineCalibrator(
        with_bias=recipe.with_bias and not few,
        target=recipe.target,
        prior=FALLBACK_PRIOR if few else None,
        bias_prior=BIAS_PRIOR,
    ).fit(held, labels)
    if recipe.sharpen and not few:
        calibrator = sharpened(calibrator, held, labels)
    logits = torch.stack([context.logits("both", run, context.split.test).double() for run in runs]).mean(0)
    assert calibrator.bias_ is not None
    numbers = {"scale": calibrator.scale_, "bias": float(calibrator.bias_[1])}
    numbers |= {"weight_decay": runs[0].weight_decay, "hops": float(runs[0].hops)}
    return calibrator.transform(logits), numbers


def networks(context: Context, recipe: Recipe) -> list[GcnTraining]:
    """Returns the settings of each of the recipe's networks at a place; only validation labels choose between them."""
    training = recipe.training
    if recipe.weight_decays:
        training = replace(training, weight_decay=context.weight_decay(training, recipe.weight_decays))
    if recipe.hops:
        training = replace(training, hops=context.hops(training, recipe.hops))
    return [context.settings(training, network) for network in range(recipe.n_networks)]


def _calibration_logits(context: Context, recipe: Recipe, run: GcnTraining) -> Tensor:
    if recipe.source == "jackknife":
        return _centred(context.leave_one_out(run))
    if recipe.source == "cross-fit":
        return _centred(context.cross_fitted(run))
    return _centred(context.logits("both", run, context.both))


def _centred(logits: Tensor) -> Tensor:
    """Returns logits with class 0 at 0: averaging networks needs a common zero."""
    return (logits - logits[:, :1]).double()
