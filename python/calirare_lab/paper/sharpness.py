"""The class-conditional sharpness of a calibrator."""

from __future__ import annotations

from copy import copy

import torch
from torch import Tensor

from calirare.calibration import AffineCalibrator
from calirare.calibration.base import check_labelled

LARGEST = 2.0  # sharpness lies in [1 / LARGEST, LARGEST]: few labels of a class shall not send it to an extreme
STEPS = 30  # per factor of LARGEST


def class_conditional_sharpness(logits: Tensor, labels: Tensor) -> float:
    """Returns the g in [1/2, 2] for which softmax(g z) has the right mean confidence within each true class.

    Minimises mean_c |mean_(i: y_i = c) (confidence_i - correct_i)|: Macro-ACE (paper, section 4.1) with one bin per
    class. No g moves the decision. A map fitted by likelihood has its errors of both classes in one confidence: the
    many right answers of the large class want it higher, the mistaken rare nodes lower, and within a class neither is
    met. Calibration within true classes is not the calibration of any population: judge it by Macro-ACE, and take the
    map without it where probabilities are multiplied by costs.

    The logits [n, k] are those after a map, of nodes that neither the network nor, if possible, the map has learnt
    from; the labels are int64 [n]. ValueError where shapes differ, or a logit is not finite.
    """
    check_labelled("class_conditional_sharpness", logits, labels)
    z = logits.detach().double()
    z = z - z.amax(1, keepdim=True)
    right = (z.argmax(1) == labels).double()
    counts = torch.bincount(labels, minlength=z.shape[1])
    shares = (1.0 / counts)[labels] / int((counts > 0).sum())
    best, least = 1.0, float("inf")
    for step in range(-STEPS, STEPS + 1):
        sharpness = LARGEST ** (step / STEPS)
        confidence = 1 / torch.exp(sharpness * z).sum(1)
        gaps = torch.zeros_like(counts, dtype=z.dtype).index_add(0, labels, shares * (confidence - right))
        gap = float(gaps.abs().sum())
        if gap < least:
            best, least = sharpness, gap
    return best


def sharpened(fitted: AffineCalibrator, logits: Tensor, labels: Tensor) -> AffineCalibrator:
    """Returns a fitted map times its class-conditional sharpness: scale and bias times g, and so the same decisions.

    The logits [n, k] are what the map was fitted on, labels int64 [n]; the given map is not changed.
    """
    factor = class_conditional_sharpness(fitted.calibrated_logits(logits), labels)
    out = copy(fitted)
    assert fitted.bias_ is not None
    out.scale_, out.bias_ = factor * fitted.scale_, factor * fitted.bias_
    return out
