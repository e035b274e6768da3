"""Attention as sparse products against PyTorch Geometric's layer, which writes out every edge."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from calirare.models import attention as models_attention
from calirare.models.attention import Incoming, attention

HEADS, UNITS = 3, 5


@pytest.fixture(params=[40, 2000], ids=["few", "many"])
def graph(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[Tensor, Tensor]:
    """Features and edges, with self loops, nodes without edges and a pair of edges in one direction alone."""
    monkeypatch.setattr(models_attention, "EDGES_AT_ONCE", 64)
    draw, n = torch.Generator().manual_seed(request.param), 60
    edges = torch.randint(0, n - 4, (2, request.param), generator=draw)
    return torch.rand(n, 7, generator=draw, dtype=torch.float64), torch.unique(edges, dim=1)


def both(x: Tensor, edges: Tensor) -> tuple[list[Tensor], Tensor, Tensor]:
    """Returns the layer's parameters, its output and ours."""
    from torch_geometric.nn import GATConv

    torch.manual_seed(0)
    layer = GATConv(7, UNITS, heads=HEADS).double()
    heads = layer.lin(3 * x).view(len(x), HEADS, UNITS)
    ours = attention(Incoming.of(edges, len(x), len(x)), heads, layer.att_src[0], layer.att_dst[0])
    return list(layer.parameters()), layer(3 * x, edges), ours.flatten(1) + layer.bias


def detached(x: Tensor, edges: Tensor) -> list[Tensor]:
    return [said.detach() for said in both(x, edges)[1:]]


def test_heads_say_what_the_layer_says(graph):
    theirs, ours = detached(*graph)
    assert float((ours - theirs).abs().max()) <= 1e-14 * float(theirs.abs().max())


def test_first_and_second_derivatives_are_the_layers(graph):
    parameters, *said = both(*graph)
    first = [torch.autograd.grad(x.pow(3).sum(), parameters, create_graph=True) for x in said]
    second = [torch.autograd.grad(sum(g.square().sum() for g in each), parameters) for each in first]
    for theirs, ours in (first, second):
        for a, b in zip(theirs, ours, strict=True):
            assert float((a - b).detach().abs().max()) <= 1e-12 * float(a.detach().abs().max())


def test_scores_of_any_size_overflow_nowhere(graph):
    x, edges = graph
    theirs, ours = detached(1e4 * x, edges)
    assert bool(ours.isfinite().all())
    assert float((ours - theirs).abs().max()) <= 1e-12 * float(theirs.abs().max())


def test_what_is_kept_multiplies_weights_but_not_their_sum(graph):
    x, edges = graph
    at = Incoming.of(edges, len(x), len(x))
    h, (s, t) = x[:, :6].view(-1, 2, 3), torch.rand(2, 2, 3, dtype=torch.float64)
    whole, none = attention(at, h, s, t), attention(at, h, s, t, torch.zeros(at.sources.numel(), 2).double())
    half = attention(at, h, s, t, torch.full((at.sources.numel(), 2), 0.5, dtype=torch.float64))
    assert bool((none == 0).all())
    assert float((half - whole / 2).abs().max()) <= 1e-15 * float(whole.abs().max())


def test_the_first_nodes_alone_are_told_from_those_around(graph):
    x, edges = graph
    h, (s, t) = x[:, :6].view(-1, 2, 3), torch.rand(2, 2, 3, dtype=torch.float64)
    some = attention(Incoming.of(edges[:, edges[1] < 9], 9, len(x)), h, s, t)
    every = attention(Incoming.of(edges, len(x), len(x)), h, s, t)[:9]
    assert torch.equal(some, every)
