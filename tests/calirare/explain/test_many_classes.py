"""More than two classes: what models say without something is what the detectors say, and what P(class) makes of it."""

from __future__ import annotations

import dataclasses
from functools import cache

import numpy as np
import pytest
import torch
from torch import Tensor

from calirare.calibration import PriorPlattCalibrator
from calirare.explain import Explainer, ExplanationContext, explainable
from calirare.explain.explainable_model import ExplainableModel, Shares, class_log_odds, probabilities
from calirare.explain.shares import passed_on
from calirare.graph import Graph
from calirare.models import (
    Fitted,
    GcnTraining,
    LabelPropagation,
    MlpTraining,
    NeighbourPool,
    TreesTraining,
    fold_network,
    mixture_of,
)
from calirare_ext import Csr
from tests.calirare.explain.cases import calibrator
from tests.calirare.explain.test_edges import edges_of, with_relations, with_weights, without
from tests.calirare.leave_one_out.cases import agreement
from tests.helpers.tasks import rare_task

K = 3
NODES = torch.tensor([44, 7, 130, 81, 200])
FLOAT32 = 300 * torch.finfo(torch.float32).eps


@cache
def task() -> Graph:
    """With names, by which spread labels know the nodes of another graph."""
    graph = rare_task(n_classes=K)
    return dataclasses.replace(graph, node_names=np.array([f"n{i}" for i in range(graph.n_nodes)]))


@cache
def mixture():
    graph, train = task(), task().split.train
    hops = MlpTraining(epochs=30, hidden=8)
    trees = [TreesTraining(kind=kind, rounds=8, patience=0, folds=2) for kind in ("boosting", "extra")]
    parts = {kind.kind: kind.fit(graph, train) for kind in trees}
    parts["hops"] = fold_network(hops, graph, hops.fit(graph, train), 2)
    parts["spreading"] = LabelPropagation(2, 0).fit(graph, train)
    return mixture_of(parts, torch.ones(len(train)))


NETWORKS = {
    "gcn": GcnTraining(epochs=30),
    "gcn of two hops": GcnTraining(epochs=30, hops=2),
    "gcn of three layers": GcnTraining(epochs=30, n_layers=3),
    "linear gcn": GcnTraining(epochs=30, n_layers=1),
    "hops": MlpTraining(epochs=30, hidden=8),
}
TREES = {"trees": "boosting", "forest": "extra"}
NAMES = (*NETWORKS, *TREES, "average", "pool of trees", "pool of average")


@cache
def detector(name: str) -> Fitted:
    """Returns the detector of a name, trained once."""
    graph, train = task(), task().split.train
    if name in NETWORKS:
        return NETWORKS[name].fit(graph, train)
    if name in TREES:
        return TreesTraining(kind=TREES[name], rounds=8, patience=0, folds=2).fit(graph, train)
    if name == "average":
        return mixture()
    pool = NeighbourPool.of(detector(name.removeprefix("pool of ")), graph)
    weights = torch.tensor([0.8, 0.5, 0.4, -0.3]).double()  # whatever the labels say, nodes nearby count
    return dataclasses.replace(pool, weights=weights)


@pytest.fixture(params=NAMES)
def model(request) -> tuple[ExplainableModel, Fitted, Graph]:
    fitted = detector(request.param)
    return explainable(fitted, task()), fitted, task()


def centred(logits: Tensor) -> Tensor:
    """Logits less their mean: the constant of each node says nothing."""
    return logits.double() - logits.double().mean(-1, keepdim=True)


def test_log_odds_are_those_of_the_detector(model):
    said, fitted, graph = model
    found = centred(said.logits(NODES))
    assert tuple(found.shape) == (len(NODES), K)
    assert float((found - centred(fitted.logits_of(graph)[NODES])).abs().max()) <= FLOAT32 * (found.abs().max() + 1)


@pytest.mark.slow
def test_without_an_edge_it_says_what_the_detector_says_of_the_graph_without_it(model):
    said, fitted, graph = model
    moved = 0.0
    for node in NODES[:2].tolist():
        ends = edges_of(graph, node)
        found, base = said.without_edges(node, ends), said.logits(torch.tensor([node]))
        for (a, b), z in zip(ends.tolist(), found, strict=True):
            wanted = fitted.logits_of(without(graph, a, b))[node]
            assert float((z.softmax(0) - wanted.double().softmax(0)).abs().max()) <= FLOAT32
            moved = max(moved, float((z.softmax(0) - base[0].softmax(0)).abs().max()))
    assert moved > 0.01, "no edge counts: nothing is tested"


