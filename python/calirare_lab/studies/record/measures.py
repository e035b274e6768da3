"""What every row of the record tells of a map's probabilities on the test nodes."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from calirare.metrics import brier, classwise_ece, confidence_statistics, ece, nll, noise_floor

DRAWS = 50  # of labels, for what chance alone gives
MEASURES = ("nll", "brier", "ece", "ece_floor", "debiased_ece", "classwise_ece", "accuracy")


def judge(labels: Tensor, p: Tensor, bins: int) -> dict[str, float]:
    """Returns every measure.

    Args:
        labels: classes of the test nodes, int64 [n].
        p: their probabilities [n, k].
        bins: of equal width, of every ECE.

    Returns:
        By name, rounded to six digits; "ece_floor" is the mean ECE of labels drawn from p, "debiased_ece" that of norm
        1, which may be negative.
    """
    floor = noise_floor(lambda drawn, q: ece(drawn, q, bins), p, n_draws=DRAWS)
    values = {
        "nll": nll(labels, p),
        "brier": brier(labels, p),
        "ece": ece(labels, p, bins),
        "ece_floor": floor.mean,
        "debiased_ece": debiased_ece(labels, p, bins),
        "classwise_ece": classwise_ece(labels, p, bins),
        "accuracy": (p.argmax(1) == labels).double().mean(),
    }
    return {name: round(float(value), 6) for name, value in values.items()}


def debiased_ece(labels: Tensor, p: Tensor, bins: int) -> float:
    """Returns the ECE of the confidence less what sampling noise adds (Kumar, Liang and Ma 2019), in norm 1.

    Twice the ECE less the mean ECE when the accuracy a of a bin of n samples is drawn again from N(a, a (1 - a) / n).
    The reference draws; here the mean of the folded normal is written out. It may be negative.
    """
    counted = confidence_statistics(labels, p, bins)
    gap, accuracy = counted.gap, counted.accuracy
    deviation = (accuracy * (1 - accuracy) / counted.count.clamp(min=1)).sqrt()
    ratio = gap / torch.where(deviation > 0, deviation, 1.0)
    folded = deviation * math.sqrt(2 / math.pi) * torch.exp(-(ratio**2) / 2) + gap * torch.erf(ratio / math.sqrt(2))
    return float((counted.share * (2 * gap - torch.where(deviation > 0, folded, gap))).sum())
