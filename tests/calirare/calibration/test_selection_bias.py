"""Labels that a model has chosen are no random sample, and labels drawn at random are not taken for such."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch

import calirare
from calirare.calibration import LabelClustering, exchangeable
from calirare.datasets import synthetic_rare
from calirare.graph import Graph, Split
from calirare.run import label_checks
from tests.helpers.command import rough_runs

pytestmark = pytest.mark.slow


def scored(rng: np.random.Generator, n: int = 3000) -> np.ndarray:
    """Returns P(rare) of nodes of which few are likely rare."""
    return 1 / (1 + np.exp(3 - 1.5 * rng.normal(size=n)))


def test_random_labels_raise_no_alarm():
    rng, alarms = np.random.default_rng(0), 0
    for m in (15, 60, 300, 1500) * 20:
        p = rng.permutation(scored(rng))
        alarms += exchangeable(p[:m], p[m:]).doubtful
    assert alarms <= 1


@pytest.mark.parametrize(
    ("chosen", "side"),
    [
        (lambda p, rng: np.argsort(np.abs(p - 0.5))[:150], "too high"),  # uncertain ones
        (lambda p, rng: np.union1d(np.argsort(-p)[:60], rng.choice(len(p), 240)), "too high"),  # alerts looked at
        (lambda p, rng: np.argsort(p)[: len(p) // 2][::8], "wrong"),  # those that looked harmless
    ],
    ids=["uncertain", "alerts", "harmless"],
)
def test_chosen_labels_are_found_out(chosen, side):
    rng = np.random.default_rng(1)
    p = scored(rng)
    labels = chosen(p, rng)
    found = exchangeable(p[labels], np.delete(p, labels))
    assert found.doubtful
    assert f"P(rare) may be {side} on average" in found.sentence()
    assert ("or far too low if a column or the edges leak" in found.sentence()) == (side == "too high")
    assert exchangeable(p[:5], p) is None
    assert exchangeable(p[:99], p, alike=False) is None
    low = exchangeable(p[labels] * 0.9, p[labels].repeat(5), alike=False)
    assert low is None or not low.doubtful  # a closed form lies so far apart by itself


def test_a_difference_that_does_no_harm_is_let_pass_however_sure_it_is():
    rng = np.random.default_rng(2)
    p = scored(rng, 40_000)
    found = exchangeable(p[:20_000] * 1.05, p[20_000:])
    assert found.p_distance < 0.001
    assert not found.doubtful
    assert found.sentence() == ""


@cache
def every() -> Graph:
    return synthetic_rare(1500, seed=0, share=0.08, n_features=4, separation=2.0)


def graph_labelled_at(places: np.ndarray) -> Graph:
    graph = every()
    train = np.sort(places)
    y = np.full(1500, -1)
    y[train] = graph.y.numpy()[train]
    nodes = torch.from_numpy(train)
    empty = nodes[:0]
    return Graph(graph.adjacency, graph.x, torch.from_numpy(y), split=Split(nodes, empty, empty), name="g")


def test_a_run_says_so_and_is_trusted_less():
    rng = np.random.default_rng(3)
    alerts = np.flatnonzero(every().y.numpy() == 1)[:90]  # of an enriched register: nearly all there are
    with rough_runs():
        enriched = graph_labelled_at(np.union1d(alerts, rng.choice(1500, 200, replace=False)))
        outcome = calirare.train(enriched, model="trees")
        said = outcome.metrics
        told = calirare.train(enriched, model="trees", calibrate_on="all").metrics
    assert (said["verdict"]["answer"], said["verdict"]["cause"]) == ("not known", "labels")
    assert outcome.verdict.sentence == said["verdict"]["sentence"]
    assert "not a random sample" in said["verdict"]["sentence"]
    assert "random sample" not in " ".join(said["notes"])  # which would say the opposite
    assert told["verdict"]["answer"] == "calibrated"  # calibrate_on=all is believed


@pytest.mark.parametrize("model", ["hops", "trees"])
def test_labels_of_the_nodes_with_most_neighbours_are_no_random_sample(model, monkeypatch):
    monkeypatch.setattr(label_checks, "exchangeable", lambda *scores, **rest: None)  # whatever the scores tell
    monkeypatch.setattr(label_checks, "_together", lambda *where: LabelClustering(0, 0, 0, 0))
    degrees = every().adjacency.indptr.diff().numpy()
    hubs = np.argsort(-degrees, kind="stable")[:300]
    with rough_runs():
        check = calirare.train(graph_labelled_at(np.sort(hubs)), model=model, folds=2).verdict
    assert (check.answer, check.cause) == ("not known", "labels")
    assert "have values of 'number of neighbours' that no node with one of these labels has" in check.sentence
