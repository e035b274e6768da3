from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from sklearn import metrics as oracle

from calirare import metrics


def columns(p: np.ndarray) -> np.ndarray:
    return np.stack((1 - p, p), 1) if p.ndim == 1 else p


def test_nll_against_sklearn(task, within_rounding):
    p, y = task
    p = columns(np.clip(p, 0.01, 0.99) if p.ndim == 1 else (p + 0.01) / 1.04)
    within_rounding(metrics.nll(y, p), oracle.log_loss(y, p), terms=len(y))


def test_nll_of_a_certain_and_wrong_prediction_is_finite():
    assert metrics.nll([0], np.array([1.0])) == pytest.approx(52 * math.log(2), rel=1e-15, abs=0)
    single = metrics.nll(torch.tensor([0]), torch.tensor([1.0]))
    assert float(single) == pytest.approx(23 * math.log(2), rel=1.2e-7, abs=0)


def test_brier_against_sklearn(task, within_rounding):
    p, y = task
    if p.ndim == 2 and not hasattr(oracle, "d2_brier_score"):
        pytest.skip("scikit-learn 1.6 has no Brier score of several classes")
    within_rounding(metrics.brier(y, p), oracle.brier_score_loss(y, p), terms=len(y))
    if p.ndim == 1:
        within_rounding(metrics.brier(y, columns(p)), metrics.brier(y, p), terms=len(y))


def test_classification_against_sklearn(task, within_rounding):
    p, y = task
    y_hat = columns(p).argmax(1)
    for cls in (0, 1):
        report = metrics.calibration_report(y, p, minority=cls, n_draws=2)
        within_rounding(report["accuracy"], oracle.accuracy_score(y, y_hat), terms=4)
        within_rounding(report["macro_f1"], oracle.f1_score(y, y_hat, average="macro"), terms=16)
        within_rounding(report["recall"], oracle.recall_score(y, y_hat, labels=[cls], average=None)[0], terms=4)
        expected = oracle.precision_score(y, y_hat, labels=[cls], average=None)[0]
        within_rounding(report["precision"], expected, terms=4)


def test_a_class_that_is_never_predicted_or_of_weight_0():
    never = metrics.calibration_report([0, 1], [0.2, 0.3], n_draws=2)
    assert never["precision"] == 0
    assert never["macro_f1"] == pytest.approx(1 / 3, rel=1e-15, abs=0)
    p = np.array([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8]])
    absent = metrics.calibration_report([0, 1, 2], p, weights=[1.0, 1.0, 0.0], n_draws=2)
    assert absent["macro_f1"] == 1


def test_eice_by_hand():
    assert metrics.eice([0.5, 1.1], [0.75, 0.6]) == pytest.approx(0.375, rel=1e-15, abs=0)
    uncertainty = torch.tensor([0.5, 1.0], requires_grad=True)
    (gradient,) = torch.autograd.grad(metrics.eice(uncertainty, torch.tensor([0.75, 0.5])), uncertainty)
    assert gradient.tolist() == [-0.5, 0.5]
    with pytest.raises(ValueError, match="uncertainty must be finite"):
        metrics.eice([math.nan], [0.5])
    with pytest.raises(ValueError, match="uncertainty must have shape"):
        metrics.eice([0.5, 0.5], [0.5])


def test_coverage_counts_the_ends():
    lower, upper = [0.0, 0.2, 0.5, 0.9], [0.1, 0.4, 0.5, 1.0]
    assert metrics.coverage([0.1, 0.5, 0.5, 0.8], lower, upper) == 0.5
    assert metrics.coverage(torch.tensor([0, 0, 0, 1]), torch.tensor(lower), torch.tensor(upper)).dtype == torch.float32
    with pytest.raises(ValueError, match="upper must not be below lower"):
        metrics.coverage([0.5], [1.0], [0.0])
    with pytest.raises(ValueError, match="y_true must have shape"):
        metrics.coverage([0.5, 0.5], [0.0], [1.0])
