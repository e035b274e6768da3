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


def test_confidence_one_where_torchmetrics_is_wrong():
    other = torchmetrics_functions().binary_calibration_error
    confidence, correct = torch.tensor([0.95, 1.0]), torch.tensor([1, 0])
    theirs = other(confidence, correct, n_bins=10, norm="l1").item()
    ours = metrics.calibration_error(correct, confidence, 10).item()
    assert ours == pytest.approx(0.475, rel=1e-6, abs=0)
    # When this fails torchmetrics has been corrected, and the test above may include a confidence of 1.
    assert theirs == pytest.approx(0.525, rel=1e-6, abs=0)


def test_sklearn_curve_per_class(multiclass):
    from sklearn.calibration import calibration_curve

    p, y = multiclass
    values = []
    for c in range(5):
        frequency, mean = calibration_curve(y == c, p[:, c], n_bins=15)
        counts = np.histogram(p[:, c], 15, (0, 1))[0]
        values.append((counts[counts > 0] / len(y) * np.abs(frequency - mean)).sum())
    assert metrics.classwise_ece(y, p) == pytest.approx(np.mean(values), rel=1e-10, abs=0)
