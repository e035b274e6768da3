"""`calirare study`: what it writes, what it refuses."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from calirare._util.errors import InputError
from calirare_lab.studies.cli import app
from calirare_multilabel.cli import app as multilabel_app
from calirare_multilabel.data import load_multilabel
from tests.helpers.multilabel import write_images


def call(*arguments: object, of=app) -> str:
    result = CliRunner().invoke(of, [str(a) for a in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.slow
def test_copula_writes_numbers_and_a_picture(tmp_path):
    text = call("copula", "--out", tmp_path, "--sizes", "40,80", "--repeats", "2")
    assert "copula_threshold, hidden, p = 1: truth 0.0655" in text
    assert text.count("consistent: too short a range") == 20
    assert (tmp_path / "simulation.png").stat().st_size > 10_000
    assert json.loads((tmp_path / "simulation.json").read_text())["seed"] == 0


def test_no_file_is_replaced_unasked(tmp_path):
    for name in ("simulation.png", "uncertainty.json", "graph.npz"):
        (tmp_path / name).write_text("mine")
    for arguments in (
        ("copula", "--out", tmp_path, "--sizes", "40,80", "--repeats", "2"),
        ("uncertainty", "--out", tmp_path),
        ("graph", "--out", tmp_path / "graph.npz"),
    ):
        with pytest.raises(InputError, match="exists already: take another --out, or pass --overwrite"):
            call(*arguments)
    assert {path.read_text() for path in tmp_path.iterdir()} == {"mine"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["copula", "--sizes", "a"], "sizes must be whole numbers"),
        (["copula", "--sizes", "2"], "sizes must be >= 10"),
        (["copula", "--seed", "-1"], "--seed must be from 0 to"),
        (["losses", "--jobs", "0"], "--jobs must be from 1"),
        (["uncertainty", "--seeds", "0"], "--seeds must be from 1"),
        (["families", "none.csv", "--floors", "1"], "--floors must be 0"),
        (["families", "none.csv"], "no such table"),
        (["images", "none", "--labels", "none.csv"], "no such folder of images"),
        (["graph", "--nodes", "10"], "n_nodes must be at least 50"),
    ],
)
def test_bad_input_is_one_sentence(tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=message) as error:
        call(*arguments)
    assert "\n" not in str(error.value)


@pytest.mark.slow
def test_images_and_graphs_are_written_and_trained_on(tmp_path):
    table = write_images(tmp_path / "images")
    call("images", tmp_path / "images", "--labels", table, "--size", "8", "--out", tmp_path / "images.npz")
    assert load_multilabel(tmp_path / "images.npz").x.shape == (60, 3, 8, 8)
    quick = ("--epochs", "1", "--hidden", "8", "--floors", "0", "--loss", "bce", "--batch-size", "48")
    call("train", "--dataset", tmp_path / "images.npz", "--out", tmp_path / "run", *quick, of=multilabel_app)
    assert json.loads((tmp_path / "run" / "metrics.json").read_text())["data"]["label_names"] == ["red", "blue"]
    call("graph", "--nodes", "80", "--labels", "2", "--out", tmp_path / "graph.npz")
    assert load_multilabel(tmp_path / "graph.npz").adjacency.n_cols == 80
