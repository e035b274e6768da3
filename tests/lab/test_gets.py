"""The protocol of the calibration record: splits, the largest component, cells that are run once, summaries."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from calirare._util.errors import InputError
from calirare.metrics import ece, nll
from calirare.models import GcnTraining
from calirare_ext import Csr
from calirare_lab.studies import gets
from tests.helpers.graphs import random_graph


def test_splits_are_random_shares_of_the_labelled_nodes() -> None:
    y = torch.arange(200) % 3
    y[:10] = -1
    split, other = gets.random_shares(y, 0), gets.random_shares(y, 1)
    assert [part.numel() for part in (split.train, split.val, split.test)] == [38, 19, 133]
    every = torch.cat([split.train, split.val, split.test])
    assert torch.equal(every.sort().values, torch.arange(10, 200))
    assert not torch.equal(split.train, other.train)
    assert torch.equal(split.train, gets.random_shares(y, 0).train)


def test_the_largest_component_keeps_its_edges_features_and_labels() -> None:
    a = torch.zeros(6, 6)
    for i, j in ((1, 3), (3, 5), (0, 2)):
        a[i, j] = a[j, i] = 1
    x = torch.arange(12.0).view(6, 2)
    graph = random_graph(6, 2, adjacency=Csr.from_dense(a), x=x, y=torch.tensor([0, 1, 0, 0, 1, 1]))
    kept = gets.largest_component(graph)
    assert torch.equal(kept.adjacency.to_dense(), a[[1, 3, 5]][:, [1, 3, 5]])
    assert torch.equal(kept.x, x[[1, 3, 5]])
    assert kept.y.tolist() == [1, 0, 1]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph of 150 nodes and three classes in place of Cora, ten epochs in place of 200."""
    graph = random_graph(150, 3, seed=2)
    split = graph.with_split(gets.random_shares(graph.y, 0))
    monkeypatch.setattr(gets, "load", lambda dataset, seed: split)
    monkeypatch.setattr(gets, "GcnTraining", lambda seed: GcnTraining(seed=seed, epochs=10))


@pytest.mark.slow
@pytest.mark.parametrize(("track", "maps"), [("frozen", 6), ("left-out", 6), ("peers", 2)])
def test_a_cell_has_a_row_per_map(small: None, track: str, maps: int) -> None:
    rows = gets.run_cell("cora", 0, track)
    assert len({row["map"] for row in rows}) == len(rows) == maps
    assert ("verdict" in rows[0]) == (track == "left-out")
    for row in rows:
        assert 0 <= row["ece"] <= 1
        assert row["nll"] > 0
    assert len({row["nll"] for row in rows}) > 1


def test_measures_are_of_the_predicted_class_in_ten_bins() -> None:
    p = torch.softmax(torch.randn(80, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64), 1)
    labels = torch.arange(80) % 3
    values = gets._judge(labels, p)
    assert values["ece"] == pytest.approx(float(ece(labels, p, 10)), abs=1e-6)
    assert values["nll"] == pytest.approx(float(nll(labels, p)), abs=1e-6)
    assert values["accuracy"] == pytest.approx(float((p.argmax(1) == labels).double().mean()), abs=1e-6)


def test_cells_that_are_there_are_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[tuple[str, int, str]]()

    def cell(dataset: str, seed: int, track: str) -> list[dict]:
        asked.append((dataset, seed, track))
        row = {"dataset": dataset, "seed": seed, "track": track, "cpu_seconds": 0.0}
        return [row | {"map": name} | dict.fromkeys(gets.MEASURES, float(seed)) for name in ("a", "b")]

    monkeypatch.setattr(gets, "run_cell", cell)
    path, said = tmp_path / "gets.jsonl", list[str]()
    gets.run(path, ["cora"], ["frozen"], 2, said.append)
    gets.run(path, ["cora"], ["frozen", "peers"], 3, said.append)
    assert asked == [
        ("cora", 0, "frozen"),
        ("cora", 1, "frozen"),
        *(("cora", 0, "peers"), ("cora", 1, "peers"), ("cora", 2, "frozen"), ("cora", 2, "peers")),
    ]
    assert len(said) == 6
    found = gets.summary(gets.read(path))["cora", "frozen", "a"]
    assert found["seeds"] == 3
    assert found["nll"] == (1.0, 1.0)
    assert np.isnan(gets.summary(gets.read(path)[:1])["cora", "frozen", "a"]["nll"][1])
    with path.open("a") as file:
        file.write(json.dumps({"dataset": "cora"})[:-3])
    with pytest.raises(InputError, match=r"line 13 of .* is no row of results"):
        gets.run(path, ["cora"], ["frozen"], 1, said.append)


@pytest.mark.parametrize(("datasets", "tracks"), [(["core"], ["frozen"]), (["cora"], ["thawed"])])
def test_unknown_names_are_refused(tmp_path: Path, datasets: list[str], tracks: list[str]) -> None:
    with pytest.raises(InputError, match="must be among"):
        gets.run(tmp_path / "x.jsonl", datasets, tracks, 1, print)
    assert not (tmp_path / "x.jsonl").exists()