@pytest.mark.slow
@pytest.mark.parametrize("changed", [with_weights, with_relations])
def test_edges_of_weights_and_types_are_left_out_of_a_pool_too(changed):
    graph = changed(task())
    fitted = TreesTraining(rounds=8, patience=0, folds=2).fit(graph, graph.split.train)
    weights = torch.tensor([0.8, 0.5, 0.4, -0.3]).double()
    fitted = dataclasses.replace(NeighbourPool.of(fitted, graph), weights=weights)
    said = explainable(fitted, graph)
    for node in NODES[:2].tolist():
        ends = edges_of(graph, node)
        for (a, b), z in zip(ends.tolist(), said.without_edges(node, ends), strict=True):
            wanted = fitted.logits_of(without(graph, a, b))[node].double().softmax(0)
            assert float((z.softmax(0) - wanted).abs().max()) <= FLOAT32


def test_shares_add_up_to_the_logits_and_to_the_log_odds_of_every_class(model):
    said, fitted, graph = model
    shares = said.shares(NODES)
    if shares is None:
        assert any("only available for networks of up to two layers" in note for note in said.notes)
        return
    assert len(set(shares.names)) == len(shares.names) == shares.values.shape[1]
    off = centred(shares.base + shares.values.sum(1)) - centred(said.logits(NODES))
    assert float(off.abs().max()) <= FLOAT32 * float(shares.values.abs().sum(1).max() + 1)
    for mapping in (None, calibrator(K)):
        for of in range(K):
            context = ExplanationContext(graph, fitted.nodes, fitted.targets, tuple("abc"), mapping, None)
            found = Explainer(said, context).feature_shares(NODES, of)
            off = found.base + found.values.sum(1) - class_log_odds(probabilities(said.logits(NODES), mapping), of)
            assert float(off.abs().max()) <= FLOAT32 * float(found.values.abs().sum(1).max() + 1)
            assert float(found.values.abs().max()) > 0.01


def test_what_is_passed_on_is_the_integral_of_the_gradient_along_the_way():
    """Of the log-odds of a class: by 200 gradients of torch's own."""
    generator = torch.Generator().manual_seed(0)
    base, values = (torch.randn(*shape, generator=generator).double() for shape in ((6, K), (6, 5, K)))
    names, end = tuple("abcde"), base + values.sum(1)

    def odds(z: Tensor) -> Tensor:
        return class_log_odds(z.softmax(-1), 1)[..., None]

    slopes = torch.zeros_like(base)
    for at in (torch.arange(200) + 0.5) / 200:
        z = (base + at * (end - base)).requires_grad_()
        slopes += torch.autograd.grad(odds(z).sum(), z)[0] / 200
    found = passed_on(Shares(base, names, values), odds)
    wanted = torch.einsum("nfk,nk->nf", values, slopes)
    assert float((found.values[:, :, 0] - wanted).abs().max()) <= 0.01 * float(wanted.abs().max())
    assert float((found.base + found.values.sum(1) - odds(end)).abs().max()) <= 1e-12

    def steps(z: Tensor) -> Tensor:  # no map of which a gradient is known
        return (z[..., 1:2] > z[..., :1]).double()

    found = passed_on(Shares(base, names, values), steps)
    assert float((found.base + found.values.sum(1) - steps(end)).abs().max()) <= 1e-12


@pytest.mark.parametrize("name", ["pool of trees", "pool of average"])
def test_labels_of_a_pool_reach_a_node_by_what_all_nodes_nearby_say(name):
    fitted, graph = detector(name), task()
    said, nodes = explainable(fitted, graph), torch.arange(graph.n_nodes)
    base, some = explainable(fitted.base, graph), [torch.tensor([5]), torch.tensor([3, 17, 30])]
    found, alone = said.without_labels(NODES, some), said.without_each_label(NODES)[5]
    for row, places in enumerate(some):
        wanted = fitted.pooled(graph, base.without_labels(nodes, [places])[0])[NODES]
        assert float((found[row].softmax(1) - wanted.softmax(1)).abs().max()) <= FLOAT32
    wanted = fitted.pooled(graph, base.without_each_label(nodes)[5])[NODES]
    assert float((alone.softmax(1) - wanted.softmax(1)).abs().max()) <= FLOAT32
    assert float((found - said.logits(NODES)).abs().max()) > 0.01


def test_a_node_without_a_neighbour_is_explained_too():
    graph = task()
    lone = without_edges_of(graph, 44)
    train = graph.split.train
    fitted = NeighbourPool.of(TreesTraining(rounds=8, patience=0, folds=2).fit(lone, train), lone)
    said, node = explainable(fitted, lone), torch.tensor([44])
    wanted = fitted.logits_of(lone)[node]
    shares = said.shares(node)
    off = centred(shares.base + shares.values.sum(1)) - centred(wanted)
    assert float(off.abs().max()) <= FLOAT32 * 100
    assert tuple(said.without_each_label(node).shape) == (len(train), 1, K)
    assert float((said.without_labels(node, [torch.tensor([], dtype=torch.int64)])[0] - wanted).abs().max()) <= FLOAT32
    own = Explainer(said, ExplanationContext(lone, fitted.nodes, fitted.targets, ("a", "b", "c"), None, None))
    assert own.explain(node)[0].edges == ()


