"""Other columns of FaceBook's words: the scaling is PyG's, the graph and its split stay."""

from __future__ import annotations

import pytest
import torch

from calirare.graph.graph import Graph
from calirare_ext import Csr
from calirare_lab.paper import other_columns, protocol
from calirare_lab.paper.protocol import Place
from tests.helpers.graphs import random_graph


def test_the_scaling_is_pygs() -> None:
    from torch_geometric.data import Data
    from torch_geometric.transforms import NormalizeFeatures

    x = torch.randn(7, 5, generator=torch.Generator().manual_seed(0))
    small = x / 100  # rows whose sums stay below 1 are not divided
    for features in (x, small):
        theirs = NormalizeFeatures()(Data(x=features.clone())).x
        assert torch.allclose(other_columns.normalised(features), theirs, atol=1e-7)


def test_columns_are_made_of_the_words_once(monkeypatch: pytest.MonkeyPatch) -> None:
    words = (torch.rand(60, 40, generator=torch.Generator().manual_seed(0)) < 0.2).float()
    read: list[str] = []

    def bag(name: str, **options: int) -> Graph:
        read.append(name)
        return _graph_of(words)

    monkeypatch.setattr(other_columns, "load_dataset", bag)
    monkeypatch.setattr(protocol, "load_dataset", bag)
    monkeypatch.setattr(other_columns, "N_COLUMNS", 6)
    other_columns._columns.cache_clear()
    first, second = (Place("facebook_nmf", 20, seed).load() for seed in (0, 1))
    other_columns._columns.cache_clear()
    assert read == ["facebook_bag"] * 3
    assert first.name == "facebook_nmf"
    assert isinstance(first.x, torch.Tensor)
    assert first.x.shape == (60, 6)
    assert torch.equal(first.x, second.x)
    assert float(first.x.min()) == 0.0
    assert float(first.x.sum(1).max()) <= 1 + 1e-6
    assert first.feature_normalisation == "none"
    assert torch.equal(first.adjacency.indices, _graph_of(words).adjacency.indices)


def _graph_of(words: torch.Tensor) -> Graph:
    return random_graph(len(words), n_classes=2, x=Csr.from_dense(words), name="facebook_bag")
