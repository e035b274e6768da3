"""Features in float16 and int8: what comes back is as near as they can hold, gaps stay gaps, damage is one sentence."""

from __future__ import annotations

import dataclasses

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
