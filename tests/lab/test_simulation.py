"""Simulated graphs written without being held: the law they follow, the files they leave, what is refused."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch

from calirare._util.array_files import file_checksum
from calirare._util.errors import InputError
from calirare.datasets import load_dataset
from calirare.graph import Graph
from calirare.graph.folder import checksums_of
from calirare.graph.validation import check_adjacency
from calirare_lab.simulation import on_disk, synthetic_on_disk
from calirare_lab.simulation.array_writer import ArrayWriter, joined_checksum
from calirare_lab.simulation.block_law import DegreeLaw

N, SHARE, DEGREE = 40_000, 0.25, 12
LAW = {"share": SHARE, "mean_degree": DEGREE, "homophily": 0.6, "n_features": 4, "separation": 1.5}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("on_disk") / "g"
    synthetic_on_disk(path, N, seed=1, **LAW)
    return path


@pytest.fixture(scope="module")
def graph(folder) -> Graph:
    return load_dataset(folder)


def write(path: Path, n: int = 2000, **options) -> dict[str, np.ndarray]:
    """Returns the arrays of a folder written now."""
    synthetic_on_disk(path, n, **({"n_features": 3} | options))
    return {file.stem: np.load(file) for file in path.glob("*.npy")}


def same(first: dict[str, np.ndarray], second: dict[str, np.ndarray]) -> bool:
    return first.keys() == second.keys() and all(np.array_equal(first[key], second[key]) for key in first)


def direction(graph: Graph) -> torch.Tensor:
    """Returns the unit vector between the means of the classes."""
    difference = graph.x[graph.y == 1].double().mean(0) - graph.x[graph.y == 0].double().mean(0)
    return difference / difference.norm()


def test_the_folder_is_believed_and_passes_every_check(folder, graph):
    facts = json.loads((folder / "graph.json").read_text())
    assert facts["checksums"] == checksums_of(folder), "made while writing, without a second look"
    check_adjacency(graph.adjacency, "on disk")  # symmetric, ascending, no edge twice
    assert not bool((graph.adjacency.rows() == graph.adjacency.indices).any())
    assert (graph.class_names, graph.minority, graph.name) == (("rest", "rare"), 1, "synthetic")
    assert graph.split.name == "simulated(label_rate=20, seed=1)"
    assert sorted(file.name for file in folder.parent.iterdir()) == ["g"]


def test_neither_chunks_nor_buckets_nor_threads_change_the_graph(tmp_path, monkeypatch):
    whole = write(tmp_path / "whole", seed=5)
    monkeypatch.setattr(on_disk, "PAIRS", 777)
    monkeypatch.setattr(on_disk, "BUCKET", 3001)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    assert same(whole, write(tmp_path / "parts", seed=5))
    monkeypatch.setattr(on_disk, "MOST_BUCKETS", 2)
    assert same(whole, write(tmp_path / "two", seed=5))
    other = write(tmp_path / "other", seed=6)
    assert not any(np.array_equal(whole[key], other[key]) for key in whole)


def test_edges_follow_the_block_model(graph):
    """As in `synthetic_rare`: the other end is of the same block with probability h + (1 - h) * its share of ends."""
    degree = graph.adjacency.indptr.diff().double()
    assert abs(float(degree.mean()) - DEGREE) < 0.04 * DEGREE
    y = graph.y[graph.adjacency.rows()]
    alike = y == graph.y[graph.adjacency.indices.long()]
    for block, share in ((0, 1 - SHARE), (1, SHARE)):
        # A standard deviation below .0015; repeated edges bias hubs a little.
        assert abs(float(alike[y == block].double().mean()) - (0.6 + 0.4 * share)) < 0.01
        assert abs(float(degree[graph.y == block].mean()) - DEGREE) < 0.05 * DEGREE


@pytest.mark.parametrize("exponent", [2.01, 2.5, 50.0])
def test_ranks_are_drawn_by_the_law_of_expected_degrees(exponent):
    law, n, mean = DegreeLaw.cut(10_000, 16, exponent), 10_000, 16
    uniform = (np.arange(1_000_000) + 0.5) / 1_000_000
    x = law.drawn(uniform.copy())
    assert x.min() >= 0
    assert x.max() <= 1
    assert (np.diff(x) >= 0).all()
    # Expected degree near 0 and where x is a half, by how much of the ends fall there.
    edges = np.array([0.5, 0.51])
    grid = (np.linspace(0, 1, 200_001) + law.offset) ** (-1 / (exponent - 1))
    total = (grid.sum() - (grid[0] + grid[-1]) / 2) / 200_000
    assert mean * grid[0] / total == pytest.approx(np.sqrt(n * mean), rel=0.05 if exponent > 2.1 else 0.5)
    wanted = 0.01 * (0.505 + law.offset) ** (-1 / (exponent - 1)) / total
    assert np.diff(np.searchsorted(x, edges))[0] / 1e6 == pytest.approx(wanted, rel=0.05 if exponent > 2.1 else 0.5)


def test_features_are_two_normals(graph):
    u, x, y = direction(graph), graph.x.double(), graph.y
    assert abs(float((x @ u)[y == 1].mean() - (x @ u)[y == 0].mean()) - 1.5) < 0.05
    centred = x - torch.where(y == 1, 0.75, -0.75)[:, None] * u
    assert float((torch.cov(centred.T) - torch.eye(4)).abs().max()) < 0.04


@pytest.mark.parametrize(
    "wrong",
    [
        {"n_nodes": 9},
        {"mean_degree": 2000.0},
        {"dtype": "float64"},
        {"label_rate": 201},
    ],
    ids=str,
)
def test_numbers_out_of_range_are_refused(tmp_path, wrong):
    with pytest.raises(InputError, match=f": {next(iter(wrong))} must be .*, got "):
        synthetic_on_disk(tmp_path / "g", **({"n_nodes": 2000} | wrong))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("stage", ["edges", "features"])
def test_an_interruption_leaves_nothing_behind(tmp_path, monkeypatch, stage):
    monkeypatch.setattr(on_disk, "PAIRS", 777)
    monkeypatch.setattr(on_disk, "BUCKET", 3001)

    def stop(now: str, done: int, total: int) -> None:
        assert 0 < done <= total
        if now == stage:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        synthetic_on_disk(tmp_path / "g", 2000, n_features=2, report=stop)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("sizes", [(0, 0), (1, 0), (0, 5), (7, 13), (100, 65_537)])
def test_checksums_of_two_pieces_join(sizes):
    rng = np.random.default_rng(0)
    first, second = (rng.bytes(size) for size in sizes)
    assert joined_checksum(zlib.crc32(first), zlib.crc32(second), sizes[1]) == zlib.crc32(first + second)


@pytest.mark.parametrize("parts", [(), (0,), (3, 0, 5), (1000,)])
def test_a_growing_file_is_what_numpy_writes(tmp_path, parts):
    rows = [np.random.default_rng(size).random((size, 3), dtype=np.float32) for size in parts]
    with ArrayWriter(tmp_path / "x.npy", "float32", 3) as file:
        for part in rows:
            file.append(part)
    whole = np.concatenate([np.empty((0, 3), dtype=np.float32), *rows])
    np.save(tmp_path / "y.npy", whole)
    assert (tmp_path / "x.npy").read_bytes() == (tmp_path / "y.npy").read_bytes()
    assert file.checksum == file_checksum(tmp_path / "x.npy")
    with ArrayWriter(tmp_path / "x.npy", "float32", 3) as file, pytest.raises(TypeError, match="must be float32"):
        file.append(np.zeros((2, 3)))
