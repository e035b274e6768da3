"""Folders of parts: they know which arrays they have, what these held, and of which graph they are."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil

import numpy as np
import pytest
import torch

from calirare import InputError
from calirare._util.ranks import Ranks
from calirare.datasets import read_graph
from calirare.graph import Graph, GraphOnDisk
from calirare.models.halo import check_parts
from tests.helpers.tasks import rare_task

ARRAYS = ("weights", "scored", "node_names", "x", "indices")


def graph(seed: int = 0) -> Graph:
    plain = rare_task(seed=seed)
    assert plain.y is not None
    edges = dataclasses.replace(plain.adjacency, values=plain.adjacency.values * 2)
    names = np.array([f"n{i:03}" for i in range(plain.n_nodes)])
    scored = torch.arange(plain.n_nodes) % 5 > 0
    y = torch.where(scored, plain.y, -1)
    columns = tuple(f"column{i}" for i in range(6))
    return dataclasses.replace(
        plain, y=y, adjacency=edges, node_names=names, scored=scored, feature_names=columns, split=None, trusted=True
    )


@pytest.fixture
def whole(tmp_path):
    graph().to_folder(tmp_path / "g")
    return tmp_path / "g"


def cut(whole, path, number=1, of=2):
    GraphOnDisk.open(whole).part(number, of).write(path)
    return path


class Gathered(Ranks):
    """The first of several processes, whose others say what they are told to."""

    def __init__(self, others):
        super().__init__(0, len(others) + 1)
        object.__setattr__(self, "others", others)

    def gather_all(self, what):
        return [what, *(other.pop(0) for other in self.others)]


def told(found: GraphOnDisk) -> list:
    """Returns what a process tells the others of its part."""
    said = []

    class Listening(Ranks):
        def gather_all(self, what):
            said.append(what)
            return [what] if len(said) == 1 else [(0, found.n_total, found.n_total, found.n_features)]

    check_parts(found, Listening(0, 2))
    return said


def checked(*folders) -> None:
    """Has the first of some parts checked beside the others."""
    first, *others = [GraphOnDisk.open(folder) for folder in folders]
    check_parts(first, Gathered([told(other) for other in others]))


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize("of", ["a part", "the graph"])
def test_a_lost_array_is_missed(whole, name, of, tmp_path):
    folder = cut(whole, tmp_path / "part") if of == "a part" else whole
    (folder / f"{name}.npy").unlink()
    with pytest.raises(InputError, match=f"{name}.npy is missing, which graph.json lists"):
        GraphOnDisk.open(folder)
    if of == "the graph":
        with pytest.raises(InputError, match=f"{name}.npy is missing"):
            read_graph(str(folder))


def test_labels_may_go_and_older_folders_list_nothing(whole, tmp_path):
    (whole / "y.npy").unlink()
    part = cut(whole, tmp_path / "part")
    facts = json.loads((part / "graph.json").read_text())
    assert set(ARRAYS) < set(facts.pop("checksums"))
    (part / "graph.json").write_text(json.dumps(facts))
    (part / "weights.npy").unlink()
    assert not GraphOnDisk.open(part).weighted


@pytest.mark.parametrize("name", ["x", "weights", "indices", "node_names"])
def test_damaged_numbers_of_a_part_are_seen_while_they_are_read(whole, name, tmp_path):
    part = cut(whole, tmp_path / "part")

    def read() -> None:
        found = GraphOnDisk.open(part)
        for first, last in ((0, 50), (20, 70), (50, 130)):  # some rows again
            found.edges(first, last)
            found.features(first, last)
            found.node_names(first, last)

    read()
    path = part / f"{name}.npy"
    values = np.load(path)
    flat = values.reshape(-1)
    flat[-1] = "other" if name == "node_names" else (flat[-2] if name == "indices" else flat[-1] + 1)
    np.save(path, values)
    with pytest.raises(InputError, match=rf"{name}.npy: the file is damaged or another one than was written"):
        read()


def test_copies_of_a_graph_and_their_parts_are_one_graph(whole, tmp_path):
    shutil.copytree(whole, tmp_path / "copy", copy_function=shutil.copy)
    for path in (tmp_path / "copy").iterdir():
        os.utime(path, (1, 1))
    first, second = cut(whole, tmp_path / "0", 0), cut(tmp_path / "copy", tmp_path / "1")
    checked(first, second)
    found = GraphOnDisk.open(tmp_path / "copy")
    assert found.content == GraphOnDisk.open(whole).content == GraphOnDisk.open(first).part(0, 2).content
    assert found.whole != GraphOnDisk.open(whole).whole, "blocks of before a change are not gone on from"


@pytest.mark.parametrize("sums", [True, False])
def test_parts_of_two_graphs_of_one_size_are_not(whole, sums, tmp_path):
    shutil.copytree(whole, tmp_path / "other")
    x = np.load(whole / "x.npy")
    np.save(tmp_path / "other" / "x.npy", x + 1)
    for folder in (whole, tmp_path / "other"):
        facts = json.loads((folder / "graph.json").read_text())
        facts["checksums"] = facts["checksums"] | {"x": 1 if folder == whole else 2} if sums else {}
        (folder / "graph.json").write_text(json.dumps(facts))
    parts = cut(whole, tmp_path / "0", 0), cut(tmp_path / "other", tmp_path / "1")
    message = r"the checksum of the whole graph must be the same for all, got \w{12} for rank 0 and \w{12} for rank 1"
    with pytest.raises(InputError, match=message):
        checked(*parts)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("weights", "weights of edges must be the same for all, got True for rank 0 and False for rank 1"),
        ("scored", "a choice of nodes to score must be the same"),
        ("node_names", "names of nodes must be the same"),
        ("columns", "the columns must be the same for all, got column0, column1"),
        ("loops", "keeping self loops must be the same"),
    ],
)
def test_older_parts_that_differ_are_refused(whole, name, message, tmp_path):
    parts = cut(whole, tmp_path / "0", 0), cut(whole, tmp_path / "1")
    facts = json.loads((parts[1] / "graph.json").read_text())
    del facts["checksums"]
    if name == "columns":
        facts["feature_names"] = facts["feature_names"][::-1]
    elif name == "loops":
        facts["self_loops"] = "keep"
    else:
        (parts[1] / f"{name}.npy").unlink()
    (parts[1] / "graph.json").write_text(json.dumps(facts))
    with pytest.raises(InputError, match=message) as refused:
        checked(*parts)
    assert len(str(refused.value)) <= 300


def test_parts_of_one_graph_that_leave_a_gap_are_refused(whole, tmp_path):
    with pytest.raises(InputError, match="must follow on each other"):
        checked(cut(whole, tmp_path / "0", 0, 3), cut(whole, tmp_path / "1"))
