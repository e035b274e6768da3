"""What `calirare train` says of options that need a word, and that they do what they say."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pandas as pd
import pytest
import torch

from tests.helpers.command import QUICK, call
from tests.helpers.tasks import rare_task


def metrics_of(folder: Path) -> dict:
    return json.loads((folder / "metrics.json").read_text())


@pytest.mark.slow
def test_a_stored_split_takes_the_label_rate_that_was_asked_for(tmp_path):
    graph = rare_task()
    train = graph.split.train
    fewer = torch.cat([train[graph.y[train] == k][:15] for k in (0, 1)])
    graph.with_split(dataclasses.replace(graph.split, train=fewer)).to_npz(tmp_path / "g.npz")
    for name, options, count in (("a", (), 30), ("b", ("--label-rate", 20), 40)):
        assert call("train", "--dataset", tmp_path / "g.npz", *QUICK, *options, "--out", tmp_path / name).code == 0
        assert metrics_of(tmp_path / name)["graph"]["train"] == count
    assert call("train", "--config", tmp_path / "b" / "config.yaml", "--out", tmp_path / "again").code == 0
    assert (tmp_path / "again" / "metrics.json").read_bytes() == (tmp_path / "b" / "metrics.json").read_bytes()


@pytest.mark.slow
def test_the_papers_convention_runs_through(graph_file, tmp_path):
    options = (
        "--dataset",
        graph_file,
        *QUICK,
        "--set",
        "loo.method=influence",
        "--set",
        "loo.convention=paper",
        "--out",
        tmp_path / "run",
    )
    said = call("train", *options, pictures=True)
    assert said.code == 0, said.err
    assert "of the intervals are upside down at coverage 0.9" in said.out
    assert 0 <= metrics_of(tmp_path / "run")["interval_coverage"]["all"] <= 1
    table = pd.read_csv(tmp_path / "run" / "predictions.csv")
    assert (table["lower"] > table["upper"]).any(), "as printed"


@pytest.mark.slow
def test_retraining_says_how_much_there_is_and_how_far_it_is(tmp_path):
    rare_task(90).to_npz(tmp_path / "g.npz")
    options = (
        "--dataset",
        tmp_path / "g.npz",
        *QUICK,
        "--set",
        "loo.method=retrain",
        "--set",
        "loo.max_steps=1",
        "--method",
        "ts",
    )
    said = call("train", *options, "--out", tmp_path / "run")
    assert said.code == 0, said.err
    lines = said.err.splitlines()
    m = metrics_of(tmp_path / "run")["graph"]["labels_trained_on"]
    warning = next(i for i, line in enumerate(lines) if f"again without each of {m} labels" in line)
    assert "calirare loo-check" in lines[warning]
    assert lines.index(f"retrain: {m} of {m}") > warning


def test_a_leave_one_out_not_to_be_trusted_is_called_so(graph_file, tmp_path):
    said = call("train", "--dataset", graph_file, *QUICK, "--set", "loo.method=influence", "--out", tmp_path / "run")
    note = "note: do not trust the leave-one-out models (influence): "
    assert (said.out + said.err).count(note) == 1, "a terminal shows both"
    assert note in said.out
    assert note in (tmp_path / "run" / "log.txt").read_text()
    assert any("do not trust" in note for note in metrics_of(tmp_path / "run")["notes"])
