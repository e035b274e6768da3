"""`gat`, `gin` and `sage` as detectors: every label has an answer by a network that has not seen it."""

from __future__ import annotations

import dataclasses
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest
import torch
from torch.nn import functional as F

import calirare
from calirare._util.errors import InputError
from calirare.models import PYG, GinTraining, KnownGraph, PygDetector, PygFit, SageTraining, pyg_folds
from calirare.models.pyg_folds import Together
from calirare.run import Settings, ignored_settings
from tests.helpers.command import rough_runs
from tests.helpers.tasks import rare_task
from tests.helpers.tolerance import assert_identical

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def graph():
    return rare_task()


@pytest.fixture(scope="module")
def sage(graph):
    return PygDetector(SageTraining(hidden=4, epochs=12), choose=False).fit(graph, graph.split.train)


@pytest.mark.parametrize("kind", PYG)
def test_a_label_is_not_seen_by_the_network_that_answers_for_it(graph, kind):
    training, nodes = PYG[kind](epochs=6, hidden=4), graph.split.train
    fold, y = torch.arange(len(nodes)) % 3, graph.y.clone()
    y[nodes[fold == 0]] = 1 - y[nodes[fold == 0]]
    flipped = dataclasses.replace(graph, y=y)
    said = []
    for each in (graph, flipped):
        together = Together(training, each, nodes, torch.ones(len(nodes)), fold)
        said.append(together.fitted(together.take(6)))
    assert_identical(said[0].own_logits[fold == 0], said[1].own_logits[fold == 0])
    assert float((said[0].own_logits - said[1].own_logits)[fold == 1].abs().max()) > 1e-3
    assert float((said[0].in_sample - said[1].in_sample).abs().max()) > 1e-3


@pytest.mark.parametrize("kind", PYG)
def test_what_other_threads_draw_changes_no_number(graph, kind):
    detector, nodes = PygDetector(PYG[kind](epochs=5, hidden=4), choose=False), graph.split.train
    alone, done = detector.fit(graph, nodes), Event()

    def draw() -> None:
        while not done.is_set():
            torch.rand(3)

    with ThreadPoolExecutor(3) as pool:
        pool.submit(draw)
        beside = [pool.submit(detector.fit, graph, nodes) for _ in range(2)]
        said = [each.result().own_logits for each in beside if not each.exception()]
        done.set()
    assert len(said) == 2
    for each in said:
        assert_identical(each, alone.own_logits)


def test_epochs_are_those_of_the_lowest_loss_without_each_label(graph, monkeypatch):
    def fit(choose: bool, epochs: int) -> PygFit:
        return PygDetector(SageTraining(hidden=4, learning_rate=0.1, epochs=epochs), choose).fit(graph, nodes)

    def loss(fitted: PygFit) -> float:
        losses = F.cross_entropy(fitted.own_logits, fitted.targets, reduction="none")
        return float((fitted.sample_weights.double() * losses).mean())

    monkeypatch.setattr(pyg_folds, "MOST_EPOCHS", 30)
    nodes = graph.split.train
    chosen = fit(True, 1)
    every = {epochs: fit(False, epochs) for epochs in (10, 20, 30)}
    losses = {epochs: loss(fitted) for epochs, fitted in every.items()}
    best = min(losses, key=losses.__getitem__)
    assert best < 30, "the last would be taken without a choice"
    assert chosen.training.epochs == best
    assert_identical(chosen.own_logits, every[best].own_logits)
    assert_identical(chosen.logits_of(graph), every[best].logits_of(graph))


def test_some_nodes_are_told_as_all_are_by_every_network(graph, sage):
    some = torch.tensor([7, 3, 200])
    for nodes in (some, sage.nodes):
        every, parts = sage.all_logits_of(graph), sage.all_logits_of(graph, nodes)
        assert float((every[0][nodes] - parts[0]).abs().max()) < 1e-5
        assert float((every[1][:, nodes] - parts[1]).abs().max()) < 1e-5
    own = parts[1][sage.fold, torch.arange(len(sage.nodes))]
    assert float((own - sage.own_logits).abs().max()) < 1e-5
    assert float((parts[0] - sage.label_logits).abs().max()) < 1e-5


@pytest.mark.parametrize("kind", PYG)
def test_a_state_gives_the_same_networks_again(graph, kind):
    fitted = PygDetector(PYG[kind](epochs=3, hidden=4), choose=False).fit(graph, graph.split.train)
    again = PygFit.from_state(*fitted.state())
    for before, after in zip(fitted.all_logits_of(graph), again.all_logits_of(graph), strict=True):
        assert_identical(after, before)
    assert again.training == fitted.training


def test_a_saved_run_scores_as_the_outcome_does(graph, tmp_path, monkeypatch):
    with rough_runs():
        outcome = calirare.train(graph, model="sage", epochs=10, hidden=8)
        outcome.save(tmp_path / "run")
    loaded = calirare.load(tmp_path / "run")
    assert outcome.metrics["detection"], "measured as any other"
    assert_identical(loaded.fit.logits_of(outcome.mapped), outcome.logits)
    assert bool((outcome.jackknife.lower <= outcome.jackknife.upper).all())
    (why,) = outcome.explain([7]).each
    assert why.p_rare == pytest.approx(float(outcome.probabilities("population")[7, 1]), abs=1e-5)
    assert why.base + sum(each.share for each in why.features) == pytest.approx(why.log_odds, abs=1e-5)
    assert len(loaded.next_labels(3, outcome.graph).nodes) == 3
    with pytest.raises(InputError, match="new nodes: sage cannot be asked about them"):
        KnownGraph(outcome.fit, outcome.mapped)
    monkeypatch.setattr(pyg_folds, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"^model sage needs torch_geometric"):
        calirare.load(tmp_path / "run")


def test_what_cannot_be_is_a_sentence(graph, monkeypatch):
    with pytest.raises(InputError, match="weight_decay must be a number with model gat, got auto"):
        calirare.train(graph, model="gat", weight_decay="auto")
    huge = dataclasses.replace(graph, x=graph.x * 1e18)
    away = PygDetector(GinTraining(learning_rate=1e30, hidden=4))
    with pytest.raises(InputError, match="gin: training ran away"):
        away.fit(huge, graph.split.train)
    monkeypatch.setattr(pyg_folds, "find_spec", lambda name: None)
    with pytest.raises(InputError, match="model gin needs torch_geometric, which is not installed: pip install"):
        PygDetector(GinTraining()).fit(graph, graph.split.train)
    notes = ignored_settings(Settings.of(model="gat", n_layers=3, hops=2, epochs=5))
    assert notes == ["n_layers and hops changed nothing with model gat: they belong to models gcn and hops"]
