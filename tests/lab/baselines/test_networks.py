"""GAT-CS and GIN-CS: what they read, that they learn, and that they see no label they were not given."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from calirare.datasets import synthetic_rare
from calirare.graph import Graph
from calirare.models import pyg_inputs
from calirare_lab.baselines import GatTraining, GinTraining, NetworkTraining
from tests.helpers.graphs import small_graph
from tests.helpers.tolerance import assert_alike


@pytest.fixture(scope="module")
def graph() -> Graph:
    return synthetic_rare(400, seed=0, share=0.2, n_features=8, separation=3.0)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [GatTraining, GinTraining])
def test_learns_and_sees_only_the_given_labels(graph: Graph, kind: type[NetworkTraining]) -> None:
    assert graph.y is not None
    nodes, settings = torch.arange(0, 200), kind(epochs=40, learning_rate=0.02)
    state = torch.get_rng_state()
    logits = settings.fit(graph, nodes).logits()
    assert torch.equal(torch.get_rng_state(), state)
    predicted, truth = logits.argmax(1)[200:].numpy(), graph.y[200:].numpy()
    assert (predicted[truth == 1] == 1).mean() > 0.7
    assert (predicted[truth == 0] == 0).mean() > 0.7
    flipped = graph.y.clone()
    flipped[200:] = 1 - flipped[200:]
    assert_alike(settings.fit(dataclasses.replace(graph, y=flipped), nodes).logits(), logits)
    other = dataclasses.replace(settings, seed=1).fit(graph, nodes).logits()
    assert float((other - logits).abs().max()) > 1e-3


@torch.no_grad()
def test_gin_adds_up_the_neighbours() -> None:
    torch.manual_seed(0)
    model = GinTraining(hidden=4).network(3, 2).eval()
    x, edges = pyg_inputs(small_graph())
    adjacency = torch.zeros(5, 5)
    adjacency[edges[1], edges[0]] = 1
    hidden = torch.relu(model.first.nn(x + adjacency @ x))
    expected = model.second.nn(hidden + adjacency @ hidden)
    assert float((model(x, edges) - expected).abs().max()) < 1e-4 * float(expected.abs().max())
