"""CaGCN and GATS: the temperatures by another formula, decisions kept, confidence mended."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F

from calirare.datasets import synthetic_rare
from calirare.graph.convolution import propagation
from calirare.graph.graph import Graph
from calirare.models import GcnTraining, fit
from calirare_lab.baselines import GATS, CaGCN
from calirare_lab.baselines.node_temperature import NodeTemperature
from tests.helpers.graphs import small_graph

KINDS = pytest.mark.parametrize("kind", [CaGCN, lambda **how: GATS(torch.arange(60), **how)], ids=["cagcn", "gats"])


@pytest.fixture(scope="module")
def fitted_logits() -> tuple[Graph, torch.Tensor]:
    graph = synthetic_rare(500, seed=2, share=0.2, n_features=6, separation=0.5, homophily=0.4)
    training = GcnTraining(epochs=60, hidden=4, order="propagated")
    return graph, 10 * fit(graph, torch.arange(60), training).model.logits(graph)


@pytest.mark.slow
@KINDS
def test_keeps_decisions_and_mends_overconfidence(kind, fitted_logits: tuple[Graph, torch.Tensor]) -> None:
    graph, logits = fitted_logits
    assert graph.y is not None
    nodes, rest = torch.arange(60, 260), torch.arange(260, 500)
    calibrator: NodeTemperature = kind()
    p = calibrator.fit(graph, logits, nodes, graph.y[nodes]).transform(logits)
    assert torch.equal(p.argmax(1), logits.argmax(1))
    assert float((p.sum(1) - 1).abs().max()) < 1e-5
    before = F.cross_entropy(logits[rest], graph.y[rest])
    assert float(F.nll_loss(p[rest].log(), graph.y[rest])) < float(before)
    balanced = kind(target="balanced").fit(graph, logits, nodes, graph.y[nodes]).transform(logits)
    assert float((balanced - p).abs().max()) > 1e-3


@torch.no_grad()
def test_cagcn_is_a_graph_convolution_of_the_logits() -> None:
    graph = small_graph()
    logits = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    torch.manual_seed(1)
    model = CaGCN().build(graph, logits).eval()
    a = propagation(graph).a_hat.to_dense()
    hidden = torch.relu(a @ logits @ model.first.weight.T + model.first.bias)
    u = a @ (hidden @ model.second.weight.T + model.second.bias)
    expected = torch.log(torch.exp(u) + 1.1)
    assert float((model(logits) - expected).abs().max()) < 1e-5 * float(expected.abs().max())


@torch.no_grad()
def test_cagcns_regulariser_by_hand() -> None:
    logits = torch.tensor([[0.0, math.log(3)], [math.log(4), 0.0]], dtype=torch.float64)
    labels, weights = torch.tensor([1, 1]), torch.ones(2, dtype=torch.float64)
    gaps = (3 / 4 - 1 / 4, 4 / 5 - 1 / 5)
    expected = (-math.log(3 / 4) - math.log(1 / 5)) / 2 + 0.5 * ((1 - gaps[0]) + gaps[1]) / 2
    assert float(CaGCN().loss(logits, labels, weights)) == pytest.approx(expected, rel=1e-12)


@torch.no_grad()
def test_gats_temperature_node_by_node() -> None:
    graph = small_graph()
    logits = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    torch.manual_seed(1)
    model = GATS(torch.tensor([0])).build(graph, logits)
    with torch.no_grad():
        model.gamma.copy_(torch.tensor([0.5, 2.0]))
        model.omega.fill_(0.7)
        model.base.fill_(1.5)
    scaled = (logits - logits.min(1, keepdim=True).values) / (logits.max(1).values - logits.min(1).values)[:, None]
    confidence = torch.softmax(logits, 1).max(1).values
    gamma = torch.tensor([0.5, 2.0, 1.0, 1.0, 1.0])  # node 0 was trained on, node 1 is its neighbour
    neighbours = {0: [1], 1: [0, 2, 3], 2: [1, 3], 3: [1, 2], 4: []}
    for v, around in neighbours.items():
        near = [*around, v]
        scores = torch.stack([F.leaky_relu(scaled[v] @ scaled[j], 0.2) for j in near])
        tau = torch.stack([gamma[j] * model.tau(scaled[j].sort(descending=True).values) for j in near])
        relative = confidence[v] - confidence[around].mean() if around else torch.tensor(0.0)
        spread = torch.softmax(scores, 0) @ tau + 0.7 * relative
        temperature = F.softplus(spread).mean() + 1.5 - math.log(2)
        assert float(model(logits)[v]) == pytest.approx(float(1 / temperature), rel=1e-5)
