"""Edges: what is said without one is what the whole graph without it says."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from calirare.explain import difference, incident_edge_ablation
from calirare.explain.network import ExplainableNetwork
from calirare.explain.network_edges import ConvolutionEdges
from calirare.explain.removal import Propagator, Rows
from calirare.explain.trees import ExplainableTrees
from calirare.graph import Graph, Relation
from calirare.models import GcnTraining, MlpTraining, TreesTraining
from calirare_ext import Csr
from tests.helpers.tasks import rare_task

# Sums of at most a few hundred float32 numbers, through three layers.
EPS = torch.finfo(torch.float64).eps
FLOAT32 = 300 * torch.finfo(torch.float32).eps


def with_weights(graph: Graph, loops: bool = False) -> Graph:
    """The graph with other weights of its edges, the same both ways; `loops`: with some self loops."""
    dense = graph.adjacency.to_dense()
    upper = torch.triu(dense, 1) * (0.5 + torch.rand(dense.shape, generator=torch.Generator().manual_seed(0)))
    weighted = upper + upper.T + (torch.diag((torch.arange(len(dense)) % 5 == 0).float() * 1.5) if loops else 0)
    return dataclasses.replace(graph, adjacency=Csr.from_dense(weighted))


def with_relations(graph: Graph) -> Graph:
    """The graph with its edges as two directed types, most of them one way only."""
    dense = torch.triu(graph.adjacency.to_dense(), 1)
    odd = (torch.arange(dense.numel()).view_as(dense) % 2).float()
    kinds = {"pays": dense * odd, "calls": (dense * (1 - odd)).T.contiguous()}
    relations = tuple(Relation.of(name, Csr.from_dense(matrix)) for name, matrix in kinds.items())
    return dataclasses.replace(graph, relations=relations)


def without(graph: Graph, a: int, b: int) -> Graph:
    """The graph without an edge, of whatever type and direction."""

    def cleared(matrix: Csr) -> Csr:
        dense = matrix.to_dense()
        dense[a, b] = dense[b, a] = 0
        return Csr.from_dense(dense)

    relations = tuple(Relation.of(each.name, cleared(each.out)) for each in graph.relations)
    return dataclasses.replace(graph, adjacency=cleared(graph.adjacency), relations=relations)


def a_leaf(graph: Graph) -> int:
    """A node with a single neighbour."""
    return int((graph.adjacency.indptr.diff() == 1).nonzero()[0])


def assert_as_by_brute_force(model, node: int, ends: torch.Tensor, slack: float = FLOAT32) -> None:
    graph, found = model.graph, model.without_edges(node, ends)
    fitted = model.fitted
    nodes = torch.tensor([node])
    expected = []
    for a, b in ends.tolist():
        logits = fitted.logits_of(without(graph, a, b), nodes)
        expected.append(float(difference(logits)))
    base = float(difference(model.logits(nodes)))
    size = max(abs(z) for z in (base, *expected)) + 1
    assert max(abs(z - base) for z in expected) > 100 * slack * size, "no edge counts: nothing is tested"
    for edge, z, wanted in zip(ends.tolist(), difference(found).tolist(), expected, strict=True):
        assert abs(z - wanted) <= slack * size, (edge, z, wanted)


def edges_of(graph: Graph, node: int) -> torch.Tensor:
    first, last = int(graph.adjacency.indptr[node]), int(graph.adjacency.indptr[node + 1])
    others = graph.adjacency.indices[first:last].long()
    others = others[others != node]
    return torch.stack([torch.full_like(others, node), others], 1)


GRAPHS = {
    "plain": rare_task,
    "weighted, with loops": lambda: with_weights(rare_task(), loops=True),
}


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize(("hops", "layers"), [(1, 1), (1, 2), (2, 2), (1, 3), (3, 1)])
def test_a_graph_convolution_without_each_edge(graph, hops, layers):
    task = GRAPHS[graph]()
    fitted = GcnTraining(epochs=15, hops=hops, n_layers=layers).fit(task, task.split.train)
    model = ExplainableNetwork(fitted, task)
    for node in (a_leaf(task), 20):
        assert_as_by_brute_force(model, node, edges_of(task, node))


@pytest.mark.parametrize("at_once", [1 << 20, 7])
@pytest.mark.parametrize("hops", [1, 2])
def test_incident_edges_are_as_when_every_row_is_recomputed(monkeypatch, hops, at_once):
    """In float64, however few entries or edges at a time."""
    task = with_weights(rare_task(), loops=True)
    edges = ConvolutionEdges(GcnTraining(epochs=15, hops=hops).fit(task, task.split.train), task)
    ends = edges_of(task, 20)
    own, edges.own = edges.own, None
    known = edges.effect(20, ends)[:, 1]
    edges.own = own
    for name, value in {"ENTRIES": at_once, "NUMBERS": 1, "LOUDEST": 2, "MORE": 1}.items():
        monkeypatch.setattr(incident_edge_ablation, name, value)
    assert known.abs().max() > 1e-3
    torch.testing.assert_close(edges.effect(20, ends)[:, 1], known, rtol=1e3 * EPS, atol=1e3 * EPS)


@pytest.mark.parametrize("hops", [1, 2])
@pytest.mark.parametrize("bound", [1.0, 1e9])
def test_incident_edges_among_many_neighbours(monkeypatch, hops, bound):
    """What no edge turns on or off is summed at once, the rest one by one, and all of it one by one: the same."""
    generator = torch.Generator().manual_seed(0)
    pairs = torch.combinations(torch.arange(160))
    pairs = pairs[torch.rand(len(pairs), generator=generator) < 0.6]
    x = torch.randn(160, 5, generator=generator)
    graph = Graph.from_edges(pairs, x, (x[:, 0] > 0.5).long(), symmetrize=True)
    edges = ConvolutionEdges(GcnTraining(epochs=15, hops=hops).fit(graph, torch.arange(80)), graph)
    ends = edges_of(graph, 20)
    own, edges.own = edges.own, None
    known = edges.effect(20, ends)[:, 1]
    turned, made = incident_edge_ablation._turned, []
    monkeypatch.setattr(
        incident_edge_ablation, "_turned", lambda inputs, start: made.append(inputs.numel()) or turned(inputs, start)
    )
    monkeypatch.setattr(incident_edge_ablation, "ROUNDING", max(bound, incident_edge_ablation.ROUNDING))
    found = own.effect(20, ends[:, 1])[:, 0]
    torch.testing.assert_close(found, known, rtol=1e3 * EPS, atol=1e3 * EPS)
    all_of_them = len(ends) ** 2 * len(own.bias)
    assert sum(made) > all_of_them if bound > 1 else 0 < sum(made) < all_of_them / 2


@pytest.mark.parametrize("loud", [1.0, 1e3])
@pytest.mark.parametrize("hops", [1, 2])
def test_incident_edges_of_a_hub_cost_no_more_than_what_they_turn(monkeypatch, hops, loud):
    """No matrix of all its neighbours by all of its edges, even where one edge weighs as much as all of the others."""
    n, generator = 1500, torch.Generator().manual_seed(0)
    hub = torch.stack([torch.zeros(n - 1, dtype=torch.int64), torch.arange(1, n)], 1)
    pairs = torch.cat([hub, torch.randint(1, n, (2 * n, 2), generator=generator)])
    pairs = torch.unique(pairs[pairs[:, 0] != pairs[:, 1]].sort(1).values, dim=0)
    x = torch.randn(n, 5, generator=generator)
    graph = Graph.from_edges(pairs, x, (x[:, 0] > 0.5).long(), symmetrize=True)
    ends = (graph.adjacency.rows() + graph.adjacency.indices == 1).nonzero().flatten()  # between 0 and 1
    values = graph.adjacency.values.index_fill(0, ends, loud)
    graph = dataclasses.replace(graph, adjacency=dataclasses.replace(graph.adjacency, values=values))
    edges = ConvolutionEdges(GcnTraining(epochs=15, hops=hops).fit(graph, torch.arange(1, 200)), graph)
    ends, turned, made = edges_of(graph, 0), incident_edge_ablation._turned, []
    own, edges.own = edges.own, None
    some = torch.cat([ends[:20], ends[-20:]])
    known = edges.effect(0, some)[:, 1]
    monkeypatch.setattr(
        incident_edge_ablation, "_turned", lambda inputs, start: made.append(inputs.numel()) or turned(inputs, start)
    )
    found = own.effect(0, ends[:, 1])[:, 0]
    torch.testing.assert_close(torch.cat([found[:20], found[-20:]]), known, rtol=1e3 * EPS, atol=1e3 * EPS)
    assert 0 < sum(made) < 0.1 * len(ends) ** 2 * len(own.bias)


@pytest.mark.slow
def test_edges_farther_away_count_too():
    """Edges between others, of which the node sees one or both ends, or none."""
    task = rare_task()
    model = ExplainableNetwork(GcnTraining(epochs=15, hops=2).fit(task, task.split.train), task)
    around = edges_of(task, 20)[:, 1].tolist()
    ends = torch.cat([edges_of(task, other) for other in (*around, around[0] + 1)])
    assert_as_by_brute_force(model, 20, ends)


@pytest.mark.parametrize("graph", [*GRAPHS, "relations"])
@pytest.mark.parametrize("hops", [1, 2, 3])
def test_a_perceptron_on_hop_columns_without_each_edge(graph, hops):
    task = with_relations(rare_task()) if graph == "relations" else GRAPHS[graph]()
    fitted = MlpTraining(epochs=15, hops=hops).fit(task, task.split.train)
    model = ExplainableNetwork(fitted, task)
    for node in (a_leaf(task), 20):
        assert_as_by_brute_force(model, node, edges_of(task, node))


@pytest.mark.parametrize("kind", ["boosting", "extra"])
def test_trees_without_each_edge(kind):
    task = rare_task()
    growing = TreesTraining(kind=kind, rounds=12, patience=0, folds=2)
    model = ExplainableTrees(growing.fit(task, task.split.train), task)
    for node in (20, 21):
        assert_as_by_brute_force(model, node, edges_of(task, node))


@pytest.mark.parametrize("powers", [(-1.0, 0.0), (-0.5, -0.5)])
@pytest.mark.parametrize("levels", [1, 2, 3])
def test_means_are_what_is_reached_with_nothing_done_between(levels: int, powers: tuple[float, float]) -> None:
    graph = with_weights(rare_task(), loops=True)
    propagator = Propagator(graph.adjacency, *powers)
    x = torch.randn(graph.n_nodes, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    x = Rows(*x.shape, x.__getitem__)
    once = propagator(x)
    pairs = torch.stack([propagator.matrix.rows(), propagator.matrix.indices.long()], 1)
    pairs = pairs[pairs[:, 0] < pairs[:, 1]]
    for node in (0, a_leaf(graph)):
        ends, weights = propagator.with_none_removed(node, pairs)  # the node's own edges, its neighbours', and others
        gone = propagator.removed(ends, weights)
        for known, found in zip(
            propagator.reached(node, gone, x, once, levels, lambda level, x: x),
            propagator.means(node, gone, x, once, levels),
            strict=True,
        ):
            torch.testing.assert_close(found, known)


@pytest.mark.parametrize("levels", [1, 2])
def test_what_is_left_of_neighbours_that_are_all_zero_is_zero(levels: int) -> None:
    graph = with_weights(rare_task())
    propagator, n = Propagator(graph.adjacency, -1.0, 0.0), graph.n_nodes
    for node in range(0, n, 7):
        near = graph.adjacency.indices[graph.adjacency.indptr[node] : graph.adjacency.indptr[node + 1]].long()
        for other in near.tolist():  # the only one that is not zero
            ones = torch.zeros(n, 1, dtype=torch.float64)
            ones[other] = 0.3
            x = Rows(n, 1, ones.__getitem__)
            gone = propagator.removed(torch.tensor([[node, other]]))
            found = propagator.means(node, gone, x, propagator(x), levels)
            assert float(found[0][0, 0]) == 0
            whole = propagator.reached(node, gone, x, propagator(x), levels, lambda level, x: x)[-1]
            assert float((found[-1] - whole).abs().max()) <= 1e-12
