"""A detector that the library does not have, one class and one line of the registry, through all that a run does."""

import dataclasses
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from sklearn.neighbors import NearestNeighbors

import calirare
from calirare.metrics import auroc
from calirare.models import DETECTORS, ColumnDetector, Entry
from tests.helpers.tasks import rare_task
from tests.helpers.tolerance import assert_identical

PRIOR = 0.5  # of a label's weight for each class: no class is impossible


@dataclass(frozen=True, kw_only=True)
class NearestLabels(ColumnDetector):
    """The classes of the labelled nodes whose columns are most alike."""

    k: int = 15

    def learn(self, rows, targets, weights, n_classes):
        index = NearestNeighbors(n_neighbors=min(self.k, len(rows))).fit(rows)
        votes = np.eye(n_classes)[targets] * weights[:, None]
        return lambda some: np.log(votes[index.kneighbors(some, return_distance=False)].sum(1) + PRIOR)


@pytest.fixture(scope="module", autouse=True)
def _registered():
    DETECTORS["nearest"] = Entry(NearestLabels)
    yield
    del DETECTORS["nearest"]


@pytest.fixture(scope="module")
def task():
    return rare_task(node_names=np.array([f"n{i}" for i in range(260)]))


@pytest.fixture(scope="module")
def outcome(task):
    return calirare.train(task, model="nearest")


@pytest.fixture(scope="module")
def saved(outcome, tmp_path_factory):
    folder = tmp_path_factory.mktemp("own") / "run"
    outcome.save(folder)
    return calirare.load(folder)


def test_it_is_trained_with_folds_calibrated_and_detects(outcome):
    assert type(outcome.fit.detector) is NearestLabels
    assert float(auroc(outcome.fit.targets, outcome.own_logits.softmax(1))) > 0.7
    held = outcome.fit.fold == 0
    again = outcome.fit.learned_without(torch.nonzero(held).flatten().numpy())(outcome.fit.rows[held].numpy())
    assert np.array_equal(again, outcome.fit.own_logits[held].numpy())
    ends = outcome.jackknife
    assert bool((ends.lower <= ends.upper).all())


def test_a_saved_run_scores_its_graph_another_graph_and_new_nodes_alike(outcome, saved, task):
    assert_identical(saved.fit.logits_of(saved.mapped(task)), outcome.logits)
    other = rare_task(seed=1, n_nodes=200)
    quiet = {"say": lambda note: None}
    assert saved.predict(other, **quiet)["p_rare"].equals(outcome.predict(other, **quiet)["p_rare"])
    scorer = calirare.Scorer.open(saved, task)
    new = scorer.score(task.x[3] + 0.1, ["n5", "n17"])
    assert 0 < float(new.rare[0]) < 1


@pytest.mark.slow
def test_it_tells_three_classes_in_a_pool_with_neighbours_too(tmp_path):
    graph = rare_task(n_classes=3)
    outcome = calirare.train(graph, model="nearest", task="classes")
    outcome.save(tmp_path / "run")
    saved = calirare.load(tmp_path / "run")
    assert_identical(saved.fit.logits_of(saved.mapped(graph)), outcome.logits)
    assert len(saved.audit(graph).p_wrong) == saved.fit.nodes.numel()
    assert "trained again without each" in str(saved.explain([3], graph=graph))


def test_edges_and_labels_are_explained_by_what_it_would_say_without_them(saved, task):
    node = int(saved.graph(task).split.test[0])
    found = saved.explain([f"n{node}"], graph=task)
    assert "trained again without each" in str(found)
    mapped = saved.mapped(task)
    model = saved.explainer(task).model
    near = task.adjacency.indices[task.adjacency.indptr[node] : task.adjacency.indptr[node + 1]].long()
    ends = torch.stack([torch.full_like(near, node), near], 1)
    dense = mapped.adjacency.to_dense()
    for (a, b), z in zip(ends.tolist(), model.without_edges(node, ends), strict=True):
        cut = dense.clone()
        cut[a, b] = cut[b, a] = 0
        graph = dataclasses.replace(mapped, adjacency=type(mapped.adjacency).from_dense(cut))
        logits = saved.fit.logits_of(graph, torch.tensor([node]))[0]
        assert float(z[1] - z[0]) == pytest.approx(float(logits[1] - logits[0]))
    without = model.without_each_label(torch.tensor([node]))
    assert without.shape == (saved.fit.nodes.numel(), 1, 2)
    assert float((without - model.logits(torch.tensor([node]))).abs().max()) > 0


def test_its_labels_are_audited_and_messages_name_it(saved, task):
    assert len(saved.audit(task).p_wrong) == saved.fit.nodes.numel()
    with pytest.raises(calirare.InputError, match="forest, nearest, given"):
        calirare.train(task, model="nearer")
