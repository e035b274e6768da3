"""Answers of a review: they outlive a training, another page and their own file, and none is replaced unseen."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import sqlite3
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch

from calirare._util.errors import InputError
from calirare.graph import Graph
from calirare.page import RARE, REST, Desk, Verdicts, export
from calirare.run import Labels, load, node_names
from calirare_ext import Csr
from tests.cli.test_review import answers, ask, heading, post, server
from tests.helpers.command import call, rough_runs

__all__ = ["server"]


def test_answers_go_on_after_another_training_of_the_same_nodes(tmp_path):
    rng, n = np.random.default_rng(0), 300
    x, ends = rng.normal(size=(n, 3)), rng.integers(0, n, (2 * n, 2))
    names = np.array([f"acc-{i}" for i in range(n)])
    fraud = x[:, 0] > 1.2
    pd.DataFrame({"source": names[ends[:, 0]], "target": names[ends[:, 1]]}).to_csv(tmp_path / "edges.csv", index=False)
    table = pd.DataFrame(x, columns=["a", "b", "c"]).assign(label=np.where(fraud, "fraud", "fine"))
    table.insert(0, "node", names)
    table.loc[150:, "label"] = ""
    words = ("train", "--dataset", tmp_path / "edges.csv", "--model", "trees", "--out", tmp_path / "run", "--overwrite")
    path = tmp_path / "run.review.sqlite"
    for known in (150, 153):
        table.loc[: known - 1, "label"] = np.where(fraud[:known], "fraud", "fine")
        table.to_csv(tmp_path / "nodes.csv", index=False)
        with rough_runs():
            assert call(*words).code == 0
        saved = load(tmp_path / "run")
        with Verdicts(path, saved.fingerprint, saved.scorer.class_names, partial(node_names, saved.folder)) as verdicts:
            if known == 150:
                node = Desk(saved, verdicts, None).cases[0].node
                verdicts.say(node, RARE)
            assert list(verdicts.latest()) == [node]
        out = tmp_path / f"labels_{known}.csv"
        assert call("review", "--run", tmp_path / "run", "--export", out).code == 0
        assert pd.read_csv(out).to_dict("records") == [{"node": node, "label": "fraud"}]


def test_an_answer_elsewhere_is_not_replaced_unseen(server):
    case = server.desk.cases[0]
    shown = re.search(r'name="known" value="(\d+)"', ask(server, "node/0")[2])[1]
    assert shown == "0"
    assert post(server, "say", place=0, answer=RARE, known=shown)[1]["Location"] == f"/{server.token}/"
    other = post(server, "say", place=0, answer=REST, known=shown)
    assert (other[0], other[1]["Location"]) == (303, f"/{server.token}/meanwhile/0")
    assert answers(server) == {case.node: RARE}
    text = ask(server, "meanwhile/0")[2]
    assert "Meanwhile it was answered elsewhere: class 1, at 20" in text
    assert heading(text) == case.node
    again = re.search(r'name="known" value="(\d+)"', text)[1]
    assert post(server, "say", place=0, answer=REST, known=again)[1]["Location"] == f"/{server.token}/"
    assert answers(server) == {case.node: REST}
    server.desk.verdicts.undo(server.desk.verdicts.latest_said().number)
    server.desk.verdicts.undo(server.desk.verdicts.latest_said().number)
    last = post(server, "say", place=0, answer=REST, known=again)
    assert last[1]["Location"] == f"/{server.token}/meanwhile/0"
    assert "Meanwhile its answer was taken back" in ask(server, "meanwhile/0")[2]


def test_a_file_that_was_removed_is_written_again_with_all_that_was_said(server):
    path = server.desk.verdicts.path
    assert post(server, "say", place=0, answer=RARE)[0] == 303
    for each in (path, path.with_name(path.name + "-wal"), path.with_name(path.name + "-shm")):
        each.unlink()
    assert post(server, "say", place=1, answer=REST)[0] == 303
    with contextlib.closing(sqlite3.connect(path)) as base:
        assert [row[0] for row in base.execute("SELECT answer FROM said ORDER BY id")] == [RARE, REST]
    moved = path.rename(path.with_name("moved.sqlite"))
    path.write_bytes(b"")
    status, _, text = post(server, "say", place=2, answer=REST)
    assert (status, "another file was put in the place of" in text) == (500, True)
    moved.replace(path)
    assert post(server, "say", place=2, answer=REST)[0] == 303
    assert len(answers(server)) == 3


def test_a_class_that_a_table_of_labels_cannot_hold_is_refused_before_an_answer(tmp_path):
    with pytest.raises(InputError, match="takes the class '-1' for no label"):
        Verdicts(tmp_path / "a.sqlite", "graph", ("rest", "-1"))
    assert not (tmp_path / "a.sqlite").exists()


@pytest.mark.parametrize("names", [("unknown", "bad"), ("a", "bad", "unknown")])
def test_a_class_called_unknown_is_one_like_any_other(names, tmp_path):
    """Where a class has that name, it is no word for "no label": an empty cell is."""
    y = torch.tensor([0, 1, len(names) - 1])
    graph = Graph(Csr.from_coo(torch.tensor([0, 1]), torch.tensor([1, 0]), None, (3, 3)), torch.ones(3, 1), y)
    graph = dataclasses.replace(graph, class_names=names)
    with Verdicts(tmp_path / "a.sqlite", "graph", names) as verdicts:
        for node, answer in enumerate(verdicts.answers[:3]):
            verdicts.say(str(node), answer)
        export(verdicts.latest(), names, tmp_path / "labels.csv")
    labels = Labels.read(tmp_path / "labels.csv", graph)
    said = [0, 1, -1] if len(names) == 2 else [0, 1, 2]
    assert dict(zip(labels.nodes.tolist(), labels.y.tolist(), strict=True)) == {
        i: c for i, c in enumerate(said) if c >= 0
    }
    forgotten = dataclasses.replace(labels, y=torch.full_like(labels.y, -1))
    forgotten.to_frame(graph).to_csv(tmp_path / "again.csv", index=False)
    assert set(Labels.read(tmp_path / "again.csv", graph).y.tolist()) == {-1}
    (tmp_path / "wrong.csv").write_text("node,label\n0,worse\n")
    with pytest.raises(InputError, match="or nothing, got 'worse'"):
        Labels.read(tmp_path / "wrong.csv", graph)
