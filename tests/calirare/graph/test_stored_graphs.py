"""Stored graphs: float16 and int8 are as near as they can hold, gaps stay gaps, a lost array is noticed."""

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


def gappy():
    graph = rare_task()
    x = graph.x.clone()
    x[:, 1] = 7.0  # constant
    x[5, 2] = torch.nan
    x[:, 3] = torch.nan
    return dataclasses.replace(graph, x=x, columns=(), trusted=True)


@pytest.mark.parametrize("packing", ["float16", "int8"])
def test_features_come_back_as_near_as_the_type_holds(packing, tmp_path):
    graph = gappy()
    graph.to_folder(tmp_path / "g", packing=packing)
    disk = GraphOnDisk.open(tmp_path / "g")
    found = disk.features(0, 260).x
    wide = graph.x.nan_to_num().amax(0) - graph.x.nan_to_num().amin(0)
    near = wide / 508 * 1.001 if packing == "int8" else graph.x.abs() * 2.0**-11
    assert torch.equal(found.isnan(), graph.x.isnan())
    assert bool(((found - graph.x).abs().nan_to_num() <= near.nan_to_num() + 1e-6).all())
    assert torch.equal(found[:, 1], graph.x[:, 1])
    assert torch.equal(disk.features_at(np.array([3, 5, 200])).x.nan_to_num(), found[[3, 5, 200]].nan_to_num())
    assert torch.equal(disk.features(130, 260).x.nan_to_num(), found[130:].nan_to_num())


@pytest.mark.parametrize("packing", ["float16", "int8"])
def test_a_packed_folder_is_a_graph(packing, tmp_path):
    rare_task().to_folder(tmp_path / "g", packing=packing)
    found = read_graph(str(tmp_path / "g"))[0]
    assert found.x.dtype == torch.float32
    assert torch.equal(found.x, GraphOnDisk.open(tmp_path / "g").features(0, 260).x)
    assert (tmp_path / "g" / "x.npy").stat().st_size < 260 * 6 * 4


def test_what_cannot_be_packed_is_said(tmp_path):
    graph = rare_task()
    large = dataclasses.replace(graph, x=graph.x * 1e6, trusted=True)
    with pytest.raises(InputError, match="column 0 has numbers beyond 65,504"):
        large.to_folder(tmp_path / "g", packing="float16")
    with pytest.raises(InputError, match="can be stored as float32, float16, int8, got 'int4'"):
        graph.to_folder(tmp_path / "g", packing="int4")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("damage", ["gone", "short", "not finite"])
def test_scales_that_do_not_fit_are_refused(damage, tmp_path):
    rare_task().to_folder(tmp_path / "g", packing="int8")
    path = tmp_path / "g" / "x_scale.npy"
    path.unlink()
    if damage != "gone":
        np.save(path, np.full(5 if damage == "short" else 6, np.inf, dtype=np.float32))
    with pytest.raises(InputError, match="x_scale"):
        GraphOnDisk.open(tmp_path / "g")
    with pytest.raises(InputError, match="x_scale"):
        read_graph(str(tmp_path / "g"))


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
