"""Other averages of detectors: the one to compare with is the product's, and the page says what was measured."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from calirare.datasets import synthetic_rare
from tests.helpers.tolerance import assert_within, sum_bound

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return importlib.import_module("bench_average")


def test_the_page_says_what_was_measured(bench: Any) -> None:
    told = json.loads((ROOT / "benchmarks" / "results" / "average.json").read_text(encoding="utf-8"))["results"]
    page = (ROOT / "docs" / "research" / "detection.md").read_text(encoding="utf-8")
    assert "\n".join(bench.table(told)) in page


@pytest.mark.slow
def test_the_average_to_compare_with_is_that_of_auto(bench: Any) -> None:
    tasks = importlib.import_module("detection.tasks")
    task = tasks.Task(synthetic_rare(400, seed=3, n_features=4, share=0.2))
    cell = bench.Cell(tasks.draw(task, "scarce", 0))
    own, test = cell.average(cell.members)
    for made, want in ((own, cell.fit.own_logits), (test, cell.fit.logits_of(cell.graph, cell.test))):
        p = want.exp()
        assert_within(made.exp(), p, sum_bound(p, 64, p, out=torch.float64))
    bagged = cell.average(cell.members, bagged=tuple(cell.members))[1]
    assert float((bagged - test).abs().max()) > 1e-3
