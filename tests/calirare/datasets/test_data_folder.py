"""Graphs in folders: written, mapped, refused."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from calirare._util.array_files import _MAPPED, map_tensor, release
from calirare._util.errors import InputError
from calirare.datasets import load_dataset
from calirare_ext import Csr
from tests.helpers.tasks import rare_task


def is_mapped(tensor: torch.Tensor) -> bool:
    """Returns whether a file stands behind a tensor."""
    return tensor.untyped_storage().data_ptr() in _MAPPED


@pytest.fixture
def folder(tmp_path):
    rare_task().to_folder(tmp_path / "g")
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


def change_facts(folder, **facts):
    known = json.loads((folder / "graph.json").read_text())
    (folder / "graph.json").write_text(json.dumps(known | facts))


def write_edges(folder, edges):
    """Puts other edges in the place of a folder's, which was then not written by `Graph.to_folder`."""
    edges = edges[np.lexsort((edges[:, 1], edges[:, 0]))]
    np.save(folder / "indptr.npy", np.append(0, np.cumsum(np.bincount(edges[:, 0], minlength=260))))
    np.save(folder / "indices.npy", edges[:, 1].astype(np.int32))
    change_facts(folder, checked=False)


def edges_of(graph):
    return torch.stack([graph.adjacency.rows(), graph.adjacency.indices.long()], 1).numpy()


def test_a_missing_direction_is_mended_as_the_sentence_says(folder):
    edges = edges_of(rare_task())
    write_edges(folder, edges[1:])
    with pytest.raises(
        InputError, match=r"has no opposite edge .*: pass symmetrize=True \(command line: --symmetrize\)"
    ):
        load_dataset(folder)
    mended = load_dataset(folder, symmetrize=True)
    assert np.array_equal(edges_of(mended), edges)
    assert is_mapped(mended.x)
    write_edges(folder, np.concatenate([edges, edges[:1], edges[:1, ::-1]]))
    assert np.array_equal(edges_of(load_dataset(folder, duplicates="drop")), edges)


def test_a_folder_without_a_split_gets_one_of_all_labels(folder):
    for part in ("train", "val", "test"):
        (folder / f"{part}_idx.npy").unlink()
    assert load_dataset(folder).split.name.startswith("share(")


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        (
            {"class_names": None},
            r"class_names in graph\.json must be a list of names .*, got null: correct it or leave it out",
        ),
        ({"class_names": "ab"}, r'class_names in graph\.json must be a list of names .*, got "ab"'),
        ({"class_names": ["a", 1]}, "must be a list of names"),
        ({"feature_names": [1]}, r"feature_names in graph\.json must be a list of names"),
        ({"feature_normalisation": ["row"]}, "must be one of none, row, standardize"),
        ({"minority": True}, "minority must be one class from 0 to 1, got True"),
    ],
)
def test_facts_that_do_not_fit_are_refused(folder, facts, message):
    change_facts(folder, **facts)
    with pytest.raises(InputError, match=message) as error:
        load_dataset(folder)
    assert str(folder) in str(error.value)


def test_the_number_of_sparse_features_must_be_one(tmp_path):
    rare_task(x=Csr.from_dense(torch.eye(260, 9))).to_folder(tmp_path / "g")
    for wrong in (None, "nine", -1):
        change_facts(tmp_path / "g", n_features=wrong)
        with pytest.raises(InputError, match=r"n_features in graph\.json must be the number of features, got"):
            load_dataset(tmp_path / "g")


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("indices", np.full(3, 900, dtype=np.int32), "indptr must run from 0 to 3"),
        ("x", np.zeros((260, 6)), "x must be float32"),
        ("x", np.zeros((259, 6), dtype=np.float32), "one row per node"),
        ("indptr", np.arange(261, dtype=np.int64)[::-1].copy(), "indptr must run from 0"),
        ("weights", np.ones(3, dtype=np.float32), "one number per entry of indices"),
        ("y", np.zeros(7, dtype=np.int64), "one label per node"),
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
    with pytest.raises(InputError, match="indices must be in"):
        load_dataset(folder)


def test_a_folder_that_is_none_is_refused(tmp_path, folder):
    with pytest.raises(InputError, match=r"graph\.json is missing"):
        load_dataset(tmp_path)
    with pytest.raises(InputError, match="exists already"):
        rare_task().to_folder(folder)
    (folder / "x.npy").write_bytes(b"\x93NUMPY")
    with pytest.raises(InputError, match="damaged"):
        load_dataset(folder)
    with pytest.raises(InputError, match="no such file"):
        map_tensor(folder / "nothing.npy")
    with pytest.raises(InputError, match="label must be left out for a graph's folder, it is for edge tables"):
        load_dataset(folder, label="y")
