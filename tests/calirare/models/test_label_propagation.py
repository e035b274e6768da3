"""Spread labels are a sum of powers of the adjacency, without the label's own fold, wherever their nodes are met."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import torch

import calirare
from calirare.calibration import PriorPlattCalibrator, effective_shares
from calirare.explain import difference
from calirare.explain.label_propagation import ExplainablePropagation
from calirare.explain.registry import explainable
from calirare.graph import Graph
from calirare.models import (
    STEPS,
    KnownGraph,
    LabelPropagation,
    LabelPropagationFit,
    Mixture,
    NewEdges,
    TreesTraining,
    mixture_of,
)
from calirare.models.graph_delta import GraphDelta
from calirare.models.known_nodes import edges_of, mark, sums_of
from calirare.models.label_propagation import labels_of
from tests.helpers.command import few_candidates, rough_runs
from tests.helpers.tasks import rare_task
from tests.helpers.tolerance import assert_identical, sum_bound


def weighted_task(n_classes: int = 2, **changes) -> Graph:
    """A graph with weights and a node that no edge touches."""
    graph = rare_task(80, n_classes, seed=3)
    dense = graph.adjacency.to_dense()
    weights = torch.rand(80, 80, generator=torch.Generator().manual_seed(1)).add(0.1)
    dense = dense * (weights + weights.T)
    dense[7] = dense[:, 7] = 0
    dense[8] = dense[:, 8] = 0
    dense[8, 9] = dense[9, 8] = 0.5  # its only edge
    return dataclasses.replace(graph, adjacency=calirare.graph.csr_of_scipy(scipy_of(dense)), **changes)


def scipy_of(dense):
    import scipy.sparse as sp

    return sp.csr_array(dense.numpy())


def reaching(graph: Graph, alpha: float) -> torch.Tensor:
    """sum_t alpha^t S^t by dense algebra, float64 [n, n]."""
    a = graph.adjacency.to_dense().double()
    root = torch.where(a.sum(1) > 0, a.sum(1).clamp(min=1e-300).rsqrt(), 0.0)
    step = root[:, None] * a * root
    return sum((alpha**t * torch.linalg.matrix_power(step, t) for t in range(1, STEPS + 1)), start=torch.zeros_like(a))


def close(got: torch.Tensor, want: torch.Tensor) -> bool:
    """Whether non-negative sums of products differ by their roundings alone."""
    bound = sum_bound(want, 60 * STEPS, want, out=torch.float32)
    return bool(((got.double() - want).abs() <= bound).all())


@pytest.fixture(scope="module")
def graph() -> Graph:
    return weighted_task()


@pytest.fixture(scope="module")
def fitted(graph) -> LabelPropagationFit:
    return LabelPropagation(folds=4).fit(graph, graph.split.train)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_what_reaches_a_node_is_the_sum_of_the_powers(n_classes):
    graph = weighted_task(n_classes)
    nodes = graph.split.train
    fitted = LabelPropagation(folds=4).fit(graph, nodes)
    x = labels_of(80, nodes, fitted.targets, fitted.sample_weights, fitted.fold, n_classes)
    want = (reaching(graph, fitted.reach) @ x.double()).view(80, 5, n_classes)
    for asked in (None, torch.tensor([3, 79, 7])):
        assert close(fitted.reached_in(graph, asked), want if asked is None else want[asked])
    place = torch.arange(len(nodes))
    assert close(fitted.reached_own, want[nodes][place, fitted.fold])
    assert close(fitted.reached_labels, want[nodes][:, -1])
    assert fitted.logits_of(graph)[7].isnan().all()  # nothing reaches it
    own, without = fitted.all_logits_of(graph)
    assert own.shape == (80, n_classes)
    assert without.shape == (4, 80, n_classes)
    assert float((without.transpose(0, 1)[3] - (want[3, :-1] + fitted.prior / n_classes).log()).abs().max()) < 1e-4
    of_average = mixture_of({"spreading": fitted}, fitted.sample_weights).all_logits_of(graph)[1]
    assert float((of_average[0, 3] - of_average[1, 3]).abs().max()) > 1e-3  # each fold's, not that of all labels


def test_a_label_s_own_prediction_does_not_know_it_nor_its_fold(graph, fitted):
    nodes, first = graph.split.train, fitted.fold == 0
    turned = graph.y.clone()
    turned[nodes[first]] = 1 - turned[nodes[first]]
    x = labels_of(80, nodes, turned[nodes], fitted.sample_weights, fitted.fold, 2).double()
    of_turned = (reaching(graph, fitted.reach) @ x).view(80, 5, 2)[nodes[first], 0]
    assert close(fitted.reached_own[first], of_turned)
    assert not close(fitted.reached_labels[first], of_turned)  # what the comparison must reject


def test_a_state_is_the_fit_again(graph, fitted):
    again = LabelPropagationFit.from_state(*fitted.state())
    assert_identical(again.logits_of(graph), fitted.logits_of(graph))
    assert_identical(again.own_logits, fitted.own_logits)


def test_nodes_are_found_by_their_names_in_any_order_and_strangers_tell_nothing(graph):
    named = dataclasses.replace(graph, node_names=np.array([f"n{i}" for i in range(80)]))
    fitted = LabelPropagation(folds=4).fit(named, named.split.train)
    order = torch.randperm(80, generator=torch.Generator().manual_seed(0))
    dense = named.adjacency.to_dense()[order][:, order]
    turned = dataclasses.replace(
        named,
        adjacency=calirare.graph.csr_of_scipy(scipy_of(dense)),
        x=named.x[order],
        y=None,
        split=None,
        posterior=None,
        minority=None,
        original_y=None,
        node_names=named.node_names[order.numpy()],
    )
    got, want = fitted.logits_of(turned), fitted.logits_of(named)[order]
    assert torch.equal(got.isnan(), want.isnan())
    assert float((got - want).abs().nan_to_num().max()) < 1e-5
    strange = dataclasses.replace(turned, node_names=np.array([f"other {i}" for i in range(80)]))
    assert fitted.logits_of(strange).isnan().all()


def test_without_names_a_graph_is_known_by_its_edges(graph, fitted):
    same = dataclasses.replace(graph, y=None, split=None, posterior=None, minority=None, original_y=None)
    assert_identical(fitted.logits_of(same), fitted.logits_of(graph))
    other = rare_task(80, seed=4)
    assert fitted.logits_of(other).isnan().all()
    parts = [(i, graph.adjacency.select_rows(torch.arange(i, i + 1))) for i in reversed(range(80))]
    assert mark(80, [sums_of(first, rows, 80) for first, rows in parts]) == edges_of(graph, 80) != edges_of(other, 80)
    more = torch.zeros(82, 82)
    more[:80, :80], more[80, 3], more[3, 80] = graph.adjacency.to_dense(), 1, 1
    joined = dataclasses.replace(
        same, adjacency=calirare.graph.csr_of_scipy(scipy_of(more)), x=torch.cat([graph.x, graph.x[:2]])
    )
    got = fitted.logits_of(joined)
    assert not got[80].isnan().any()
    assert got[81].isnan().all()


def test_a_member_with_nothing_to_say_leaves_its_weight_to_the_others(graph, fitted):
    mixture = mixture_of({"one": fitted, "other": fitted}, fitted.sample_weights)
    both = [torch.zeros(3, 2, dtype=torch.float64), torch.zeros(3, 2, dtype=torch.float64)]
    both[1][1] = torch.nan
    both[0][:, 1], both[1][0, 1] = 1.0, -2.0
    said = mixture.pooled(both).exp()
    alone = mixture.members[0].probabilities(both[0])
    assert_identical(said[1], alone[1])
    weights = [member.weight for member in mixture.members]
    other = mixture.members[1].probabilities(both[1])
    assert float((said[0] - weights[0] * alone[0] - weights[1] * other[0]).abs().max()) < 1e-12


def test_a_new_node_is_what_its_neighbours_tell_of(graph, fitted):
    known = KnownGraph(mixture_of({"spreading": fitted}, fitted.sample_weights), graph)
    edges = NewEdges(np.array([0, 0, 1]), np.array([3, 10, 11]), np.array([1.0, 0.5, 2.0]))
    got = known.parts[0](torch.zeros(2, graph.n_features), GraphDelta(known.rows, edges))
    told = fitted.sent_in(graph)[:, -2:].double()
    want = torch.stack([(told[3] + 0.5 * told[10]) / 1.5**0.5, 2 * told[11] / 2**0.5]) * fitted.reach
    assert float((got - (want + fitted.prior / 2).log()).abs().max()) < 1e-5


class TestExplanations:
    nodes = torch.tensor([0, 5, 9, 40])

    def said(self, graph, fitted, x):
        """Logits of the nodes by dense algebra, with labels [n, 2]."""
        return ((reaching(graph, fitted.reach) @ x)[self.nodes] + fitted.prior / 2).log()

    def labels(self, fitted):
        x = torch.zeros(80, 2, dtype=torch.float64)
        x[fitted.nodes, fitted.targets] = fitted.sample_weights.double()
        return x

    def test_each_label_is_left_out_exactly(self, graph, fitted):
        model, x = ExplainablePropagation(fitted, graph), self.labels(fitted)
        assert float((model.logits(self.nodes) - self.said(graph, fitted, x)).abs().max()) < 1e-5
        got = model.without_each_label(self.nodes)
        for place, node in enumerate(fitted.nodes.tolist()):
            less = x.clone()
            less[node] = 0
            assert float((got[place] - self.said(graph, fitted, less)).abs().max()) < 1e-4
        less = x.clone()
        less[fitted.nodes[[1, 4]]] = 0
        together = model.without_labels(self.nodes, [torch.tensor([1, 4]), torch.tensor([0])])
        assert float((together[0] - self.said(graph, fitted, less)).abs().max()) < 1e-4
        assert float((together[1] - got[0]).abs().max()) < 1e-5

    def test_each_label_that_might_be_there(self, graph, fitted):
        model, more = ExplainablePropagation(fitted, graph), torch.tensor([20, 21])
        got = model.with_each_label(self.nodes, more)
        for label in (0, 1):
            weight = float(fitted.sample_weights[fitted.targets == label].double().mean())
            for i, node in enumerate(more.tolist()):
                x = self.labels(fitted)
                x[node, label] += weight
                assert float((got[label, i] - self.said(graph, fitted, x)).abs().max()) < 1e-4

    def test_each_edge_of_the_node(self, graph, fitted):
        model, node = ExplainablePropagation(fitted, graph), 5
        a = graph.adjacency.to_dense().double()
        others = a[node].nonzero().flatten()
        got = model.without_edges(node, torch.stack([torch.full_like(others, node), others], 1))
        told = fitted.sent_in(graph)[:, -2:].double()
        for i, other in enumerate(others.tolist()):
            row = a[node].clone()
            row[other] = 0
            z = (fitted.reach * (row @ told) / row.sum().sqrt() + fitted.prior / 2).log()
            assert float(difference(got[i]) - difference(z)) == pytest.approx(0, abs=1e-5)
        away = model.without_edges(node, torch.tensor([[1, 2]]))
        off = difference(away) - difference(model.logits(torch.tensor([node])))
        assert float(off) == pytest.approx(0, abs=1e-5)
        assert model.without_edges(8, torch.tensor([[8, 9]])).isnan().all()


def test_a_node_that_nobody_near_speaks_of_is_explained_by_the_others(graph, fitted):
    trees = TreesTraining(rounds=5, folds=4).fit(graph, fitted.nodes, sample_weights=fitted.sample_weights)
    mixture = mixture_of({"trees": trees, "spreading": fitted}, fitted.sample_weights)
    model, nodes = explainable(mixture, graph), torch.tensor([7, 5])
    shares, z = model.shares(nodes), model.logits(nodes)
    assert float((shares.base + shares.values.sum(1) - z).abs().max()) < 1e-9
    alone = mixture_of({"trees": trees}, fitted.sample_weights)
    others = explainable(alone, graph).logits(nodes)
    assert float((z[0] - mixture.rest(others[0])).abs().max()) == pytest.approx(0, abs=1e-9)
    assert float(difference(z[1]) - difference(others[1])) != pytest.approx(0, abs=1e-3)


def test_where_nobody_near_speaks_the_others_are_as_sure_as_all_together(graph, fitted):
    trees = TreesTraining(rounds=5, folds=4).fit(graph, fitted.nodes, sample_weights=fitted.sample_weights)
    mixture = mixture_of({"trees": trees, "spreading": fitted}, fitted.sample_weights)
    alone = mixture_of({"trees": trees}, fitted.sample_weights)
    assert alone.rest is None
    maps = []
    heard = ~fitted.own_logits.isnan().any(1)
    for own, some in ((alone.own_logits, torch.ones_like(heard)), (mixture.own_logits, heard)):
        shares = effective_shares(mixture.targets, mixture.sample_weights, 2)
        maps.append(PriorPlattCalibrator(target="balanced", trained_shares=shares))
        maps[-1].fit(own[some], mixture.targets[some])
    z = alone.logits_of(graph, torch.tensor([7]))
    said = mixture.logits_of(graph, torch.tensor([7]))  # no label reaches it
    assert torch.allclose(maps[1].transform(said), maps[0].transform(z), atol=1e-6)
    assert not torch.allclose(said, z, atol=1e-2)
    tensors, facts = mixture.state()
    again = Mixture.from_state(tensors, json.loads(json.dumps(facts)))
    assert again.rest == mixture.rest
    assert Mixture.from_state(tensors, {"members": facts["members"]}).rest is None  # of an earlier release


@pytest.mark.slow
def test_p_rare_of_graphs_whose_nodes_the_run_does_not_know_is_that_of_the_law():
    """Labels nearby have a say in the run, and none there: the map was fitted with it."""

    def month(seed: int, labels: bool):
        draw, n = np.random.default_rng(seed), 4000
        y = draw.random(n) < 0.04
        rare = np.flatnonzero(y)
        x = np.stack([draw.gamma(4 - 1.5 * y, 200), draw.normal(0.8 * y)], 1)
        ends = [np.r_[draw.integers(0, n, 2 * n), draw.choice(rare, 2 * len(rare))] for _ in range(2)]
        known = np.where(draw.random(n) < 0.4, y.astype(int), -1) if labels else None
        graph = Graph.from_edges(np.stack(ends, 1), x, known, symmetrize=True, duplicates="drop", self_loops="drop")
        return dataclasses.replace(graph, node_names=np.array([f"{seed}-{i}" for i in range(n)])), int(y.sum())

    graph, _ = month(1, labels=True)
    with rough_runs(), few_candidates():
        outcome = calirare.train(graph.rare(1))
    assert outcome.fit.weight_of("spreading") > 0.1
    others = [month(seed, labels=False) for seed in (2, 3, 4)]
    told = [outcome.score(other).expected.expected for other, _ in others]
    true = [n for _, n in others]
    assert 0.8 < sum(told) / sum(true) < 1.3, (told, true)


@pytest.mark.slow
def test_auto_listens_to_labels_nearby_where_features_say_nothing_and_not_where_they_say_all():
    generator = np.random.default_rng(0)
    n, ring = 600, np.arange(600) // 20
    rare = np.isin(ring, generator.choice(30, 5, replace=False)) & (generator.random(n) < 0.8)
    ends = np.stack([np.arange(n), 20 * ring + generator.integers(0, 20, n)], 1)
    more = np.stack([np.arange(n), 20 * ring + generator.integers(0, 20, n)], 1)
    edges = np.concatenate([ends, more])
    edges = edges[edges[:, 0] != edges[:, 1]]
    y = np.where(generator.random(n) < 0.5, rare.astype(int), -1)
    noise = generator.normal(size=(n, 2)).astype(np.float32)

    def trained(x):
        graph = Graph.from_edges(edges, x, y, symmetrize=True, duplicates="drop").rare(1)
        graph = graph.with_split(calirare.Split.share(graph.y, 0, test_share=0.0))
        with rough_runs(), few_candidates():
            return calirare.train(graph)

    outcome = trained(noise)
    assert outcome.fit.weight_of("spreading") > 0.5
    unseen = torch.from_numpy(y < 0)
    p = outcome.probabilities("population")[unseen, 1]
    truth = torch.from_numpy(rare)[unseen]
    assert float(p[truth].mean()) > 3 * float(p[~truth].mean())
    clear = np.concatenate([noise, rare[:, None] * 6.0 + generator.normal(size=(n, 1))], 1).astype(np.float32)
    assert trained(clear).fit.weight_of("spreading") < 0.1
