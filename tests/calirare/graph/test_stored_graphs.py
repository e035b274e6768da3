"""Stored graphs: features in float16 are read as float32, a lost array is noticed."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import torch

from calirare._util.errors import InputError
from calirare.datasets import read_graph
from calirare.graph import GraphOnDisk
from tests.helpers.tasks import rare_task


def test_features_in_half_precision_are_read_as_float32(tmp_path):
    graph = rare_task()
    graph.to_folder(tmp_path / "g")
    half = graph.x.half()
    np.save(tmp_path / "g" / "x.npy", half.numpy())
    disk = GraphOnDisk.open(tmp_path / "g")
    assert torch.equal(disk.features(130, 260).x, half[130:].float())
    assert torch.equal(disk.features_at(np.array([3, 5, 200])).x, half[[3, 5, 200]].float())
    assert torch.equal(read_graph(str(tmp_path / "g"))[0].x, half.float())


ARRAYS = ("weights", "scored", "node_names", "x", "indices")


@pytest.fixture
def folder(tmp_path):
    plain = rare_task()
    assert plain.y is not None
    edges = dataclasses.replace(plain.adjacency, values=plain.adjacency.values * 2)
    names = np.array([f"n{i:03}" for i in range(plain.n_nodes)])
    scored = torch.arange(plain.n_nodes) % 5 > 0
    y = torch.where(scored, plain.y, -1)
    graph = dataclasses.replace(plain, y=y, adjacency=edges, node_names=names, scored=scored, split=None, trusted=True)
    graph.to_folder(tmp_path / "g")
    return tmp_path / "g"


@pytest.mark.parametrize("name", ARRAYS)
def test_a_lost_array_is_missed(folder, name):
    (folder / f"{name}.npy").unlink()
    with pytest.raises(InputError, match=f"{name}.npy is missing, which graph.json lists"):
        GraphOnDisk.open(folder)
    with pytest.raises(InputError, match=f"{name}.npy is missing"):
        read_graph(str(folder))


def test_labels_may_go_and_older_folders_list_nothing(folder):
    (folder / "y.npy").unlink()
    assert GraphOnDisk.open(folder).weighted
    facts = json.loads((folder / "graph.json").read_text())
    assert set(ARRAYS) < set(facts.pop("checksums"))
    (folder / "graph.json").write_text(json.dumps(facts))
    (folder / "weights.npy").unlink()
    assert not GraphOnDisk.open(folder).weighted
