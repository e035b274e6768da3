"""The figures' files, their numbers, and the search that stands behind the default."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from calirare.graph.graph import Graph
from calirare.models import GcnTraining
from calirare_lab.paper import figure3 as figure3_module
from calirare_lab.paper import figures, search
from calirare_lab.paper.cells import write_cell
from calirare_lab.paper.figure3 import COVERAGES, WEIGHTS, GridPoint, figure3
from calirare_lab.paper.ours import Recipe
from calirare_lab.paper.protocol import Place


def quiet(done: int, total: int, what: str) -> None:
    assert done <= total, what


@pytest.mark.slow
def test_reliability_figures_are_written_in_both_formats(small: Graph, tmp_path: Path, monkeypatch) -> None:
    assert small.split is not None
    assert small.y is not None
    y = small.y[small.split.test]
    p = torch.linspace(0.05, 0.95, y.numel()).double()
    pair = torch.stack([1 - p, p], 1)
    given = dict.fromkeys(("uncalibrated", "ours", "temperature"), pair)
    monkeypatch.setattr(figures, "_predictions", lambda *_: (given, y))
    paths = figures.figure2(tmp_path, 1, quiet)
    assert [path.suffix for path in paths] == [".png", ".pdf"]
    assert all(path.stat().st_size > 10_000 for path in paths)


@pytest.mark.slow
def test_the_search_reads_no_test_label(small: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    import dataclasses

    quick = GcnTraining(epochs=10, hidden=4)
    trainings = {"fixed": Recipe(quick, (), ()), search.CHOSEN: Recipe(quick, (5e-4, 5e-2), (1,))}
    monkeypatch.setattr(search, "TRAININGS", trainings)
    monkeypatch.setattr(search, "BALANCES", (0.8,))
    assert small.split is not None
    assert small.y is not None
    found = search.search_place(Place("cora", 20, 0), small)
    assert len(found) == (1 + 2) * len(trainings) * len(search.NETWORKS) + 2  # and cross-fitting with one network
    assert all(len(values) == len(search.COLUMNS) for values in found.values())
    y = small.y.clone()
    y[small.split.test] = 1 - y[small.split.test]
    assert search.search_place(Place("cora", 20, 0), dataclasses.replace(small, y=y)) == found
    y[small.split.val[:50]] = 1 - y[small.split.val[:50]]
    assert search.search_place(Place("cora", 20, 0), dataclasses.replace(small, y=y)) != found


@pytest.mark.slow
def test_figure_3_shows_the_means_of_the_grid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for a in COVERAGES:
        for w in WEIGHTS:
            for seed in range(2):
                write_cell(GridPoint(tmp_path, a, w, seed).path, {"macro_ace": a * w + 0.01 * seed, "macro_f1": 0.5})
    monkeypatch.setattr(figure3_module, "run_point", None)  # every point is there: nothing may be run
    paths = figure3(tmp_path, 2, 1, quiet)
    assert {path.suffix for path in paths} == {".png", ".pdf", ".json"}
    numbers = json.loads((tmp_path / "figure3.json").read_text())
    assert numbers["mean"][1][2] == pytest.approx(WEIGHTS[1] * COVERAGES[2] + 0.005)
    assert numbers["std"][0][0] == pytest.approx(0.01 / 2**0.5)


def test_the_rule_of_the_search_keeps_macro_f1_and_recall() -> None:
    # recall, macro-F1, ACE of the rare class, Macro-ACE, ECE, NLL, balanced NLL
    data = {
        "a | 1 | none": [0.80, 0.900, 0.2, 0.10, 0, 0, 0.1],
        "a | 1 | jackknife, t = 0.8": [0.85, 0.895, 0.2, 0.08, 0, 0, 0.31],
        "a | 1 | jackknife, t = 1.0": [0.90, 0.885, 0.2, 0.05, 0, 0, 0.30],  # loses too much macro-F1
        "a | 1 | jackknife, t = 1.0, sharpened": [0.90, 0.885, 0.2, 0.04, 0, 0, 0.32],
        "a | 1 | jackknife, t = 0.0": [0.70, 0.905, 0.2, 0.06, 0, 0, 0.33],  # loses recall
        "a | 1 | cross-fit, t = 0.8": [0.85, 0.899, 0.2, 0.07, 0, 0, 0.31],
        "a | 1 | cross-fit, t = 1.0": [0.95, 0.879, 0.2, 0.07, 0, 0, 0.31],
        "b | 3 | none": [0.80, 0.900, 0.2, 0.10, 0, 0, 0.1],
        "b | 3 | jackknife, t = 0.8": [0.85, 0.895, 0.2, 0.02, 0, 0, 0.29],
        "b | 3 | jackknife, t = 1.0": [0.90, 0.895, 0.2, 0.01, 0, 0, 0.35],  # worse networks, however lucky
    }
    assert search.best_networks(data, "jackknife") == "a | 1"
    assert search.chosen(data, "jackknife") == "a | 1 | jackknife, t = 0.8"
    assert search.chosen(data, "cross-fit") == "a | 1 | cross-fit, t = 0.8"
    data["a | 1 | cross-fit, t = 0.8"][1] = 0.88
    assert search.chosen(data, "cross-fit") is None
    data["b | 3 | jackknife, t = 1.0"][6] = 0.29
    assert search.chosen(data, "jackknife") == "b | 3 | jackknife, t = 1.0"
