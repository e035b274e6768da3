from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest


@pytest.fixture
def within_rounding() -> Callable[..., None]:
    """Asserts |actual - expected| <= terms * eps * scale: what a sum of so many rounded terms may be off by."""

    def check(actual, expected, *, terms: int, dtype=np.float64, scale: float | None = None) -> None:
        actual, expected = np.asarray(actual, dtype=np.float64), np.asarray(expected, dtype=np.float64)
        assert actual.shape == expected.shape
        size = np.abs(expected).max() if scale is None else scale
        bound = terms * float(np.finfo(dtype).eps) * size
        worst = float(np.abs(actual - expected).max())
        assert worst <= bound, f"off by {worst:.3g}, allowed {bound:.3g}"

    return check


@pytest.fixture(params=["multiclass", "binary"])
def task(request) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities with ties, exact zeros and ones, and labels drawn from something else."""
    rng = np.random.default_rng(7)
    n = 503
    if request.param == "binary":
        p = np.round(rng.beta(0.4, 1.2, n), 2)
        p[:5] = [0.0, 1.0, 0.5, 0.2, 0.8]
        return p, (rng.random(n) < p**0.7).astype(np.int64)
    logits = rng.normal(size=(n, 4)) * 2
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    p[0] = [0.0, 1.0, 0.0, 0.0]
    p[1] = [0.25, 0.25, 0.25, 0.25]
    return p, rng.integers(0, 4, n)
