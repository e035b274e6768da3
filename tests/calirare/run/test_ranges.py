"""Intervals of the true P(rare) and label sets, in tables of a run, of a saved run and of another graph."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import calirare
from calirare.calibration import node_probabilities
from tests.helpers.command import rough_runs
from tests.helpers.tasks import rare_task


@pytest.fixture(scope="module")
def outcome():
    with rough_runs():
        return calirare.train(rare_task(1500), model="trees")


def test_the_table_has_the_intervals_of_the_public_function(outcome):
    table = outcome.to_frame()
    logits, every = outcome.fit.folded.all_logits_of(outcome.mapped)
    wanted = node_probabilities(outcome.calibrators["population"], logits, every, len(outcome.fit.targets))
    np.testing.assert_allclose(table["p_low"], wanted.low, atol=1e-9)
    np.testing.assert_allclose(table["p_high"], wanted.high, atol=1e-9)
    assert bool((table["p_low"] <= table["p_rare"]).all() and (table["p_rare"] <= table["p_high"]).all())
    assert "lower" not in table


def test_a_label_set_is_never_empty_and_holds_the_labels_of_both_classes(outcome):
    table = outcome.to_frame()
    assert set(table["label_set"]) <= {"rare", "normal", "both"}
    test = table[table["split"] == "test"]
    for y, name in ((1, "rare"), (0, "normal")):
        held = test.loc[test["y"] == y, "label_set"].isin(("both", name))
        assert held.mean() >= 0.9 - 3 * np.sqrt(0.09 / len(held))
    with_rare = table["label_set"].isin(("both", "rare"))
    assert table.loc[with_rare, "p_raw"].min() > table.loc[~with_rare, "p_raw"].min()


@pytest.mark.slow
def test_a_saved_run_gives_another_graph_the_same_columns(outcome, tmp_path):
    outcome.save(tmp_path / "run")
    saved = calirare.load(tmp_path / "run")
    own = saved.to_frame()
    assert own["label_set"].tolist() == outcome.to_frame()["label_set"].tolist()
    table = saved.predict(rare_task(1500), lambda note: None)
    pd.testing.assert_series_equal(table["p_low"], outcome.to_frame()["p_low"], atol=1e-6)
    assert table["label_set"].tolist() == own["label_set"].tolist()


def test_a_network_without_folds_has_the_interval_of_the_label():
    with rough_runs():
        table = calirare.train(rare_task(300), preset="paper", epochs=10, folds=0).to_frame()
    assert {"lower", "upper", "ice"} <= set(table)
    assert "p_low" not in table
