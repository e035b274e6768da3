"""Graphs in folders: written, mapped, refused."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from calirare.datasets import load_dataset
from calirare.datasets.folder import load_folder, write_folder
from calirare.datasets.synthetic import synthetic_folder, synthetic_rare
from calirare.errors import InputError
from calirare.scale.mapped import is_mapped, map_tensor, release
from calirare_ext import Csr
from tests.helpers.tasks import rare_task


@pytest.fixture
def folder(tmp_path):
    write_folder(rare_task(), tmp_path / "g")
    return tmp_path / "g"


def test_a_folder_is_the_graph_again(folder):
    graph, again = rare_task(), load_dataset(folder)
    for part in ("indptr", "indices", "values"):
        assert torch.equal(getattr(again.adjacency, part), getattr(graph.adjacency, part))
    assert torch.equal(again.x, graph.x)
    assert torch.equal(again.y, graph.y)
    assert (again.class_names, again.minority, again.name) == (graph.class_names, graph.minority, graph.name)
    assert torch.equal(again.split.train, graph.split.train)
    assert is_mapped(again.x)
    assert not is_mapped(graph.x)
    assert release(again.x)
    assert not release(graph.x)
    assert torch.equal(again.x, graph.x), "read again after its memory was given back"


def test_sparse_features_and_weights_are_kept(tmp_path):
    graph = rare_task(x=Csr.from_dense(torch.eye(260, 9)))
    a = graph.adjacency
    heavy = rare_task(adjacency=Csr(a.indptr, a.indices, torch.full_like(a.values, 2.5), a.n_cols))
    for name, one in (("sparse", graph), ("heavy", heavy)):
        write_folder(one, tmp_path / name)
        again, minority = load_folder(tmp_path / name)
        assert minority == 1
        assert torch.equal(again.adjacency.values, one.adjacency.values)
        dense = [x.to_dense() if isinstance(x, Csr) else x for x in (again.x, one.x)]
        assert torch.equal(*dense)


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("indices", np.full(3, 900, dtype=np.int32), "indptr must rise"),
        ("x", np.zeros((260, 6)), "x must be float32"),
        ("x", np.zeros((259, 6), dtype=np.float32), "one row per node"),
        ("indptr", np.arange(261, dtype=np.int64)[::-1].copy(), "indptr must rise"),
        ("weights", np.ones(3, dtype=np.float32), "one number per index"),
        ("y", np.zeros(7, dtype=np.int64), "one row per node"),
    ],
)
def test_a_spoiled_folder_is_refused(folder, name, array, message):
    np.save(folder / f"{name}.npy", array)
    with pytest.raises(InputError, match=message):
        load_dataset(folder)


def test_an_index_out_of_range_is_refused_even_in_a_checked_folder(folder):
    indices = np.load(folder / "indices.npy")
    indices[5] = 260
    np.save(folder / "indices.npy", indices)
    with pytest.raises(InputError, match="indices must be from 0 to 259"):
        load_dataset(folder)


def test_a_folder_made_by_hand_is_checked_as_a_whole(folder):
    facts = json.loads((folder / "graph.json").read_text())
    del facts["checked"]
    (folder / "graph.json").write_text(json.dumps(facts))
    x = np.load(folder / "x.npy")
    x[3, 2] = np.nan
    np.save(folder / "x.npy", x)
    with pytest.raises(InputError, match="features must be finite, got nan at node 3, column 2"):
        load_dataset(folder)


def test_a_folder_that_is_none_is_refused(tmp_path, folder):
    with pytest.raises(InputError, match=r"graph\.json is missing"):
        load_dataset(tmp_path)
    with pytest.raises(InputError, match="exists already"):
        write_folder(rare_task(), folder)
    (folder / "x.npy").write_bytes(b"\x93NUMPY")
    with pytest.raises(InputError, match="damaged"):
        load_dataset(folder)
    with pytest.raises(InputError, match="no such file"):
        map_tensor(folder / "nothing.npy")
    with pytest.raises(InputError, match="symmetrize must be left out"):
        load_dataset(folder, symmetrize=True)


def test_a_simulated_graph_goes_straight_into_a_folder(tmp_path):
    synthetic_folder(tmp_path / "s", 3000, seed=4, n_features=5, n_val=20, n_test=50)
    expected, graph = synthetic_rare(3000, seed=4, n_features=5), load_dataset(tmp_path / "s")
    assert torch.equal(graph.x, expected.x)
    assert torch.equal(graph.adjacency.indices, expected.adjacency.indices)
    assert torch.equal(graph.posterior, expected.posterior)
    assert [p.numel() for p in (graph.split.train, graph.split.val, graph.split.test)] == [40, 20, 50]
    assert [path.name for path in tmp_path.iterdir()] == ["s"]
