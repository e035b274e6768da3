"""`calirare compact`: a log folded into a folder of its own, and what is said where that cannot be."""

from __future__ import annotations

import numpy as np
import pytest

from calirare.graph import Graph, GraphLog
from tests.helpers.command import assert_one_sentence, call
from tests.helpers.tasks import rare_task


@pytest.fixture
def logged(tmp_path):
    """A graph's folder with a log beside it: two nodes more and one less."""
    rare_task().to_folder(tmp_path / "g")
    with GraphLog(tmp_path / "g") as log:
        log.remove_node(7)
        log.add_node(np.ones(6), [log.add_node(np.zeros(6), [1, 2]), 3])
    return tmp_path / "g"


def test_a_log_is_folded_in_and_everything_stays(logged, tmp_path):
    before = {path: path.read_bytes() for path in (*logged.iterdir(), tmp_path / "g.log")}
    said = call("compact", "--graph", f"{logged}/", "--out", tmp_path / "g2")
    assert (said.code, said.err) == (0, "")
    assert said.out == f"3 changes: 260 nodes before, 261 now\n{tmp_path / 'g2'}\n"
    assert {path: path.read_bytes() for path in before} == before
    graph, minority = Graph.read(tmp_path / "g2")
    assert (graph.n_nodes, graph.y[-2:].tolist(), minority) == (261, [-1, -1], 1)
    rows = (tmp_path / "g2" / "numbers.csv").read_text().splitlines()
    assert (rows[0], rows[8], rows[9], rows[-1]) == ("old,new", "7,", "8,7", "261,260")


def test_a_run_scores_the_new_graph(logged, tmp_path, trained_quickly):
    assert call("compact", "--graph", logged, "--out", tmp_path / "g2").code == 0
    said = call("predict", "--run", trained_quickly, "--graph", tmp_path / "g2", "--out", tmp_path / "p.csv")
    assert said.code == 0, said.err
    assert len((tmp_path / "p.csv").read_text().splitlines()) == 262


def test_a_record_that_a_crash_cut_off_is_told(logged, tmp_path):
    with (tmp_path / "g.log").open("ab") as file:
        file.write(b"0123")
    said = call("compact", "--graph", logged, "--out", tmp_path / "g2", "--log", tmp_path / "g.log")
    assert said.code == 0
    assert "the last record, line 5, was cut off by a crash and is dropped" in said.err
    assert "3 changes" in said.out


def test_what_cannot_be_folded_is_one_sentence(logged, tmp_path):
    out = ("--out", tmp_path / "g2")
    with GraphLog(logged):
        assert "another process is writing there" in assert_one_sentence(call("compact", "--graph", logged, *out))
    for words, message in (
        (("--graph", logged, "--out", logged), "exists already"),
        (("--graph", tmp_path / "none", *out), "there is no log"),
        (("--graph", logged, "--log", tmp_path / "none", *out), "there is no log"),
        (("--graph", tmp_path / "none", "--log", tmp_path / "g.log", *out), "no such file"),
        (("--graph", logged, "--log", logged / "graph.json", *out), "is no calirare graph log 1"),
        (("--graph", logged, "--log", logged, *out), "cannot be written"),
    ):
        assert message in assert_one_sentence(call("compact", *words))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["g", "g.log"]
    assert not list(logged.glob(".*"))
