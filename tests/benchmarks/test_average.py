"""Other averages of detectors: the one to compare with is the product's, and the page says what was measured."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
import torch

from calirare.datasets import synthetic_rare
from tests.helpers.tolerance import assert_within, sum_bound

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_the_average_to_compare_with_is_that_of_auto(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    bench, tasks = importlib.import_module("bench_average"), importlib.import_module("detection.tasks")
    task = tasks.Task(synthetic_rare(400, seed=3, n_features=4, share=0.2))
    cell = bench.Cell(tasks.draw(task, "scarce", 0))
    own, test = cell.average(cell.members)
    for made, want in ((own, cell.fit.own_logits), (test, cell.fit.logits_of(cell.graph, cell.test))):
        p = want.exp()
        assert_within(made.exp(), p, sum_bound(p, 64, p, out=torch.float64))
    bagged = cell.average(cell.members, bagged=tuple(cell.members))[1]
    assert float((bagged - test).abs().max()) > 1e-3
