"""The linear member of `auto` reads hop columns or propagated features, whichever leave-one-out prefers."""

from __future__ import annotations

import dataclasses
from unittest import mock

import numpy as np
import pytest
import torch

import calirare
from calirare.graph import Graph
from calirare.leave_one_out import OwnLogits
from calirare.models import GcnFit, GcnTraining, HopColumns, MlpFit, MlpTraining, class_weights
from calirare.run import auto
from calirare_ext import Csr
from tests.helpers.command import rough_runs
from tests.helpers.tasks import rare_task

pytestmark = pytest.mark.slow

N_WORDS = 400  # more than the directions that columns have


def words_task() -> Graph:
    """A rare-class task with counts of words, of which the class shifts all a little; node 7 has none."""
    graph, rng = rare_task(), np.random.default_rng(0)
    shift = np.where(np.arange(N_WORDS) % 2, 0.1, 0.0)
    counts = rng.poisson(0.05 + shift * graph.y.numpy()[:, None]).astype(np.float32)
    counts[7] = 0
    names = tuple(f"word {i}" for i in range(N_WORDS))
    return dataclasses.replace(graph, x=Csr.from_dense(torch.from_numpy(counts)), feature_names=names, trusted=True)


def task_of(graph: Graph) -> auto.Task:
    nodes = graph.split.train
    weights = class_weights(graph.y[nodes], 2)[graph.y[nodes]].float()
    return auto.Task(graph, nodes, weights, 0, lambda name: None)


def length_of(graph: Graph) -> float:
    return float(graph.x.to_dense()[graph.split.train].double().square().sum(1).mean())


def own_loss(detector: GcnTraining, task: auto.Task) -> tuple[float, GcnFit]:
    fitted, _ = detector.fit_to_convergence(
        task.graph, task.nodes, sample_weights=task.weights, tolerance=1e-5, max_steps=300
    )
    own = OwnLogits(fitted.linearisation)(detector.weight_decay)
    return auto.mean_loss(own, task), fitted


@pytest.fixture(scope="module")
def graph():
    return words_task()


@pytest.fixture(scope="module")
def outcome(graph):
    few_trees = mock.patch("calirare.models.trees.TreesTraining._most", 20)  # linear models are looked at
    with rough_runs(), few_trees:
        return calirare.train(graph)


def networks_of(outcome) -> dict[str, GcnFit]:
    return {each.name: each.fitted.network for each in outcome.fit.members if hasattr(each.fitted, "network")}


def test_what_leave_one_out_prefers_is_taken(graph):
    task = task_of(graph)
    columns = HopColumns.fit(graph, 2, 0, task.nodes)
    chosen = auto.linear(task, columns).network
    loss = auto.mean_loss(OwnLogits(chosen.linearisation)(chosen.weight_decay), task)
    on_columns = [MlpTraining(n_layers=1, weight_decay=decay, columns=columns) for decay in auto.LINEAR_DECAYS]
    decays = [share * length_of(graph) for share in auto.SHARES]
    propagated = [GcnTraining(n_layers=1, hops=hops, weight_decay=decay) for hops in (1, 2) for decay in decays]
    assert type(chosen) is GcnFit
    assert loss == pytest.approx(min(own_loss(each, task)[0] for each in propagated), rel=1e-4)
    assert loss < min(own_loss(each, task)[0] for each in on_columns)


def test_weight_decay_follows_the_scale_of_features(graph):
    first = auto.linear(task_of(graph), HopColumns.fit(graph, 2, 0)).network
    ten = graph.x.to_dense() * 10
    tenfold = dataclasses.replace(graph, x=Csr.from_dense(ten), trusted=True)
    other = auto.linear(task_of(tenfold), HopColumns.fit(tenfold, 2, 0)).network
    assert other.weight_decay == pytest.approx(100 * first.weight_decay, rel=1e-5)
    said = torch.stack([first.label_logits[:, 1], other.label_logits[:, 1]])
    assert float(torch.corrcoef(said)[0, 1]) > 0.95, "the same but for the intercept's penalty"


def test_many_labels_columns_without_neighbours_and_numbers_do_not_ask_for_it(graph, monkeypatch):
    task, numbers = task_of(graph), rare_task()
    assert type(auto.linear(task_of(numbers), HopColumns.fit(numbers, 2, 0)).network) is MlpFit
    alone, near = HopColumns.fit(graph, 0, 0), HopColumns.fit(graph, 2, 0)
    assert type(auto.linear(task, alone).network) is MlpFit
    monkeypatch.setattr(auto, "SCARCE", task.nodes.numel() - 1)
    assert type(auto.linear(task, near).network) is MlpFit


def test_words_that_are_all_0_have_a_linear_member(graph):
    nothing = dataclasses.replace(graph, x=Csr.from_dense(torch.zeros(graph.n_nodes, N_WORDS)), trusted=True)
    read = HopColumns.fit(graph, 2, 0)
    assert bool(auto.linear(task_of(nothing), read).own_logits.isfinite().all())


def test_a_run_of_words_has_a_linear_convolution_and_a_linear_model_without_edges(outcome):
    found = networks_of(outcome)
    assert type(found["linear"]) is GcnFit
    assert found["linear"].model.n_layers == 1
    assert type(found[auto.NO_EDGES]) is MlpFit
    assert next(row.weight for row in outcome.choice.rows if row.name == "linear") > 0.05
