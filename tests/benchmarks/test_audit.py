"""The audit's benchmark: what is made wrong on purpose, and the peer's rule."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
TRUE = np.repeat([0, 1], [160, 40])


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return SimpleNamespace(**{part: importlib.import_module(f"auditing.{part}") for part in ("tasks", "peers")})


@pytest.mark.parametrize(
    ("noise", "wrong", "of_rare"), [("none", 0, 0), ("random 10", 20, None), ("by class 20", 16, 8)]
)
def test_as_many_labels_are_wrong_as_the_noise_says(bench, noise, wrong, of_rare):
    given = bench.tasks.noisy(TRUE, noise, np.random.default_rng(0))
    assert (given != TRUE).sum() == wrong
    if of_rare is not None:
        assert ((given != TRUE) & (TRUE == 1)).sum() == of_rare
