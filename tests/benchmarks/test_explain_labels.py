"""The comparison of labels' effects: peers read the same network, and the score is 1 where effects add up."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def bench(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return importlib.import_module


def test_the_score_is_one_where_effects_add_up_and_none_where_they_say_nothing(bench):
    draw = torch.Generator().manual_seed(0)
    change = torch.randn(20, 4, generator=draw, dtype=torch.float64)
    gone = torch.rand(30, 20, generator=draw) < 0.5
    said = 3 + gone.double() @ change
    score = bench("bench_explain_labels").datamodelling_score
    assert score(change, gone, said) == pytest.approx(1)
    assert score(-change, gone, said) == pytest.approx(-1)
    assert abs(score(torch.randn(20, 4, generator=draw, dtype=torch.float64), gone, said)) < 0.5


def test_the_page_says_what_was_measured(bench):
    page = bench("explain_page")
    found = json.loads((ROOT / "benchmarks" / "results" / "explain_labels.json").read_text(encoding="utf-8"))["results"]
    told = page.PAGE.read_text(encoding="utf-8").partition(page.LABELS_BEGIN)[2].partition(page.LABELS_END)[0]
    assert told == page.label_peers_page(found)
