"""The comparison of labels' effects: peers read the same network, and the score is 1 where effects add up."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest
import torch

from calirare.models import GcnTraining, MlpTraining
from tests.helpers.tasks import rare_task

ROOT = Path(__file__).resolve().parents[2]
FLOAT32 = 300 * torch.finfo(torch.float32).eps  # sums of at most a few hundred numbers


@pytest.fixture
def bench(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return importlib.import_module


@pytest.mark.parametrize("training", [GcnTraining(epochs=30), MlpTraining(epochs=30, hidden=8)])
def test_peers_read_the_network_that_is_explained(bench, training):
    task = rare_task()
    fitted, nodes = training.fit(task, task.split.train), task.split.test[[7, 0, 3]]
    field = fitted.evaluation_field(task, torch.cat([fitted.nodes, nodes]))
    peers = bench("explaining.label_peers").LabelPeers(fitted, field, nodes.numel())
    places = torch.cat([peers.labels[0], peers.nodes[0]])
    truth = fitted.logits_at(field)
    assert (peers.model(places) - truth).abs().max() <= FLOAT32 * (1 + truth.abs().max())
    assert (truth - truth[0]).abs().max() > 100 * FLOAT32
    (place, y, weight), labels = peers.labels, bench("explaining.label_peers")
    lost = labels._loss(peers.model(place), y, weight)
    packed = labels._packed(peers.labels, 1.0)
    apart = (labels._packed_loss(peers.model(packed[0]), packed[1]) - lost).detach().abs()
    assert float(apart) <= FLOAT32 * (1 + float(lost.detach()))
    asked = labels._packed(peers.nodes, 0.0)
    said = truth[-nodes.numel() :]
    odds = float((said[:, 1] - said[:, 0]).mean())
    asked_odds = float(labels._packed_loss(peers.model(asked[0]), asked[1]).detach())
    assert abs(asked_odds - odds) <= FLOAT32 * (1 + abs(odds))


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
