"""The service of the gallery: scores as the library gives them, refusals in words."""

from __future__ import annotations

import dataclasses
import runpy
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import calirare
from tests.helpers.command import rough_runs
from tests.helpers.tasks import rare_task

WHY = "the service of the gallery needs fastapi and httpx, which calirare does not: pip install fastapi httpx"
SERVICE = Path(__file__).parents[3] / "docs" / "examples" / "service.py"
LEVEL = 1e-5


@pytest.fixture
def places(tmp_path, monkeypatch):
    """A run and a graph with names, where the service looks for them."""
    graph = dataclasses.replace(rare_task(), node_names=np.array([f"n{i}" for i in range(260)]))
    graph.to_folder(tmp_path / "g")
    with rough_runs():
        calirare.train(graph, model="gcn", epochs=15, folds=0).save(tmp_path / "run")
    monkeypatch.setenv("CALIRARE_RUN", str(tmp_path / "run"))
    monkeypatch.setenv("CALIRARE_GRAPH", str(tmp_path / "g"))
    return graph, tmp_path


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Using `httpx` with")  # of starlette, which wants its successor
def test_it_scores_nodes(places):
    pytest.importorskip("fastapi", reason=WHY)
    pytest.importorskip("httpx", reason=WHY)
    from fastapi.testclient import TestClient

    graph, folder = places
    x = (graph.x[0] + 0.3).tolist()
    want = calirare.Scorer.open(folder / "run", graph).score(x, ["n3", "n8"], weights=[1.0, 2.0])
    asked = {"x": x, "neighbours": ["n3", "n8"], "weights": [1.0, 2.0]}
    names = runpy.run_path(str(SERVICE))
    with TestClient(names["app"]) as client:
        with ThreadPoolExecutor(4) as several:
            answers = list(several.map(lambda _: client.post("/score", json=asked), range(20)))
        for answer in answers:
            assert answer.status_code == 200
            assert abs(answer.json()["p_rare"] - float(want.rare)) < LEVEL
            assert answer.json()["alert"] == bool(want.alert)
        for wrong, why in (
            ({"neighbours": ["n3", "nobody"]}, "no node 'nobody'"),
            ({"x": [None] * 6}, "must be finite"),
        ):
            refused = client.post("/score", json=asked | wrong)
            assert refused.status_code == 422
            assert why in refused.json()["detail"]
        assert client.post("/score", json={"neighbours": []}).status_code == 422
