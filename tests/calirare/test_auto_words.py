"""`auto` on words: with few labels its linear models read all of them, and all that a run does goes on."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import calirare
from calirare.export import Names
from calirare.features import Svd, TfIdf
from calirare.pipeline import auto
from calirare.run import Scorer
from tests.calirare.export.test_parity import PARITY
from tests.calirare.models.test_words import words_task
from tests.helpers.command import rough_runs
from tests.helpers.warehouse import ENGINES, parity

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def graph():
    return words_task()


@pytest.fixture(scope="module")
def outcome(graph):
    with rough_runs():
        return calirare.train(graph)


def read_by(outcome) -> dict[str, type]:
    """Returns what becomes of the words that each member on columns reads."""
    fits = {member.name: member.fitted for member in outcome.fit.members}
    networks = {name: getattr(each, "network", each) for name, each in fits.items()}
    return {name: type(each.columns.own.whole) for name, each in networks.items() if hasattr(each, "columns")}


def test_linear_models_read_all_words_and_the_others_directions(outcome):
    linear = {"linear": TfIdf, auto.NO_EDGES: TfIdf}
    assert read_by(outcome) == {"trees": Svd, "forest": Svd, "hops": Svd} | linear


def test_with_many_labels_all_read_directions(graph, monkeypatch):
    monkeypatch.setattr(auto, "SCARCE", graph.split.train.numel() - 1)
    with rough_runs():
        assert set(read_by(calirare.train(graph)).values()) == {Svd}


def test_a_saved_run_says_the_same_bits(outcome, graph, tmp_path):
    with rough_runs():
        outcome.save(tmp_path / "run")
    again, here = calirare.load(tmp_path / "run").predict(graph), outcome.to_frame()
    for name in ("p_rare", "p_balanced", "p_raw", "lower", "upper", "uncertainty"):
        assert (again[name] - here[name]).abs().max() == 0, name


def test_explanations_name_words_and_add_up(outcome):
    found = outcome.explain(top=3)
    assert any(share.name.startswith("word ") for each in found for share in each.features)
    for each in found:
        assert each.base + sum(share.share for share in each.features) == pytest.approx(each.log_odds, abs=1e-9)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_query_says_what_the_run_says(outcome, graph, engine):
    x = graph.x.to_dense()
    rows, columns = (each.numpy() for each in x.nonzero(as_tuple=True))
    names = np.array(graph.feature_names)[columns]
    features = pd.DataFrame({"node": rows, "feature": names, "value": x.numpy()[rows, columns]})
    a = graph.adjacency
    ends = np.stack([a.rows().numpy(), a.indices.numpy()], 1)
    edges = pd.DataFrame(ends[ends[:, 0] < ends[:, 1]], columns=["source", "target"])
    frames = {"nodes": pd.DataFrame({"node": range(260)}), "edges": edges, "features": features}
    assert parity(Scorer.of(outcome), graph, engine, Names(features="features"), **frames) <= PARITY
