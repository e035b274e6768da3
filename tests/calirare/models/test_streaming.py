"""A graph on disk is scored a block of rows at a time as it is in memory, and goes on where it was stopped."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from calirare._util.blocks import BlockFiles
from calirare._util.errors import InputError
from calirare.features import FeatureMap
from calirare.graph import Graph, GraphOnDisk
from calirare.models import GcnTraining, HopColumns, MlpTraining, logits_on_disk, streams_of
from calirare.models import passes as module
from calirare.models.columns import _raw
from calirare_ext import Csr
from tests.helpers.tasks import rare_task


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    monkeypatch.setattr(module, "ROWS", 37)  # blocks of 260 nodes, the last one shorter


def far_from_zero(graph: Graph) -> Graph:
    """A column as large as seconds since 1970, one that is constant, and one with gaps."""
    x = graph.x.clone()
    x[:, 0] += 1.7e9
    x[:, 1] = 5.0
    return dataclasses.replace(graph, x=x, trusted=True)


def weighted(graph: Graph) -> Graph:
    a = graph.adjacency
    made = torch.Generator().manual_seed(1)
    upper = {}
    values = torch.empty(a.nnz)
    for i, (r, c) in enumerate(zip(a.rows().tolist(), a.indices.tolist(), strict=True)):
        key = min(r, c), max(r, c)
        upper.setdefault(key, 0.5 + float(torch.rand((), generator=made)))
        values[i] = upper[key]
    return dataclasses.replace(graph, adjacency=Csr(a.indptr, a.indices, values, a.n_cols), trusted=True)


def with_loop(graph: Graph) -> Graph:
    """Node 3 gets a self loop, node 7 loses every edge."""
    dense = graph.adjacency.to_dense()
    dense[7], dense[:, 7] = 0.0, 0.0
    dense[3, 3] = 2.0
    return dataclasses.replace(graph, adjacency=Csr.from_dense(dense), trusted=True)


GRAPHS = {"plain": lambda g: g, "far from zero": far_from_zero, "weighted": weighted, "loops": with_loop}
NETWORKS = {
    "gcn": GcnTraining(epochs=8),
    "gcn, one layer": GcnTraining(epochs=8, n_layers=1),
    "gcn, three layers, two hops": GcnTraining(epochs=8, n_layers=3, hops=2),
    "linear, one hop": MlpTraining(epochs=8, n_layers=1, hops=1),
    "hops": MlpTraining(epochs=8, hops=2),
    "own features": MlpTraining(epochs=8, hops=0),
}


def fitted(training, graph: Graph, how: str = "standardize"):
    """A trained network whose columns are all scaled by mean and spread, the map of its features and the graph."""
    features = FeatureMap.fit(graph, how)
    ready = features.own(graph)
    if isinstance(training, MlpTraining):
        training = dataclasses.replace(training, columns=standardised(ready, training.hops))
    return training.fit(ready, ready.split.train), features, ready


def standardised(graph: Graph, hops: int) -> HopColumns:
    return HopColumns(hops, None, FeatureMap.fit(_raw(graph, hops), "standardize"))


def on_disk(graph: Graph, tmp_path: Path) -> GraphOnDisk:
    graph.to_folder(tmp_path / "g")
    return GraphOnDisk.open(tmp_path / "g")


@pytest.mark.parametrize("change", GRAPHS.values(), ids=list(GRAPHS))
@pytest.mark.parametrize("training", NETWORKS.values(), ids=list(NETWORKS))
def test_logits_are_those_of_the_graph_in_memory(training, change, tmp_path):
    graph = change(rare_task(seed=2))
    fit, features, ready = fitted(training, graph)
    passes = streams_of(fit, features)
    assert not isinstance(passes, str), passes
    found = logits_on_disk(passes, on_disk(graph, tmp_path))
    wanted = fit.as_dtype(ready, torch.float64).logits_of(ready)
    torch.testing.assert_close(found.double(), wanted, rtol=2e-5, atol=2e-5)


def test_a_loop_that_is_kept_weighs_what_it_weighs(tmp_path):
    graph = with_loop(rare_task(seed=2))
    fit, features, _ = fitted(NETWORKS["gcn"], graph)
    passes = streams_of(fit, features)
    graph.to_folder(tmp_path / "g")
    with_it = logits_on_disk(passes, GraphOnDisk.open(tmp_path / "g"))
    opened = GraphOnDisk.open(tmp_path / "g")
    without = dataclasses.replace(opened, facts=opened.facts | {"self_loops": "drop", "checksums": {"x": 1}})
    assert not torch.allclose(with_it[3], logits_on_disk(passes, without)[3])


def test_gaps_are_filled_as_the_map_fills_them(tmp_path):
    graph = rare_task(seed=2)
    fit, features, _ = fitted(NETWORKS["gcn"], graph)
    x = graph.x.clone()
    x[::5, 2] = torch.nan
    gappy = dataclasses.replace(graph, x=x, trusted=True)
    passes = streams_of(fit, features)
    wanted = fit.logits_of(features.transform(gappy))
    torch.testing.assert_close(logits_on_disk(passes, on_disk(gappy, tmp_path)), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("hops", "n_layers"), [(0, 2), (1, 1), (3, 2)])
def test_columns_of_neighbours_may_have_other_maps(hops, n_layers, tmp_path):
    graph = rare_task(seed=2)
    x = graph.x.clone()
    x[:, 0] = x[:, 0].mul(3).exp()  # skewed, and so are its means
    x[:, 4] = (x[:, 4] > 1.5).float() * x[:, 4]  # mostly one number
    graph = dataclasses.replace(graph, x=x, trusted=True)
    features = FeatureMap.fit(graph, "standardize")
    ready = features.own(graph)
    columns = HopColumns.fit(ready, hops)
    fit = MlpTraining(epochs=8, n_layers=n_layers, hops=hops, columns=columns).fit(ready, ready.split.train)
    passes = streams_of(fit, features)
    assert not isinstance(passes, str), passes
    found = logits_on_disk(passes, on_disk(graph, tmp_path))
    torch.testing.assert_close(found.float(), fit.logits_of(ready), rtol=1e-4, atol=1e-4)


def test_blocks_of_another_network_or_graph_are_not_taken(tmp_path):
    graph = rare_task(seed=2)
    fit, features, _ = fitted(NETWORKS["gcn"], graph)
    other, _, _ = fitted(GcnTraining(epochs=5), graph)
    disk, files = on_disk(graph, tmp_path), BlockFiles(tmp_path / "blocks")
    first = logits_on_disk(streams_of(fit, features), disk, files)
    second = logits_on_disk(streams_of(other, features), disk, files)
    assert not torch.allclose(first, second)
    assert torch.equal(second, logits_on_disk(streams_of(other, features), disk))


def test_an_index_out_of_range_and_a_number_that_is_none_are_refused(tmp_path):
    graph = rare_task(seed=2)
    fit, features, _ = fitted(NETWORKS["gcn"], graph)
    passes = streams_of(fit, features)
    graph.to_folder(tmp_path / "g")
    indices = np.load(tmp_path / "g" / "indices.npy")
    np.save(tmp_path / "g" / "indices.npy", np.where(np.arange(len(indices)) == 100, 260, indices).astype(np.int32))
    with pytest.raises(InputError, match="indices cannot be used"):
        logits_on_disk(passes, GraphOnDisk.open(tmp_path / "g"))
    x = graph.x.clone()
    x[41, 2] = torch.inf
    dataclasses.replace(graph, x=x, trusted=True).to_folder(tmp_path / "h")
    with pytest.raises(InputError, match=r"node 41|infinite"):
        logits_on_disk(passes, GraphOnDisk.open(tmp_path / "h"))
