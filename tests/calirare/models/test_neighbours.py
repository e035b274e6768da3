"""Neighbours and theirs are heard as much as left-out labels say, in memory and from disk, alone or in parts."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from torch.nn import functional as F

from calirare.features import FeatureMap
from calirare.graph import Graph, GraphOnDisk
from calirare.models import (
    GcnTraining,
    NeighbourPool,
    TreesTraining,
    evidence,
    fold_network,
    logits_on_disk,
    passes,
    pool_weights,
    streams_of,
)
from calirare.models.neighbours import FLOOR, HOPS, log_shares
from tests.calirare.models.test_label_propagation import weighted_task
from tests.calirare.models.test_streams import mixture
from tests.helpers.tasks import rare_task
from tests.helpers.tolerance import assert_identical, assert_within, sum_bound

GRAPH = rare_task(seed=2, n_classes=3)
SHARES = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64).log()


@cache
def pool_of_trees(n_classes: int = 3) -> tuple[NeighbourPool, Graph]:
    graph = rare_task(seed=2, n_classes=n_classes)
    nodes = torch.cat([graph.split.train, graph.split.val])
    return NeighbourPool.of(TreesTraining(rounds=5, folds=3).fit(graph, nodes), graph), graph


@cache
def made(kind: str) -> tuple[NeighbourPool, FeatureMap, torch.Tensor]:
    """A pool on `GRAPH`, the map of its features, and its logits."""
    if kind == "mixture":
        fit, features = mixture(GRAPH)
    else:
        features = FeatureMap.fit(GRAPH, "standardize")
        ready, training = features.own(GRAPH), GcnTraining(epochs=8)
        fit = fold_network(training, ready, training.fit(ready, GRAPH.split.train), 3)
    pool = NeighbourPool.of(fit, features.own(GRAPH))
    return pool, features, pool.logits_of(features.own(GRAPH))


def said_by(graph: Graph, logits: torch.Tensor) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Returns p, M p, .., M^T p by dense algebra, and the bounds of their float32 sums."""
    a = graph.adjacency.to_dense().double()
    mean = a / a.sum(1, keepdim=True).clamp(min=1e-300)
    p = torch.softmax(logits, 1)
    means = [torch.linalg.matrix_power(mean, t) @ p for t in range(HOPS + 1)]
    terms = int(graph.adjacency.indptr.diff().max()) + 4  # of a row, its mean's division, roundings to float32
    return means, [sum_bound(q, terms * (t + 1), q, out=torch.float32) for t, q in enumerate(means)]


