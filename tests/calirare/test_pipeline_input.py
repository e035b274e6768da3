"""calirare.train: what it takes, what it refuses and what it says meanwhile."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
import pytest
import torch
import yaml

import calirare
from calirare import Settings
from calirare._util.errors import InputError
from calirare.datasets import with_task
from calirare.run.outcome import write_config
from calirare.run.settings import RANGES
from tests.helpers.tasks import rare_task
from tests.helpers.tolerance import assert_identical

QUICK = {"preset": "paper", "epochs": 12, "folds": 0}


def test_progress_is_reported_by_stage():
    said = []
    calirare.train(rare_task(), preset="paper", epochs=3, folds=2, report=lambda *what: said.append(what))
    assert said == [*(("train", k, 3) for k in (1, 2, 3)), ("check", 1, 2), ("check", 2, 2)]


@pytest.mark.slow
@pytest.mark.parametrize(("task", "n_classes"), [("rare", 2), ("classes", 3)])
def test_a_graph_without_a_split_gets_the_one_that_is_asked_for(task, n_classes):
    graph = dataclasses.replace(rare_task(n_classes=n_classes), split=None)
    quick = {"task": task, "model": "gcn", "epochs": 3, "folds": 0}
    parts = {}
    for split in ("all", "share", "random"):
        outcome = calirare.train(graph, split=split, label_rate=5 if split == "random" else None, **quick)
        assert outcome.settings.data.split == split
        parts[split] = tuple(part.numel() for part in (outcome.graph.split.train, outcome.graph.split.test))
    assert parts["all"] == (260, 0)
    assert parts["share"][1] == pytest.approx(65, abs=3)
    assert parts["random"][0] == 5 * n_classes
    with pytest.raises(InputError, match="split is for a graph without a split, and graph 'task' has one"):
        calirare.train(rare_task(n_classes=n_classes), split="all", **quick)


def test_changes_go_over_settings():
    settings = Settings.of(preset="paper", epochs=3, folds=0, hidden=5, calibrate_for="population")
    outcome = calirare.train(rare_task(), settings, hidden=7)
    assert (outcome.model.hidden, outcome.settings.calibration.calibrate_for, settings.training.hidden) == (
        7,
        "population",
        5,
    )
    with pytest.raises(InputError, match="unknown setting 'hiden'"):
        calirare.train(rare_task(), preset="paper", hiden=7)
    with pytest.raises(InputError, match="method must be one of"):
        calirare.train(rare_task(), preset="paper", method="magic")
    with pytest.raises(TypeError, match="graph must be a calirare\\.Graph, got NoneType"):
        calirare.train(None, preset="paper")
    with pytest.raises(TypeError, match="settings must be Settings, got dict"):
        calirare.train(rare_task(), {"epochs": 3})
    with pytest.raises(ValueError, match="target must be one of balanced, population, 'run' or None, got 'populaton'"):
        outcome.probabilities("populaton")


def test_the_rare_class_that_training_is_asked_for_counts():
    """Also where the graph's classes were merged for another."""
    graph = dataclasses.replace(rare_task(), class_names=(), original_class_names=("ok", "fraud")).rare("fraud")
    for wanted, rare in ((None, "fraud"), ("Fraud", "fraud"), ("ok", "ok")):
        outcome = calirare.train(graph, rare_class=wanted, **QUICK)
        assert outcome.graph.class_names == ("fraud" if rare == "ok" else "ok", rare)
        assert torch.equal(outcome.graph.y == 1, graph.y == (rare == "fraud"))
    with pytest.raises(InputError, match=r"there is no class 'theft'. The classes are ok, fraud"):
        calirare.train(graph, rare_class="theft", **QUICK)


def test_a_rare_class_of_most_nodes_is_noted():
    graph = dataclasses.replace(rare_task(), class_names=(), original_class_names=("ok", "fraud"))
    assert not any("the rare class, is expected" in note for note in calirare.train(graph.rare("fraud"), **QUICK).notes)
    notes = calirare.train(graph.rare("ok"), model="gcn", epochs=20, calibrate_on="all", folds=0).notes
    (note,) = [note for note in notes if "the rare class, is expected" in note]
    assert note.startswith("'ok', the rare class, is expected to be 6"), note


