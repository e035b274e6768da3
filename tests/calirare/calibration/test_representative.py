"""Which labels represent the population, in the set-ups of real graphs."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch

from calirare import InputError
from calirare.calibration import PriorPlattCalibrator, effective_shares, representative_labels
from tests.helpers.logits import drawn_logits


def labels(*counts: int) -> torch.Tensor:
    return torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts, dtype=torch.int64))


def parts(train: torch.Tensor, val: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.cat([train, val]), torch.arange(len(train) + len(val)) < len(train)


@pytest.mark.parametrize(
    ("train", "val", "representative", "said"),
    [
        (labels(20, 20), labels(484, 16), "val", "500 validation labels are taken .* 40 training labels only inform"),
        (
            labels(820, 30),
            labels(415, 10),
            "all",
            "all 1275 labels are taken for a random .* have the same class proportions",
        ),
        (labels(900, 12), labels(), "all", "no validation labels"),
        (labels(), labels(300, 9), "all", "309 validation labels are taken for a random sample"),
        (labels(200, 60), labels(480, 20), "val", "class proportions differ"),
        (labels(20, 20), labels(), "none", "pass it with --prevalence"),
        (labels(20, 20, 20), labels(40, 50, 10), "val", "same number in every class, 20"),
        (labels(30, 60, 9), labels(40, 70, 10), "all", "have the same class proportions"),
    ],
)
def test_auto(train, val, representative, said):
    y, in_train = parts(train, val)
    used, sampling = representative_labels(y, in_train, int(y.max()) + 1)
    assert bool(used.all())
    expected = {"val": ~in_train, "all": torch.ones_like(in_train), "none": torch.zeros_like(in_train)}
    assert torch.equal(sampling.representative, expected[representative])
    assert re.search(said, sampling.sentence)


def test_what_is_told_counts():
    y, in_train = parts(labels(20, 20), labels(484, 16))
    used, sampling = representative_labels(y, in_train, 2, calibrate_on="val")
    assert torch.equal(used, ~in_train)
    assert bool(sampling.representative.all())
    used, sampling = representative_labels(y, in_train, 2, calibrate_on="all")
    assert bool(used.all())
    assert bool(sampling.representative.all())
    used, sampling = representative_labels(y, in_train, 2, calibrate_on="random")
    assert torch.equal(used, ~in_train)
    y, in_train = parts(labels(820, 30), labels(415, 10))
    assert bool(representative_labels(y, in_train, 2, calibrate_on="random")[0].all())
    with pytest.raises(InputError, match="calibrate_on must be one of auto, val, all, random"):
        representative_labels(y, in_train, 2, calibrate_on="some")
    with pytest.raises(InputError, match="there is no such label"):
        representative_labels(*parts(labels(9, 5), labels()), 2, calibrate_on="val")


def test_effective_shares_are_what_the_loss_sees():
    y = labels(90, 10)
    assert effective_shares(y, None, 2) == pytest.approx([0.9, 0.1])
    balanced = torch.where(y == 1, 5.0, 5 / 9)
    assert effective_shares(y, balanced, 2) == pytest.approx([0.5, 0.5])
    assert effective_shares(labels(9), None, 2) == pytest.approx([9 / 9.5, 0.5 / 9.5])


@pytest.mark.slow
@pytest.mark.parametrize("setup", ["20 per class + 500", "all train"])
def test_mean_probability_is_right_in_natural_set_ups(setup):
    """Rare 3.3 %: the labels of the issue's cases; mean P over the truth, geometric mean over 40 draws."""
    rng, factors = np.random.default_rng(4), []
    for _ in range(40):
        train, val = {
            "20 per class + 500": (labels(20, 20), rng.random(500) < 0.033),
            "all train": (torch.from_numpy(rng.random(600) < 0.033).long(), rng.random(0) < 0.033),
        }[setup]
        y, in_train = parts(train, torch.from_numpy(val).long())
        slope = np.exp(rng.normal(0, 0.4))
        used, sampling = representative_labels(y, in_train, 2)
        fitted = PriorPlattCalibrator().fit(drawn_logits(y.numpy(), rng, slope=slope)[used], y[used], sampling=sampling)
        everyone = drawn_logits((rng.random(5000) < 0.033).astype(int), rng, slope=slope)
        factors.append(float(fitted.transform(everyone)[:, 1].mean()) / 0.033)
    assert np.exp(np.mean(np.log(factors))) == pytest.approx(1, abs=0.12)
    assert np.mean([0.5 < factor < 1.65 for factor in factors]) >= 0.93
