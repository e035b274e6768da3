"""What `calirare train` refuses: one sentence, exit code 2, and nothing left on the disk."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.helpers.command import QUICK, assert_refused, call


def refused(dataset: Path, *options: object) -> str:
    """Runs a training beside `dataset`, asserts that it is refused and leaves nothing, returns the sentence."""
    before = sorted(dataset.parent.iterdir())
    said = call("train", "--dataset", dataset, *QUICK, "--out", dataset.parent / "runs" / "a", *options)
    assert sorted(dataset.parent.iterdir()) == before
    return assert_refused(said)


def test_a_file_that_is_not_there_or_of_no_known_kind(tmp_path):
    assert "none.npz" in refused(tmp_path / "none.npz")
    (tmp_path / "graph.txt").write_text("0 1\n")
    assert "name must be one of digits, cora" in refused(tmp_path / "graph.txt")
    (tmp_path / "folder.npz").mkdir()
    assert "folder.npz" in refused(tmp_path / "folder.npz")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--split", "random", "--label-rate", 79), "class 1 has 78: lower label_rate"),
        (("--split", "random", "--label-rate", 10**15), "lower label_rate"),
        (("--label-rate", 3), "label_rate is of a random split, and graph"),
        (("--rare-class", "fraud"), "there is no class 'fraud'"),
        (("--rare-class", 10**12), "there is no class"),
        (("--nodes", "nodes.csv"), "nodes must be left out for an .npz file"),
        (("--download", "--weight", "w"), "weight must be left out"),
        (("--download",), "download must be left out for a path"),
        (("--root", "/"), "root must be left out for a path"),
    ],
)
def test_an_option_that_does_not_suit_the_graph(options, message, graph_file, tmp_path):
    said = call("train", "--dataset", graph_file, *QUICK, "--out", tmp_path / "run", *options)
    assert message in assert_refused(said)
    assert list(tmp_path.iterdir()) == []


def test_a_data_set_that_is_not_there_says_where_to_put_it(tmp_path):
    said = call("train", "--dataset", "cora", "--root", tmp_path, *QUICK, "--out", tmp_path / "run")
    sentence = assert_refused(said)
    assert str(tmp_path) in sentence
    assert "--download" in sentence
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("training: {epochs: [1, 2]}", "training.epochs must be a whole number or auto, got [1, 2]"),
        ("training: {hiden: 3}", "unknown setting 'training.hiden'; did you mean 'training.hidden'?"),
        ("loo: newtn", "loo.method must be one of alo, grouped"),
        ("data: {label_rate: true}", "data.label_rate must be a whole number or none, got True"),
        ("data: {symmetrize: 1}", "data.symmetrize must be true or false, got 1"),
        ("!!python/object/apply:os.system ['false']", "is not YAML"),
        ("a: &a [*a", "is not YAML"),
        ("a: &a {x: 1}\nb: {<<: *a}", "is not YAML that can be read in line 2: *aliases are not read"),
        ("seed: 1\nseed: 2", "'seed' stands twice"),
        ("training: {hops: 1, hops: 2}", "in line 1: 'hops' stands twice"),
        ("a: " + "[" * 5000, "is nested more than 20 deep"),
        ("seed: 2020-13-45", "is not YAML: month must be in 1..12"),
        ("seed: " + "1" * 5000, "is not YAML"),
        ("seed: " + "1" * 30, "seed must be from 0 to 2^63 - 1"),
        ("training: {hops: 1000}", "hops must be from 1 to 100, got 1000"),
        ("training: {weight_decay: 1.0e300}", "weight_decay must be from 1e-30 to 1e+06, got 1e+300"),
        ("x: " + "y" * 300_000, "must be at most 262,144 bytes"),
        ('method: "\\e[31m\\n"', r"got '\x1b[31m\n'"),
    ],
)
def test_a_bad_config_file(content, message, graph_file, tmp_path):
    config = tmp_path / "c.yaml"
    config.write_text(content)
    said = call("train", "--dataset", graph_file, "--config", config, "--out", tmp_path / "run")
    assert message in assert_refused(said)
    assert list(tmp_path.iterdir()) == [config]


def test_a_config_that_is_a_pipe_or_a_device_is_not_waited_for(graph_file, tmp_path):
    os.mkfifo(tmp_path / "c.yaml")
    for path in (tmp_path / "c.yaml", "/dev/zero"):
        said = call("train", "--dataset", graph_file, "--config", path, "--out", tmp_path / "run")
        assert "must be a plain file, got a pipe or a device" in assert_refused(said)
