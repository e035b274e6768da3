"""Bins of equal width against numpy and netcal; the factor of sharpness is the least gap of a search."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from calirare.calibration import AffineCalibrator
from calirare.metrics import macro_ace
from calirare_lab.paper.other_bins import average_calibration_error
from calirare_lab.paper.sharpness import class_conditional_sharpness, sharpened


@pytest.fixture
def outcome() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    confidence = 0.5 + 0.5 * torch.rand(300, dtype=torch.float64, generator=generator)
    return confidence, torch.rand(300, generator=generator) < 0.7


def test_average_calibration_error_by_numpy(outcome: tuple[torch.Tensor, torch.Tensor]) -> None:
    confidence, correct = (values.numpy() for values in outcome)
    gaps = []
    for low in np.arange(20) / 20:
        inside = (confidence > low) & (confidence <= low + 1 / 20)
        if inside.any():
            gaps.append(abs(correct[inside].mean() - confidence[inside].mean()))
    assert average_calibration_error(*outcome) == pytest.approx(np.mean(gaps), rel=1e-12)


def overlapping(n: int = 4000, rare: float = 0.15, factor: float = 1.0, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Returns logits [n, 2] of two normal classes whose log-odds under equal shares are exact, times `factor`."""
    g = torch.Generator().manual_seed(seed)
    labels = (torch.rand(n, generator=g) < rare).long()
    x = 2.0 * labels - 1 + torch.randn(n, generator=g)
    return torch.stack([torch.zeros(n), factor * 2 * x], 1).double(), labels


@pytest.mark.parametrize("factor", [0.6, 1.7])
def test_finds_the_factor_that_makes_symmetric_classes_right(factor: float) -> None:
    logits, labels = overlapping(40_000, 0.5, factor)
    assert class_conditional_sharpness(logits, labels) == pytest.approx(1 / factor, rel=0.05)


def test_is_the_least_gap_of_a_search_in_numpy() -> None:
    logits, labels = overlapping(300, factor=0.7, seed=3)
    z, y = logits.numpy(), labels.numpy()
    least = {}
    for step in range(-30, 31):
        g = 2.0 ** (step / 30)
        p = np.exp(g * z) / np.exp(g * z).sum(1, keepdims=True)
        gaps = [abs((p.max(1) - (p.argmax(1) == y))[y == c].mean()) for c in (0, 1)]
        least[g] = np.mean(gaps)
    assert class_conditional_sharpness(logits, labels) == pytest.approx(min(least, key=lambda g: least[g]))


def test_lowers_macro_ace_of_new_nodes_and_keeps_every_decision() -> None:
    logits, labels = overlapping(3000, factor=0.5, seed=1)
    flat = AffineCalibrator(with_bias=False)
    flat.bias_ = torch.zeros(2, dtype=torch.float64)
    fitted = sharpened(flat, logits, labels)
    new, truth = overlapping(3000, factor=0.5, seed=2)
    before, after = flat.transform(new), fitted.transform(new)
    assert torch.equal(before.argmax(1), after.argmax(1))
    assert float(macro_ace(truth, after)) < 0.5 * float(macro_ace(truth, before))
    assert flat.scale_ == 1.0  # the given map is not changed