def test_evidence_is_that_of_powers_of_the_mean_with_a_floor() -> None:
    graph = weighted_task(3)
    logits = torch.randn(80, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found, degree = evidence(logits, graph.adjacency, SHARES), graph.adjacency.indptr.diff().double()[:, None]
    means, bounds = said_by(graph, logits)
    assert found.shape == (HOPS + 1, 80, 3)
    assert_within(found[0], logits.log_softmax(1) - SHARES, sum_bound(logits, 30, logits.abs() + 10, out=torch.float64))
    for said, mean, bound in zip(found[1:], means[1:], bounds[1:], strict=True):
        heard = (said + SHARES).exp() * (degree + FLOOR)  # d M^t p + c r
        extra = sum_bound(heard, 60, heard, out=torch.float64)
        assert_within(heard, degree * mean + FLOOR * SHARES.exp(), degree * bound + extra)
    assert float(found[1:, 7].abs().max()) < 1e-15  # without a neighbour only the node itself is heard
    assert float(found[1, 8].abs().min()) > 1e-3


def penalised(weights: torch.Tensor, own: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    counts = torch.stack([(labels == c).sum() + 0.5 for c in range(own.shape[2])])
    logits = sum(w * e for w, e in zip(weights, own, strict=True)) + counts.double().log()
    prior = torch.tensor([1.0, *[0.0] * HOPS], dtype=torch.float64)
    return F.cross_entropy(logits, labels, reduction="sum") + ((weights - prior) ** 2).sum() / 2


def test_weights_are_the_minimum_of_the_penalised_loss() -> None:
    generator = torch.Generator().manual_seed(1)
    labels = torch.multinomial(SHARES.exp(), 60, replacement=True, generator=generator)
    noise = torch.randn(HOPS + 1, 60, 3, generator=generator, dtype=torch.float64)
    own = noise + torch.tensor([0.3, 2.0, 0.0, -0.5])[:, None, None] * F.one_hot(labels, 3)
    weights = pool_weights(own, labels)
    slope = torch.autograd.functional.jacobian(lambda w: penalised(w, own, labels), weights)
    assert float(slope.norm()) < 1e-7
    assert float(weights[1]) > 0.5 > float(weights[0])
    assert float(weights[3]) < 0
    for wrong in (pool_weights(own, labels.roll(1)), pool_weights(own.flip(0), labels)):
        assert float(penalised(wrong, own, labels)) > float(penalised(weights, own, labels)) + 1


def test_of_a_label_neighbours_speak_by_the_model_without_it() -> None:
    pool, graph = pool_of_trees()
    every, without = pool.all_logits_of(graph)
    place = torch.arange(pool.nodes.numel())
    assert_identical(without[pool.fold, pool.nodes], pool.own_logits)
    assert_identical(every[pool.nodes], pool.in_sample)
    knowing = evidence(pool.base.logits_of(graph), graph.adjacency, pool.shares)[:, pool.nodes]
    assert float((pool_weights(knowing, pool.targets) - pool.weights).abs().max()) > 0.1
    others = (pool.fold + 1) % 3
    assert not torch.equal(without[others, pool.nodes][place], pool.own_logits)


def test_neighbours_lower_the_loss_where_edges_join_a_class() -> None:
    pool, graph = pool_of_trees()
    assert float(pool.weights[1:].sum()) > 0.3
    test, alone = graph.split.test, pool.base.logits_of(graph)
    loss, before = (float(F.cross_entropy(z[test], graph.y[test])) for z in (pool.logits_of(graph), alone))
    assert loss < before - 0.05
    assert "node itself" in pool.sentence


def test_some_nodes_have_what_all_have() -> None:
    pool, graph = pool_of_trees(2)
    some = torch.tensor([5, 0, 77])
    every, without = pool.all_logits_of(graph)
    assert_identical(pool.logits_of(graph, some), every[some])
    assert_identical(pool.all_logits_of(graph, some)[1], without[:, some])
    with pytest.raises(ValueError, match="graph must be given"):
        pool.logits_of(None)


@pytest.mark.parametrize("kind", ["network", "mixture"])
def test_a_pool_that_was_written_is_the_same(kind: str) -> None:
    pool, features, wanted = made(kind)
    tensors, facts = pool.state()
    again = NeighbourPool.from_state({name: each.clone() for name, each in tensors.items()}, facts)
    assert_identical(again.logits_of(features.own(GRAPH)), wanted)
    assert_identical(again.own_logits, pool.own_logits)


@pytest.mark.parametrize("kind", ["mixture", "network"])
def test_a_graph_on_disk_gets_the_logits_of_the_one_in_memory(kind: str, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(passes, "ROWS", 37)
    pool, features, wanted = made(kind)
    assert float(pool.weights[1:].abs().max()) > 0.05
    GRAPH.to_folder(tmp_path / "g")
    stages = set[str]()
    detector = streams_of(pool, features)
    found = logits_on_disk(detector, GraphOnDisk.open(tmp_path / "g"), report=lambda stage, *_: stages.add(stage))
    assert float((found - wanted).abs().max()) < 1e-5
    assert {f"neighbours {hop}" for hop in (1, 2, 3)} < stages
    alone = logits_on_disk(detector.alone, GraphOnDisk.open(tmp_path / "g"))
    assert float((alone - wanted).abs().max()) > 0.01


def test_shares_are_those_of_the_loss_that_was_trained_with() -> None:
    targets, weights = torch.tensor([0, 0, 0, 1]), torch.tensor([1.0, 1.0, 1.0, 3.0])
    assert log_shares(targets, weights, 2).exp().tolist() == pytest.approx([0.5, 0.5])
    assert log_shares(targets, None, 2).exp().tolist() == pytest.approx([0.75, 0.25])
