"""calirare.train: what it takes, what it refuses and what it says meanwhile."""

from __future__ import annotations

import dataclasses

import pytest
import torch

import calirare
from calirare import Settings
from calirare._util.errors import InputError
from calirare.graph.splits import Split
from calirare.run.settings import MOST
from tests.helpers.tasks import rare_task

QUICK = {"preset": "paper", "epochs": 12, "folds": 0}
NONE = torch.zeros(0, dtype=torch.int64)


def test_progress_is_reported_by_stage():
    said = []
    calirare.train(rare_task(), preset="paper", epochs=3, folds=2, report=lambda *what: said.append(what))
    assert said == [*(("train", k, 3) for k in (1, 2, 3)), ("check", 1, 2), ("check", 2, 2)]


def test_changes_go_over_settings():
    settings = Settings.of(preset="paper", epochs=3, folds=0, hidden=5, target="population")
    outcome = calirare.train(rare_task(), settings, hidden=7)
    assert (outcome.model.hidden, outcome.settings.calibration.target, settings.training.hidden) == (7, "population", 5)
    with pytest.raises(InputError, match="unknown setting 'hiden'"):
        calirare.train(rare_task(), preset="paper", hiden=7)
    with pytest.raises(InputError, match="method must be one of"):
        calirare.train(rare_task(), preset="paper", method="magic")
    with pytest.raises(TypeError, match="graph must be a calirare\\.Graph, got NoneType"):
        calirare.train(None, preset="paper")
    with pytest.raises(TypeError, match="settings must be Settings, got dict"):
        calirare.train(rare_task(), {"epochs": 3})
    with pytest.raises(ValueError, match="target must be one of balanced, population or None, got 'populaton'"):
        outcome.probabilities("populaton")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": None, "original_y": None, "minority": None, "split": None}, "training needs labels"),
        ({"split": None}, "training needs a split"),
        ({"split": Split(NONE, NONE, NONE)}, "at least two labelled nodes, got 0"),
        ({"split": Split(torch.tensor([0]), NONE, NONE)}, "at least two labelled nodes, got 1"),
    ],
)
def test_what_cannot_be_trained_on_is_refused(change, message):
    with pytest.raises(InputError, match=message):
        calirare.train(dataclasses.replace(rare_task(), **change), **QUICK)


def test_a_column_of_another_scale_is_noted():
    graph = rare_task()
    large = graph.x.clone()
    large[:, 0] *= 1e6
    outcome = calirare.train(dataclasses.replace(graph, x=large), **QUICK)
    assert any("--scale standardize" in note for note in outcome.notes)
    assert not any("--scale" in note for note in calirare.train(graph, **QUICK).notes)


def test_a_training_that_runs_away_is_named(monkeypatch):
    monkeypatch.setitem(MOST, "learning_rate", 1e31)
    with pytest.raises(InputError, match=r"training ran away.*lower the learning rate"):
        calirare.train(rare_task(), learning_rate=1e30, **QUICK)
