"""What `calirare train` says of options that need a word, and that they do what they say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.helpers.command import QUICK, call, succeed
from tests.helpers.tasks import rare_task


def metrics_of(folder: Path) -> dict:
    return json.loads((folder / "metrics.json").read_text())


@pytest.mark.slow
def test_retraining_says_how_far_it_is(tmp_path):
    rare_task(90).to_npz(tmp_path / "g.npz")
    settings = ("--set", "loo.method=retrain", "--set", "loo.max_steps=1", "--method", "ts")
    said = succeed("train", "--dataset", tmp_path / "g.npz", *QUICK, *settings, "--out", tmp_path / "run")
    m = metrics_of(tmp_path / "run")["graph"]["labels_trained_on"]
    assert f"retrain: {m} of {m}" in said.err.splitlines()


def test_a_leave_one_out_not_to_be_trusted_is_called_so(graph_file, tmp_path):
    options = (*QUICK, "--set", "loo.method=influence", "--verbose", "--out", tmp_path / "run")
    said = call("train", "--dataset", graph_file, *options)
    note = "note: do not trust the leave-one-out models (influence): "
    assert (said.out + said.err).count(note) == 1, "a terminal shows both"
    assert said.out.count("Note: do not trust the leave-one-out models") == 1, "the short text shows it first"
    assert note in said.out
    assert note in (tmp_path / "run" / "log.txt").read_text()
    assert any("do not trust" in note for note in metrics_of(tmp_path / "run")["notes"])
