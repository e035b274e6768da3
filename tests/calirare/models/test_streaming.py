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
from calirare.models import FoldedNetwork, GcnTraining, HopColumns, MlpTraining, logits_on_disk, streams_of
from calirare.models import passes as passes_module
from calirare.models import streaming as module
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


def test_rows_begin_with_a_line_of_the_cache():
    for width in (1, 2, 16, 48):
        rows = module.room(7, width)
        assert rows.shape == (7, width)
        assert rows.data_ptr() % 64 == 0


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


def test_columns_with_other_maps_are_mapped_row_by_row(tmp_path):
    graph = rare_task(seed=2)
    x = graph.x.clone()
    x[:, 0] = x[:, 0].mul(3).exp()  # skewed: ranks
    skewed = dataclasses.replace(graph, x=x, trusted=True)
    fit, features, ready = fitted(NETWORKS["gcn"], skewed, "auto")
    assert features.curved()
    passes = streams_of(fit, features)
    torch.testing.assert_close(
        logits_on_disk(passes, on_disk(skewed, tmp_path)), fit.logits_of(ready), rtol=1e-4, atol=1e-5
    )


def test_sparse_features_are_read_by_rows(tmp_path):
    dense = rare_task(seed=2)
    sparse = dataclasses.replace(dense, x=Csr.from_dense(dense.x.relu()), trusted=True)
    fit, features, ready = fitted(NETWORKS["gcn"], sparse, "auto")
    found = logits_on_disk(streams_of(fit, features), on_disk(sparse, tmp_path))
    torch.testing.assert_close(found, fit.logits_of(ready), rtol=1e-4, atol=1e-5)


def test_folds_are_left_aside(tmp_path):
    graph = rare_task(seed=2)
    fit, features, _ = fitted(NETWORKS["gcn"], graph)
    folded = FoldedNetwork(fit, (), torch.zeros(fit.nodes.numel(), dtype=torch.int64), fit.label_logits.double())
    a, b = (
        logits_on_disk(streams_of(each, features), on_disk(graph, tmp_path / name))
        for each, name in ((fit, "a"), (folded, "b"))
    )
    assert torch.equal(a, b)


@pytest.mark.parametrize("hops", [0, 1, 2, 3])
@pytest.mark.parametrize("n_layers", [1, 2])
def test_columns_of_neighbours_may_have_other_maps(hops, n_layers, tmp_path):
    graph = rare_task(seed=2)
    x = graph.x.clone()
    x[:, 0] = x[:, 0].mul(3).exp()  # skewed, and so are its means
    x[:, 4] = (x[:, 4] > 1.5).float() * x[:, 4]  # mostly one number
    graph = dataclasses.replace(graph, x=x, trusted=True)
    features = FeatureMap.fit(graph, "standardize")
    ready = features.own(graph)
    columns = HopColumns.fit(ready, hops)
    assert columns.scaled.curved()
    fit = MlpTraining(epochs=8, n_layers=n_layers, hops=hops, columns=columns).fit(ready, ready.split.train)
    passes = streams_of(fit, features)
    assert not isinstance(passes, str), passes
    found = logits_on_disk(passes, on_disk(graph, tmp_path))
    torch.testing.assert_close(found.float(), fit.logits_of(ready), rtol=1e-4, atol=1e-4)


def test_other_detectors_say_why_not():
    assert "no graph convolution" in streams_of(object(), FeatureMap.fit(rare_task(seed=2), "standardize"))


def test_it_goes_on_where_it_was_stopped_with_the_same_bits(tmp_path, monkeypatch):
    graph = rare_task(seed=2)
    fit, features, _ = fitted(NETWORKS["gcn"], graph)
    passes, disk = streams_of(fit, features), on_disk(graph, tmp_path)
    wanted = logits_on_disk(passes, disk)
    files, made = BlockFiles(tmp_path / "blocks"), list[int]()

    class StoppedError(Exception):
        pass

    def stop_in_the_last_pass(stage, done, total):
        if stage == "pass 2" and done == 3:
            raise StoppedError

    with pytest.raises(StoppedError):
        logits_on_disk(passes, disk, files, stop_in_the_last_pass)
    assert files.count("pass1") == 8
    assert files.count("pass2") == 3
    real = passes_module.propagate
    monkeypatch.setattr(passes_module, "propagate", lambda a, x: made.append(a.n_rows) or real(a, x))
    again = logits_on_disk(passes, disk, files)
    assert torch.equal(again, wanted)
    assert len(made) == 5  # blocks of the last pass alone


def test_blocks_of_another_network_or_graph_are_not_taken(tmp_path):
    graph = rare_task(seed=2)
    fit, features, _ = fitted(NETWORKS["gcn"], graph)
    other, _, _ = fitted(GcnTraining(epochs=5), graph)
    disk, files = on_disk(graph, tmp_path), BlockFiles(tmp_path / "blocks")
    first = logits_on_disk(streams_of(fit, features), disk, files)
    second = logits_on_disk(streams_of(other, features), disk, files)
    assert not torch.allclose(first, second)
    assert torch.equal(second, logits_on_disk(streams_of(other, features), disk))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda f: (f / "indices.npy").unlink(), "indices.npy is missing"),
        (lambda f: (f / "x.npy").write_bytes((f / "x.npy").read_bytes()[:-8]), "claims"),
        (lambda f: (f / "indptr.npy").write_bytes(b"nothing"), "first bytes"),
    ],
    ids=["gone", "cut off", "no array"],
)
def test_a_damaged_folder_is_refused_when_it_is_opened(damage, said, tmp_path):
    rare_task(seed=2).to_folder(tmp_path / "g")
    damage(tmp_path / "g")
    with pytest.raises(InputError, match=said):
        GraphOnDisk.open(tmp_path / "g")


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


def test_an_empty_graph_has_no_logits(tmp_path):
    graph = rare_task(seed=2)
    fit, features, _ = fitted(NETWORKS["gcn"], graph)
    none = Csr(torch.zeros(1, dtype=torch.int64), torch.empty(0, dtype=torch.int32), torch.empty(0), 0)
    empty = Graph(none, graph.x[:0], trusted=True)
    assert logits_on_disk(streams_of(fit, features), on_disk(empty, tmp_path)).shape == (0, 2)
