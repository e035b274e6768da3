"""The figures' files, their numbers, and the search that stands behind the default."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from calirare.graph.graph import Graph
from calirare.models import GcnTraining
from calirare_lab.paper import figures, search
from calirare_lab.paper.ours import Recipe
from calirare_lab.paper.protocol import Place


def quiet(done: int, total: int, what: str) -> None:
    assert done <= total, what


@pytest.mark.slow
@pytest.mark.parametrize("draw", [figures.figure2])
def test_reliability_figures_are_written_in_both_formats(
    draw, small: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert small.split is not None
    assert small.y is not None
    y = small.y[small.split.test]
    p = torch.linspace(0.05, 0.95, y.numel()).double()
    pair = torch.stack([1 - p, p], 1)
    given = dict.fromkeys(("uncalibrated", "ours", "temperature"), pair)
    monkeypatch.setattr(figures, "_predictions", lambda *_: (given, y))
    paths = draw(tmp_path, 1, quiet)
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
