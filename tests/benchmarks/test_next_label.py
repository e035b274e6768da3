"""The benchmark of rules that ask for labels: who is asked for, who judges, and how games are summed up."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    names = {"rounds": "labelling.rounds", "main": "bench_next_label", "page": "next_label_page"}
    return SimpleNamespace(**{name: importlib.import_module(path) for name, path in names.items()})


def test_the_nodes_that_judge_are_never_asked_for_and_every_rule_starts_alike(bench):
    task = bench.rounds.SETS["simulated, hard"]()
    first, again = (bench.rounds.start(task, "simulated, hard", 1) for _ in range(2))
    parts = [first.chosen, first.random, first.pool, first.test]
    assert len(np.unique(np.concatenate(parts))) == sum(map(len, parts)) == task.graph.n_nodes
    assert len(first.test) == task.graph.n_nodes // 2
    assert (task.y[first.chosen] == 1).sum() == bench.rounds.PER_CLASS
    assert (task.y[first.random] == 1).sum() >= bench.rounds.MIN_RARE
    assert all(np.array_equal(a, b) for a, b in zip(parts, vars(again).values(), strict=True))
