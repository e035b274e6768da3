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


@pytest.mark.slow
def test_eice_takes_the_nodes_that_there_are(tmp_path):
    graph = rare_task()
    none, split = graph.split.val[:0], graph.split
    for at, (kept, said) in enumerate(
        (
            (dataclasses.replace(split, val=none), f"test, {split.test.numel():,}"),
            (dataclasses.replace(split, val=none, test=none), f"train, {split.train.numel():,}"),
        )
    ):
        graph.with_split(kept).to_npz(tmp_path / "g.npz")
        run = tmp_path / f"run{at}"
        assert call("train", "--dataset", tmp_path / "g.npz", *QUICK, "--out", run).code == 0
        assert said in call("eice", "--run", run).out
    assert "the run has no test nodes" in assert_refused(call("eice", "--run", run, "--nodes", "test"))
