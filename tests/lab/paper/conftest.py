"""A small graph in the place of every data set."""

from __future__ import annotations

import pytest
import torch

from calirare.datasets import synthetic_rare
from calirare.graph.graph import Graph
from calirare.graph.splits import Split
from calirare_lab.paper import protocol


@pytest.fixture(scope="session")
def small() -> Graph:
    graph = synthetic_rare(420, seed=3, share=0.25, n_features=6, separation=1.0)
    nodes = torch.randperm(420, generator=torch.Generator().manual_seed(0))
    return graph.with_split(Split(nodes[:40], nodes[40:190], nodes[190:], "small"))


@pytest.fixture
def everywhere_small(small: Graph, monkeypatch: pytest.MonkeyPatch) -> Graph:
    monkeypatch.setattr(protocol.Place, "load", lambda self: small)
    return small
