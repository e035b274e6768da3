"""`calirare eice`: what it refuses."""

from __future__ import annotations

import dataclasses

import pytest

from tests.helpers.command import QUICK, assert_one_sentence, call
from tests.helpers.tasks import rare_task


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--nodes", "some"), "--nodes must be one of train, val, test, all"),
        (("--coverage", "1"), "coverage must be in (0, 1)"),
        (("--coverage", "nan"), "coverage must be in (0, 1)"),
    ],
)
def test_bad_options_of_eice(options, message, quick_run):
    assert message in assert_one_sentence(call("eice", "--run", quick_run, *options))


@pytest.mark.slow
def test_eice_of_an_empty_part(tmp_path):
    graph = rare_task()
    empty = graph.with_split(dataclasses.replace(graph.split, test=graph.split.test[:0]))
    empty.to_npz(tmp_path / "g.npz")
    assert call("train", "--dataset", tmp_path / "g.npz", *QUICK, "--out", tmp_path / "run").code == 0
    said = call("eice", "--run", tmp_path / "run", "--nodes", "test")
    assert "the run has no test nodes" in assert_one_sentence(said)