def test_class_1_of_three_is_the_rare_one_which_is_noted():
    graph = rare_task(n_classes=3)
    outcome = calirare.train(graph, **QUICK)
    assert outcome.graph.notes[0].startswith("P(rare) is that of class 1 of 3, '1': graph.rare(NAME) takes another")
    assert_identical(outcome.logits, calirare.train(graph.rare(1), **QUICK).logits)


@pytest.mark.parametrize(("n_rare", "tested"), [(32, 0), (60, 65)])
def test_few_rare_labels_all_train_whether_or_not_classes_were_merged(n_rare, tested, tmp_path):
    """And the run's settings draw the same split of the same graph in a file."""
    y = (torch.arange(260) < n_rare).long()
    graph = dataclasses.replace(rare_task(), split=None, y=y, original_y=None, minority=None, original_class_names=())
    split = with_task(graph).split
    assert split.test.numel() == tested
    assert torch.equal(split.train, with_task(graph.rare(1)).split.train)
    assert with_task(graph, "classes").split.test.numel() == 65
    write_config(calirare.train(graph, **QUICK), tmp_path / "config.yaml")
    graph.to_npz(tmp_path / "g.npz")
    data = Settings.from_mapping(yaml.safe_load((tmp_path / "config.yaml").read_text())).data
    again = dataclasses.replace(data, dataset=str(tmp_path / "g.npz")).load(0)
    assert torch.equal(again.split.train, split.train)
    assert torch.equal(again.split.test, split.test)


@pytest.mark.parametrize(
    ("names", "wanted"),
    [(("fraud", "ok"), "fraud"), (("ok", "theft"), "theft"), (("0", "1"), "1"), (("rest", "fraud"), "fraud")],
)
def test_of_two_named_classes_the_smaller_one_is_rare(names, wanted):
    draw = np.random.default_rng(0)
    rare = np.arange(300) % 10 == 0
    names_of = np.where(rare, *([0, 1] if names[0] == wanted else [1, 0]))
    if names in (("0", "1"), ("rest", "fraud")):
        names_of = 1 - rare  # numbers say what is rare, though 1 is the larger class here
    ends = draw.integers(0, 300, (900, 2))
    graph = calirare.Graph.from_edges(
        ends[ends[:, 0] != ends[:, 1]], draw.normal(size=(300, 3)), names_of, symmetrize=True, duplicates="drop"
    )
    graph = dataclasses.replace(graph, class_names=names)
    outcome = calirare.train(graph, **QUICK)
    assert outcome.graph.class_names[1] == wanted
    told = [note for note in outcome.graph.notes if "is taken for the rare class" in note]
    assert len(told) == (names in (("fraud", "ok"), ("ok", "theft")))  # the others say so themselves
    other = names[wanted == names[0]]  # the one that would not be chosen, where it is said
    assert calirare.train(graph, rare_class=other, **QUICK).graph.class_names[1] == other
    assert "is rare with" not in repr(graph), "nobody has said so yet"
    assert f"2 classes ({names[0]!r} " in repr(graph)
    assert f"{wanted!r} is rare with" in repr(graph.rare(wanted))


def test_an_option_that_there_is_not_is_named():
    edges, nodes = pd.DataFrame({"a": ["x"], "b": ["y"]}), pd.DataFrame({"id": ["x", "y"], "label": [0, 1]})
    with pytest.raises(TypeError, match="label"):
        calirare.Graph.from_tables(edges, nodes, label="label")
    with pytest.raises(TypeError, match="unexpected keyword argument 'zzz'"):
        calirare.Graph.from_tables(edges, nodes, "label", zzz=1)


@pytest.mark.parametrize("more", [{"epochs": 9}, {"epochs": 9, "method": "uncalibrated"}, {"epochs": "auto"}], ids=str)
def test_a_training_that_runs_away_is_named(more, monkeypatch):
    monkeypatch.setattr("calirare.run.left_out.MAX_EPOCHS", 10)
    monkeypatch.setattr("calirare.run.left_out.CHECKPOINT_EVERY", 5)
    monkeypatch.setitem(RANGES, "learning_rate", (0, 1e31))
    with pytest.raises(InputError, match="lower the learning rate"):
        calirare.train(rare_task(), learning_rate=1e30, **(QUICK | more))