@pytest.mark.parametrize("pooled", [False, True])
def test_two_classes_that_are_taken_as_they_are_have_their_logits_too(pooled):
    graph = rare_task()
    fitted = TreesTraining(rounds=8, patience=0, folds=2).fit(graph, graph.split.train)
    if pooled:
        weights = torch.tensor([0.8, 0.5, 0.4, -0.3]).double()
        fitted = dataclasses.replace(NeighbourPool.of(fitted, graph), weights=weights)
    said, ends = explainable(fitted, graph), edges_of(graph, 44)
    off = centred(said.logits(NODES)) - centred(fitted.logits_of(graph)[NODES])
    assert float(off.abs().max()) <= FLOAT32
    for (a, b), z in zip(ends.tolist(), said.without_edges(44, ends), strict=True):
        off = centred(z) - centred(fitted.logits_of(without(graph, a, b))[44])
        assert float(off.abs().max()) <= FLOAT32
    own = Explainer(said, ExplanationContext(graph, fitted.nodes, fitted.targets, ("a", "b"), None, None))
    each = own.explain(torch.tensor([44]), of=0)[0]
    assert each.p == pytest.approx(float(fitted.logits_of(graph)[44].softmax(0)[0]), abs=1e-6)
    assert each.base + sum(share.share for share in each.features) == pytest.approx(each.log_odds, abs=1e-9)


def without_edges_of(graph: Graph, node: int) -> Graph:
    """The graph with a node that has no neighbour."""
    dense = graph.adjacency.to_dense()
    dense[node] = dense[:, node] = 0
    return dataclasses.replace(graph, adjacency=Csr.from_dense(dense))


def test_of_nodes_with_very_many_near_the_farthest_are_held(monkeypatch):
    graph = task()
    said = explainable(detector("pool of trees"), graph)
    exact = said.without_each_label(NODES)
    assert not any("stay fixed" in note for note in said.notes)
    monkeypatch.setattr("calirare.explain.pool.REACH", 12)
    rough = said.without_each_label(NODES)
    assert any("the farthest stay fixed" in note for note in said.notes)
    assert float((rough - exact).abs().max()) > 0
    assert agreement(rough - said.logits(NODES), exact - said.logits(NODES))[0] > 0.8
    ends = edges_of(graph, 44)
    monkeypatch.setattr("calirare.explain.pool.PAIRS", 1)  # of no node nearby
    assert tuple(said.without_edges(44, ends).shape) == (len(ends), K)


def explainer(name: str, mapping: PriorPlattCalibrator | None = None) -> Explainer:
    fitted, graph = detector(name), task()
    names = ("plain", "odd", "rare, one")
    said = explainable(fitted, graph)
    return Explainer(said, ExplanationContext(graph, fitted.nodes, fitted.targets, names, mapping, None))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["hops", "pool of average"])
def test_numbers_of_an_explanation_agree_with_each_other(name):
    own, nodes = explainer(name, calibrator(K)), NODES[:2] if name == "pool of average" else NODES
    p = own.probabilities(nodes)
    assert torch.allclose(p, calibrator(K).transform(detector(name).logits_of(task())[nodes].double()), atol=1e-6)
    found = own.explain(nodes)
    for each, row in zip(found, p, strict=True):
        assert each.of == each.prediction == own.context.class_names[int(row.argmax())]
        assert each.p == pytest.approx(float(row.max()), abs=1e-6)
        assert each.base + sum(share.share for share in each.features) == pytest.approx(each.log_odds, abs=1e-9)
        assert all(label.without == each.p - label.effect for label in each.labels)
        assert each.needed is not None
        assert each.needed.enough == (each.needed.instead != each.of)
    other = own.explain(nodes, of=2)
    for each, row in zip(other, p, strict=True):
        assert each.of == "rare, one"
        assert each.p == pytest.approx(float(row[2]), abs=1e-6)
        assert (each.needed is None) == (each.prediction != each.of)
        assert ("likelier is" in each.sentences[0]) == (each.prediction != each.of)
        around = own.probabilities(torch.tensor([edge.node for edge in each.edges]))[:, 2]
        assert [edge.p_rare for edge in each.edges] == pytest.approx(around.tolist(), abs=1e-6)


def test_needed_labels_are_the_fewest_of_the_strongest_that_make_another_class_likelier():
    own = explainer("hops")
    found = [each for each in own.explain(torch.arange(60, 100)) if each.needed.enough]
    assert found
    places = {node: i for i, node in enumerate(own.context.labelled.tolist())}
    for each in found:
        names = torch.tensor([places[int(name[1:])] for name in each.needed.names])
        after = own.model.without_labels(torch.tensor([each.node]), [names, names[:-1]])[:, 0].softmax(1)
        assert own.context.class_names[int(after[0].argmax())] == each.needed.instead != each.of
        assert float(after[0, own.context.class_names.index(each.of)]) == pytest.approx(each.needed.without, abs=1e-6)
        if len(names) <= 4:
            assert own.context.class_names[int(after[1].argmax())] == each.of
        assert f"it would be {each.needed.instead}" in each.sentences[1]
