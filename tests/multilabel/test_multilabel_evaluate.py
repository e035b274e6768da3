from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import f1_score, hamming_loss, log_loss

from calirare_multilabel import accuracy_measures, marginal_ece, multilabel_report, noise_floor


def sample(n: int = 300, k: int = 4, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    f = rng.random((n, k)) ** 2
    return f, (rng.random((n, k)) < f).astype(int)


def test_accuracy_measures_agree_with_scikit_learn():
    f, y = sample()
    y[:, 3] = 0
    f[:, 3] = np.minimum(f[:, 3], 0.4)  # neither present nor predicted: counts 0 in macro F1
    ours = accuracy_measures(y, f)
    predicted = (f > 0.5).astype(int)
    expected = {
        "hamming_loss": hamming_loss(y, predicted),
        "subset_accuracy": np.mean((predicted == y).all(1)),
        "macro_f1": f1_score(y, predicted, average="macro", zero_division=0),
        "micro_f1": f1_score(y, predicted, average="micro"),
        "nll": np.mean([log_loss(y[:, j], f[:, j], labels=[0, 1]) for j in range(4)]),
        "brier": np.mean((f - y) ** 2),
    }
    assert ours == pytest.approx(expected, rel=1e-12, abs=0)


@pytest.mark.parametrize("n_bins", [1, 10, 15])
def test_marginal_ece_by_loops(n_bins):
    f, y = sample(100, 3)
    f[:5, 0], f[5:9, 0] = 0.0, 1.0
    total = 0.0
    for j in range(3):
        for m in range(n_bins):
            inside = (f[:, j] > m / n_bins) & (f[:, j] <= (m + 1) / n_bins) | ((m == 0) & (f[:, j] == 0))
            if inside.any():
                total += inside.mean() * abs(f[inside, j].mean() - y[inside, j].mean())
    assert marginal_ece(y, f, n_bins=n_bins) == pytest.approx(total / 3, rel=1e-12, abs=0)
    with pytest.raises(ValueError, match="n_bins"):
        marginal_ece(y, f, n_bins=0)
    with pytest.raises(TypeError, match="marginal_ece: n_bins must be an integer, got float"):
        marginal_ece(y, f, n_bins=1.5)


def test_noise_floor_is_what_a_calibrated_model_reads():
    f, y = sample(2000, 3)
    mean, deviation = noise_floor(marginal_ece, f, repeats=20, seed=1)
    assert mean > 5 * deviation > 0
    assert abs(marginal_ece(y, f) - mean) < 5 * deviation
    assert marginal_ece(1 - y, f) > 10 * mean
    assert noise_floor(marginal_ece, f, repeats=20, seed=1) == (mean, deviation)
    with pytest.raises(ValueError, match="repeats"):
        noise_floor(marginal_ece, f, repeats=1)
    with pytest.raises(TypeError, match="noise_floor: repeats must be an integer, got float"):
        noise_floor(marginal_ece, f, repeats=2.5)


def test_report_names_everything_and_leaves_kernels_out_of_large_data():
    f, y = sample(200, 2)
    report = multilabel_report(y, f, floors=2)
    names = {"copula", "copula_floor", "copula_threshold", "kde", "kde_residual", "marginal_ece", "hamming_loss"}
    assert names | {"macro_f1"} <= set(report)
    assert all(np.isfinite(value) for value in report.values())
    assert "kde" not in multilabel_report(y, f, max_kde_rows=100)
