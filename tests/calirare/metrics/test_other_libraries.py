"""The same numbers as other libraries, where they are right."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
import torch

from calirare import metrics


@pytest.fixture
def multiclass():
    rng = np.random.default_rng(0)
    z = rng.normal(size=(2000, 5)) * 2
    p = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    return p, rng.integers(0, 5, 2000)


def torchmetrics_functions():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip(
            "torchmetrics.functional.classification", reason="torchmetrics is not installed: not compared"
        )


@pytest.mark.parametrize(("name", "norm"), [("l1", 1), ("l2", 2), ("max", math.inf)])
def test_torchmetrics(multiclass, name, norm):
    # Where no confidence is 1 or on an edge it is right; it works in the input's float64.
    other = torchmetrics_functions().multiclass_calibration_error
    p, y = (torch.from_numpy(a) for a in multiclass)
    value = other(p, y, num_classes=5, n_bins=15, norm=name)
    assert metrics.ece(y, p, norm=norm).item() == pytest.approx(value.item(), rel=1e-5, abs=0)
