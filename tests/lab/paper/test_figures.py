"""The figures' files, their numbers, and the search that stands behind the default."""

from __future__ import annotations

import pytest

from calirare.graph.graph import Graph
from calirare.models import GcnTraining
from calirare_lab.paper import search
from calirare_lab.paper.ours import Recipe
from calirare_lab.paper.protocol import Place


def quiet(done: int, total: int, what: str) -> None:
    assert done <= total, what


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
