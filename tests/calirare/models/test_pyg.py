"""GAT-CS, GIN-CS and SAGE: what they read, that they learn, and that they see no label they were not given."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys

import pytest
import torch

from calirare.datasets import synthetic_rare
from calirare.graph.graph import Graph
from calirare.models import (
    DETECTORS,
    GatTraining,
    GinTraining,
    PygTraining,
    SageTraining,
    pyg,
    pyg_inputs,
    pyg_networks,
    whole,
)
from calirare.models.attention import weighted_sums
from calirare.training import cross_entropy
from calirare_ext import Csr
from tests.helpers.graphs import small_graph
from tests.helpers.tolerance import assert_alike


@pytest.fixture(scope="module")
def graph() -> Graph:
    return synthetic_rare(400, seed=0, share=0.2, n_features=8, separation=3.0)


def test_inputs_are_scaled_features_and_both_directions_of_each_edge() -> None:
    small = dataclasses.replace(small_graph(), feature_normalisation="row")
    x, edges = pyg_inputs(small)
    assert torch.allclose(x.sum(1), torch.ones(5), rtol=1e-6, atol=0)
    assert torch.equal(edges, torch.stack([small.adjacency.rows(), small.adjacency.indices.long()]))
    sparse = dataclasses.replace(small, x=Csr.from_dense(small.x))
    assert torch.equal(pyg_inputs(sparse)[0], x)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gat", "gin", "sage"])
def test_learns_and_sees_only_the_given_labels(graph: Graph, kind: str) -> None:
    nodes = torch.arange(0, 200)
    settings = DETECTORS[kind](epochs=40, learning_rate=0.02)
    logits = settings.fit(graph, nodes).logits()
    assert graph.y is not None
    predicted = logits.argmax(1)[200:].numpy()
    truth = graph.y[200:].numpy()
    assert (predicted[truth == 1] == 1).mean() > 0.7
    assert (predicted[truth == 0] == 0).mean() > 0.7
    flipped = graph.y.clone()
    flipped[200:] = 1 - flipped[200:]
    assert_alike(settings.fit(dataclasses.replace(graph, y=flipped), nodes).logits(), logits)
    other = dataclasses.replace(settings, seed=1).fit(graph, nodes).logits()
    assert float((other - logits).abs().max()) > 1e-3


@torch.no_grad()
def test_gin_adds_up_the_neighbours() -> None:
    settings = GinTraining(hidden=4)
    torch.manual_seed(0)
    model = settings.network(3, 2).eval()
    x, edges = pyg_inputs(small_graph())
    adjacency = torch.zeros(5, 5)
    adjacency[edges[1], edges[0]] = 1
    hidden = torch.relu(model.first.nn(x + adjacency @ x))
    expected = model.second.nn(hidden + adjacency @ hidden)
    assert float((model(x, edges) - expected).abs().max()) < 1e-4 * float(expected.abs().max())


@torch.no_grad()
def test_sage_takes_the_mean_of_the_neighbours() -> None:
    settings = SageTraining(hidden=4)
    torch.manual_seed(0)
    model = settings.network(3, 2).eval()
    x, edges = pyg_inputs(small_graph())
    adjacency = torch.zeros(5, 5)
    adjacency[edges[1], edges[0]] = 1
    mean = adjacency / adjacency.sum(1, keepdim=True).clamp(min=1)
    hidden = torch.relu(model.first(torch.cat([mean @ x, x], 1)))
    expected = model.second.lin_l(mean @ hidden) + model.second.lin_r(hidden)
    assert float((model(x, edges) - expected).abs().max()) < 1e-5 * float(expected.abs().max())


def test_gat_has_eight_heads_of_eight() -> None:
    model = GatTraining().network(3, 2)
    shapes = {name: tuple(p.shape) for name, p in model.named_parameters()}
    assert shapes["first.lin.weight"] == (64, 3)
    assert shapes["second.lin.weight"] == (2, 64)


def test_settings_and_labels_are_checked() -> None:
    with pytest.raises(TypeError):
        PygTraining()  # type: ignore[abstract]
    with pytest.raises(ValueError, match="GatTraining: epochs must be at least 1"):
        GatTraining(epochs=0)
    with pytest.raises(ValueError, match="dropout must be in"):
        GinTraining(dropout=1.0)
    with pytest.raises(ValueError, match="one of graph 'small' has no label"):
        GinTraining(epochs=1).fit(small_graph(), torch.tensor([4]))


@pytest.mark.parametrize("kind", ["gat", "gin", "sage"])
@pytest.mark.parametrize("share", [0.05, 1.0])
def test_training_on_what_reaches_the_labels_is_training_on_the_whole_graph(
    graph: Graph, kind: str, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    g = torch.Generator().manual_seed(3)
    x = torch.rand(graph.n_nodes, 40, generator=g) * (torch.rand(graph.n_nodes, 40, generator=g) < share)
    graph = dataclasses.replace(graph, x=x)
    nodes = torch.tensor([3, 50, 7, 200, 11])
    settings = DETECTORS[kind](epochs=5, dropout=0.0)
    ours = settings.fit(graph, nodes).logits()
    monkeypatch.setattr(pyg_networks, "SPARSE_BELOW", -1.0)
    monkeypatch.setattr(pyg, "near", pyg.everywhere)
    theirs = settings.fit(graph, nodes).logits()
    start = dataclasses.replace(settings, learning_rate=1e-12).fit(graph, nodes).logits()
    assert float((ours - theirs).abs().max()) < 1e-3 * float((theirs - start).abs().max())


@torch.no_grad()
@pytest.mark.parametrize("kind", ["gat", "gin", "sage"])
def test_what_is_read_around_some_nodes_gives_their_logits(kind: str) -> None:
    draw = torch.Generator().manual_seed(1)
    x, edges = torch.rand(90, 6, generator=draw), torch.randint(0, 80, (2, 130), generator=draw)  # ten have no edge
    model = DETECTORS[kind](hidden=5).network(6, 3).eval()
    every = model(x, edges)
    for nodes in (torch.tensor([85, 3, 40]), torch.tensor([7, 7, 2]), torch.arange(90)):
        said = pyg.near(model, x, edges, nodes).logits(model)
        assert float((said - every[nodes]).abs().max()) <= 1e-5 * float(every.abs().max())
    reach = pyg_networks.around(x, edges, torch.tensor([85, 3]))
    inside = {3} | set(edges[0, edges[1] == 3].tolist())
    assert reach.n == 2
    assert reach.n_middle == len(inside | {85})
    assert torch.equal(reach.x[:2], x[[85, 3]])
    assert reach.first.shape[1] == sum(int(target) in inside for target in edges[1])


def test_dropout_of_sparse_features_drops_entries_and_scales_the_rest(monkeypatch) -> None:
    x = (torch.rand(200, 300, generator=torch.Generator().manual_seed(0)) < 0.1).float()
    model, seen = GatTraining(dropout=0.6).network(300, 2), list[torch.Tensor]()
    inputs = model.prepared(whole(x, torch.zeros(2, 0, dtype=torch.int64)))
    monkeypatch.setattr(pyg_networks, "weighted_sums", lambda a, w, h: seen.append(w) or weighted_sums(a, w, h))
    model.train()(x, torch.zeros(2, 0, dtype=torch.int64))
    model.eval()(x, torch.zeros(2, 0, dtype=torch.int64))
    assert isinstance(inputs[0], Csr)
    assert set(seen[0].unique().tolist()) == {0.0, 2.5}
    assert float((seen[0] > 0).float().mean()) == pytest.approx(0.4, abs=0.03)
    assert seen[0].shape == seen[1].shape == (int(x.sum()), 1)
    assert bool((seen[1] == 1).all())


def test_dropout_of_dense_features_is_drawn_by_torchs_seed() -> None:
    x, model = torch.ones(300, 40), SageTraining(dropout=0.6).network(40, 2).train()
    torch.manual_seed(0)
    first, second = (model.dropped(x) for _ in range(2))
    assert set(first.unique().tolist()) == {0.0, 2.5}
    assert float((first > 0).float().mean()) == pytest.approx(0.4, abs=0.02)
    assert not torch.equal(first, second)
    torch.manual_seed(0)
    assert torch.equal(model.dropped(x), first)
    state = torch.get_rng_state()
    with model.drawing(torch.Generator().manual_seed(0), x.device):
        assert torch.equal(model.dropped(x), first)
    assert torch.equal(torch.get_rng_state(), state)
    assert model.eval().dropped(x) is x


@pytest.mark.parametrize("kind", ["gat", "gin", "sage"])
def test_sparse_features_give_the_logits_and_gradients_of_dense_ones(kind: str, monkeypatch) -> None:
    draw = torch.Generator().manual_seed(0)
    x = (torch.rand(60, 80, generator=draw) < 0.03).double() * torch.rand(60, 80, generator=draw)
    edges = torch.randint(0, 60, (2, 150), generator=draw)
    model = DETECTORS[kind](hidden=5).network(80, 3).double().eval()
    found = {}
    for share in (pyg_networks.SPARSE_BELOW, -1.0):
        monkeypatch.setattr(pyg_networks, "SPARSE_BELOW", share)
        inputs = model.prepared(whole(x, edges))
        assert isinstance(inputs[0], Csr if share > 0 else torch.Tensor)
        logits = model.from_prepared(*inputs)
        gradients = torch.autograd.grad(logits.square().sum(), list(model.parameters()))
        found[share] = [logits.detach(), *gradients]
    for sparse, dense in zip(*found.values(), strict=True):
        assert float((sparse - dense).abs().max()) <= 1e-13 * float(dense.abs().max())


def test_another_loss_trains_another_network(graph: Graph) -> None:
    assert graph.y is not None
    settings, seen = GinTraining(epochs=3, hidden=4), []

    def loss(logits: torch.Tensor, targets: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        seen.append((targets, weights))
        return cross_entropy(logits, targets, weights) + logits.square().mean()

    plain, other = settings.fit(graph, torch.arange(30)), settings.fit(graph, torch.arange(30), loss=loss)
    assert len(seen) == settings.epochs
    assert torch.equal(seen[0][0], graph.y[:30])
    assert torch.equal(seen[0][1], plain.sample_weights)
    assert not torch.equal(plain.logits(), other.logits())


def test_layers_leave_no_file_behind(tmp_path):
    program = (
        "import inspect, sys\n"
        "from calirare.models.pyg_networks import GAT, GIN, SAGE\n"
        "GAT(3, 2, 4, 2, 0.1), GIN(3, 2, 4, 0.1), SAGE(3, 2, 4, 0.1)\n"
        "made = [each for name, each in sys.modules.items() if name.endswith('GATConv_propagate')]\n"
        "print(len(made), inspect.getsource(made[0].propagate).count('def propagate('))\n"
    )
    env = os.environ | {"TMPDIR": str(tmp_path)}
    said = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True)
    assert said.stdout == "1 1\n"
    assert not list(tmp_path.glob("*.py"))
