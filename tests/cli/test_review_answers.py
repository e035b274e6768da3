"""The file of a review's answers: what is exported of it, which runs it belongs to, and what becomes of it."""

from __future__ import annotations

import dataclasses

import pandas as pd
import pytest
import torch

from calirare._util.errors import InputError
from calirare.graph import Graph
from calirare.page import RARE, REST, UNSURE, Verdicts, export
from calirare.run import Labels, load
from calirare_ext import Csr
from tests.cli.test_review import ask, post, served
from tests.helpers.command import call, succeed


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


NAMES, ALIKE = ("n1", "n2", "n3"), ("rest", "fraud")
BEFORE, LABELLED, REWIRED = "11-22-33-44-55", "11-22-33-44-66", "11-23-33-44-55"


@pytest.fixture
def answered(tmp_path):
    """A file with answers of two nodes of a graph."""

    def write(*names):
        with Verdicts(tmp_path / "a.sqlite", BEFORE, ALIKE) as verdicts:
            for name in names:
                verdicts.say(name, RARE)
        return tmp_path / "a.sqlite"

    return write


@pytest.mark.parametrize(
    ("names", "run", "graph"),
    [
        (("n1", "n2"), pd.Series(NAMES), REWIRED),
        (("n1", "gone"), pd.Series(NAMES), REWIRED),
        (("0", "2"), pd.Series(range(3)), LABELLED),
        (("5000000001",), pd.Series([5_000_000_001, 7_000_000_001]), REWIRED),
    ],
)
def test_answers_go_on_where_the_nodes_are_the_same(answered, names, run, graph):
    path = answered(*names)
    with Verdicts(path, graph, ALIKE, lambda: run) as verdicts:
        assert list(verdicts.latest()) == list(names)
        assert "of an earlier training on these nodes go" in verdicts.note
    with Verdicts(path, graph, ALIKE) as verdicts:
        assert verdicts.note == "", "it is the file's graph from now on"


@pytest.mark.parametrize(
    ("names", "run", "graph", "told"),
    [
        (("0", "2"), pd.Series(range(3)), REWIRED, "a node's number may be another node's: get them by --export"),
        (("n1", "x", "y"), pd.Series(NAMES), LABELLED, "2 of its 3 nodes are not the run's: get them by --export"),
    ],
)
def test_answers_about_other_nodes_are_refused_and_kept(answered, names, run, graph, told, tmp_path):
    path = answered(*names)
    with pytest.raises(InputError, match=told):
        Verdicts(path, graph, ALIKE, lambda: run)
    with Verdicts.stored(path) as verdicts:
        assert (verdicts.graph, verdicts.class_names) == (BEFORE, ALIKE)
        assert list(export(verdicts.latest(), verdicts.class_names, tmp_path / "labels.csv")["node"]) == list(names)


def test_without_edges_nodes_are_told_by_features(answered):
    path = answered("0")
    with pytest.raises(InputError, match="another graph"):
        Verdicts(path, "11-00000000-00000000-45-55", ALIKE, lambda: pd.Series(range(3)))


def test_after_another_training_in_its_place_the_answers_go_on_and_are_exported(quick_run, tmp_path):
    """As with `train --overwrite` on tables with three more labels: the nodes are the same, the checksum is not."""
    path, labels = quick_run.with_name("quick.review.sqlite"), tmp_path / "labels.csv"
    saved = load(quick_run)
    table = saved.to_frame()
    first, second, third = table[table["split"] == "train"]["node"].astype(str)[:3]
    y = dict(zip(table["node"].astype(str), table["y"], strict=True))
    parts = saved.fingerprint.split("-")
    before = "-".join([*parts[:-1], "0"])
    with Verdicts(path, before, saved.scorer.class_names) as verdicts:
        verdicts.say(first, REST if y[first] else RARE)
        verdicts.say(second, RARE if y[second] else REST)
        verdicts.say(third, UNSURE)
    succeed("review", "--run", quick_run, "--export", labels)
    assert list(pd.read_csv(labels, dtype=str)["node"]) == [first, second]
    with Verdicts(path, saved.fingerprint, saved.scorer.class_names, lambda: table["node"]) as verdicts:
        assert verdicts.note.startswith("3 answers of an earlier training on these nodes go on in ")


def test_answers_are_exported_where_their_run_has_gone_or_has_other_classes(quick_run, tmp_path):
    path = quick_run.with_name("quick.review.sqlite")
    with Verdicts(path, "graph", ("fine", "fraud")) as verdicts:
        verdicts.say("a", RARE)
    said = call("review", "--run", quick_run, "--export", tmp_path / "one.csv")
    assert (said.code, (tmp_path / "one.csv").read_text()) == (0, '"node","label"\n"a","fraud"\n')
    assert "note: the labels are of another graph" in said.err
    quick_run.rename(tmp_path / "elsewhere")
    said = call("review", "--run", quick_run, "--export", tmp_path / "two.csv")
    assert (said.code, (tmp_path / "two.csv").read_text()) == (0, '"node","label"\n"a","fraud"\n')
    assert "note: the labels could not be compared with the run's: " in said.err
    path.write_text("hello" * 1000)
    assert call("review", "--run", quick_run, "--export", tmp_path / "three.csv").code == 2


@pytest.mark.parametrize("gone", [("", "-wal", "-shm"), ("",), ("-wal",), ()], ids=str)
def test_no_answer_is_saved_in_a_file_that_is_gone_or_another(gone, tmp_path):
    path = tmp_path / "answers" / "a.sqlite"
    with Verdicts(path, BEFORE, ALIKE) as verdicts:
        verdicts.say("x", RARE)
        for side in gone:
            path.with_name(path.name + side).unlink()
        if not gone:
            (tmp_path / "other").write_text("somebody else's")
            (tmp_path / "other").replace(path)
        for change in (lambda: verdicts.say("y", REST), lambda: verdicts.undo(1)):
            with pytest.raises(InputError, match="was removed or replaced while it was open"):
                change()
        assert list(verdicts.latest()) == ["x"]
    if not gone:
        assert path.read_text() == "somebody else's"


def test_the_page_counts_the_labels_that_it_exports(trained_quickly, tmp_path):
    """Nodes that were answered before another training have left its queue, and are exported all the same."""
    with served(trained_quickly, tmp_path / "a.sqlite") as server:
        server.session.verdicts.say("of an earlier queue", RARE)
        assert "labels.csv (1)" in ask(server)[2]
        assert len(ask(server, "labels.csv")[2].splitlines()) == 2


def test_the_page_says_that_the_file_was_removed(trained_quickly, tmp_path, capsys):
    with served(trained_quickly, tmp_path / "a.sqlite") as server:
        (tmp_path / "a.sqlite").unlink()
        status, _, text = post(server, "say", place=0, answer=RARE)
    assert status == 500
    assert "a.sqlite was removed or replaced while it was open" in text
