"""`calirare eice`: what it refuses."""

from __future__ import annotations

import dataclasses

import pytest

from tests.helpers.command import QUICK, assert_refused, call
from tests.helpers.tasks import rare_task


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--nodes", "some"), "--nodes must be one of val, test, train, all"),
        (("--coverage", "1"), "coverage must be in (0, 1)"),
        (("--coverage", "nan"), "coverage must be in (0, 1)"),
    ],
)
def test_bad_options_of_eice(options, message, quick_run):
    assert message in assert_refused(call("eice", "--run", quick_run, *options))


def test_eice_takes_the_nodes_that_there_are(tmp_path):
    graph, run = rare_task(), tmp_path / "run"
    none = graph.split.val[:0]
    graph.with_split(dataclasses.replace(graph.split, val=none, test=none)).to_npz(tmp_path / "g.npz")
    assert call("train", "--dataset", tmp_path / "g.npz", *QUICK, "--out", run).code == 0
    assert f"train, {graph.split.train.numel():,}" in call("eice", "--run", run).out
    assert "the run has no test nodes" in assert_refused(call("eice", "--run", run, "--nodes", "test"))
