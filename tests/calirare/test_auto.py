"""`auto`: what is chosen is what labels earned, nothing of a test label is read, and a saved run says the same."""

from __future__ import annotations

import dataclasses

import pytest
import torch

import calirare
from calirare.models import MlpTraining, class_weights, train_folds
from calirare.run import Choice, Row
from calirare.run.auto import NO_EDGES, Task, lowest, mean_loss
from calirare.run.outcome import draw
from calirare_ext import Csr
from tests.helpers.command import few_candidates, rough_runs
from tests.helpers.tasks import rare_task
from tests.helpers.tolerance import assert_identical

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def graph():
    return rare_task()


@pytest.fixture(scope="module")
def outcome(graph):
    """The one training by `auto` of these tests."""
    with rough_runs():
        trained = calirare.train(graph)
        assert trained.metrics, "read once, and kept"
    return trained


def test_every_detector_is_in_the_table_with_its_share(outcome):
    choice = outcome.choice
    assert {row.name for row in choice.rows} == {"trees", "forest", "linear", "hops", "gcn", "spreading", NO_EDGES}
    assert sum(row.weight for row in choice.rows) == pytest.approx(1, abs=1e-12)
    assert [row.weight for row in choice.rows] == [member.weight for member in outcome.fit.members]
    assert choice.loss < max(row.loss for row in choice.rows)
    assert outcome.metrics["choice"] == choice.to_mapping()
    for line in choice.lines():
        assert line in outcome.summary(verbose=True)


def test_a_network_is_chosen_by_networks_that_have_not_seen_the_label(graph):
    nodes = graph.split.train
    task = Task(graph, nodes, class_weights(graph.y[nodes], 2)[graph.y[nodes]].float(), 0, lambda name: None)
    decays = (5e-4, 5e-2, 5.0)
    detectors = [MlpTraining(weight_decay=decay, hidden=16, epochs=60) for decay in decays]
    trials = [train_folds(each, graph, nodes, task.weights, task.n_folds)[2] for each in detectors]
    losses = [mean_loss(own_logits, task) for own_logits in trials]
    best = losses.index(min(losses))
    chosen = lowest(task, detectors)
    assert chosen.network.weight_decay == decays[best]
    assert_identical(chosen.own_logits, trials[best])
    seen = [mean_loss(each.fit(graph, nodes).label_logits, task) for each in detectors]
    assert seen.index(min(seen)) != best, "the loss on what was learnt would have chosen another"


def test_a_saved_run_scores_and_explains_as_the_outcome_does(outcome, graph, tmp_path):
    with rough_runs():
        outcome.save(tmp_path / "run")
    saved, table = calirare.load(tmp_path / "run"), outcome.to_frame()
    found = saved.predict(graph)
    for name in ("p_rare", "p_low", "p_high", "p_balanced", "p_raw", "p_correct"):
        assert (found[name] - table[name]).abs().max() == 0, name
    here = outcome.explain(top=2)
    again = saved.explain(top=2, graph=graph)
    for one, other in zip(here, again, strict=True):
        assert (one.node, one.sentences) == (other.node, other.sentences)
        for reasons in ("labels", "edges"):
            pairs = zip(getattr(one, reasons), getattr(other, reasons), strict=True)
            # Networks are float32, and a folder holds their inputs multiplied out in another order.
            assert all(a.node == b.node and a.effect == pytest.approx(b.effect, abs=1e-5) for a, b in pairs)
    p = outcome.probabilities("population")[:, 1]
    for each in here:
        assert each.p == pytest.approx(float(p[each.node]), abs=1e-6)  # networks are float32
        assert each.base + sum(share.share for share in each.features) == pytest.approx(each.log_odds, abs=1e-9)


def test_a_run_draws_what_every_budget_buys(outcome, tmp_path):
    draw(outcome, tmp_path)
    assert (tmp_path / "budget.png").stat().st_size > 10_000


def test_a_graph_without_edges_is_one_of_rows(graph):
    no_end = torch.empty(0, dtype=torch.int64)
    none = Csr.from_coo(no_end, no_end, None, (graph.n_nodes, graph.n_nodes))
    with rough_runs(), few_candidates():
        found = calirare.train(dataclasses.replace(graph, adjacency=none))
    assert "spreading" not in [row.name for row in found.choice.rows]
    assert bool(found.probabilities("population").isfinite().all())


def test_labels_of_test_nodes_have_no_effect(outcome, graph):
    y = graph.y.clone()
    y[graph.split.test] = 1 - y[graph.split.test]
    other = calirare.train(dataclasses.replace(graph, y=y, original_y=None, minority=None, trusted=True))
    assert_identical(other.logits, outcome.logits)
    assert other.choice == outcome.choice


def test_intervals_are_those_of_models_without_each_fold(outcome):
    assert outcome.jackknife.method == "cross-fitting"
    assert torch.unique(outcome.fit.fold).numel() == 5


def test_the_effect_of_the_graph_is_as_sure_as_its_interval():
    rows = (Row("trees", 1.0, 0.3),)
    said = [Choice(rows, 0.3, gain, 0.01).graph_effect for gain in (0.1, 0.01, -0.1)]
    assert [line.partition(":")[0] for line in said] == ["helps", "has no clear effect", "hurts"]
    assert said[0].endswith("class-balanced log loss lower by 0.100 (95% CI 0.080-0.120)")
    again = Choice.from_mapping(Choice(rows, 0.3, 0.1, 0.01).to_mapping())
    assert again.lines() == Choice(rows, 0.3, 0.1, 0.01).lines()
