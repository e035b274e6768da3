from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import beta

from calirare_multilabel import kde_calibration_error
from calirare_multilabel.evaluate import BANDWIDTHS


def sample(n: int = 30, k: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    f = rng.random((n, k))
    return f, (rng.random((n, k)) < f).astype(int)


def brute(f: np.ndarray, aim: np.ndarray, h: float) -> tuple[np.ndarray, float]:
    """Leave-one-out kernel means by two loops over scipy's Beta density, and the mean log density."""
    n = len(f)
    kernel = np.array([beta.pdf(f[a], f / h + 1, (1 - f) / h + 1).prod(1) for a in range(n)])
    np.fill_diagonal(kernel, 0)
    return kernel @ aim / kernel.sum(1, keepdims=True), np.log(kernel.sum(1)).mean()


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("h", [0.03, 0.5])
def test_equal_to_two_loops(p, h):
    f, y = sample()
    expected = (np.abs(brute(f, y, h)[0] - f) ** p).mean(0)
    found = kde_calibration_error(y, f, norm=p, bandwidth=h)
    np.testing.assert_allclose(found.per_label.numpy(), expected, rtol=1e-9, atol=0)
    assert found.value == pytest.approx(expected.sum(), rel=1e-9, abs=0)
    residual = (np.abs(brute(f, y - f, h)[0]) ** p).mean(0)
    found = kde_calibration_error(y, f, norm=p, bandwidth=h, target="residuals")
    np.testing.assert_allclose(found.per_label.numpy(), residual, rtol=1e-9, atol=0)


def test_marginal_is_canonical_of_each_label():
    f, y = sample()
    whole = kde_calibration_error(y, f, mode="marginal", bandwidth=0.1)
    for j in range(3):
        alone = kde_calibration_error(y[:, j : j + 1], f[:, j : j + 1], bandwidth=0.1)
        assert float(whole.per_label[j]) == pytest.approx(alone.value, rel=1e-12, abs=0)
    assert whole.bandwidths == (0.1, 0.1, 0.1)


def test_bandwidth_rules_pick_the_best_of_the_grid():
    f, y = sample(25, 2)
    fits = [brute(f, y, h) for h in BANDWIDTHS]
    likelihoods, risks = [fit[1] for fit in fits], [((fit[0] - y) ** 2).mean() for fit in fits]
    assert kde_calibration_error(y, f).bandwidths == (BANDWIDTHS[int(np.argmax(likelihoods))],)
    assert kde_calibration_error(y, f, bandwidth="regression").bandwidths == (BANDWIDTHS[int(np.argmin(risks))],)


def test_chunks_change_nothing(monkeypatch):
    f, y = sample(50)
    whole = kde_calibration_error(y, f, bandwidth=0.1).value
    monkeypatch.setattr("calirare_multilabel.evaluate.CHUNK_ENTRIES", 350)
    assert kde_calibration_error(y, f, bandwidth=0.1).value == pytest.approx(whole, rel=1e-13, abs=0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "joint"}, "mode must be one of canonical, marginal"),
        ({"bandwidth": 0.0}, "bandwidth must be positive"),
        ({"norm": 0.5}, "norm must be"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        kde_calibration_error(*sample()[::-1], **options)
