"""Two runs of many classes side by side, and the page as Chromium shows it."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path

import pandas as pd
import pytest

import calirare
from calirare.page.against import against
from tests.helpers.browser import DARK, LIGHT, NONE, browser, looked_at
from tests.helpers.classes import blocks, file_of
from tests.helpers.command import assert_refused, call, succeed

FAST = ("--task", "classes", "--model", "gcn", "--folds", "0")


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """Two runs of one graph, the second with fewer epochs and other test nodes. Read only."""
    folder = tmp_path_factory.mktemp("two")
    graph = file_of(blocks(500, labelled=350), folder, "own")
    for name, how in (("one", ("--epochs", 40)), ("two", ("--epochs", 3, "--seed", 1))):
        succeed("train", "--dataset", graph, *FAST, *how, "--out", folder / name, pictures=True)
    return folder


@pytest.fixture(scope="module")
def page(place) -> Path:
    path = place / "two.html"
    succeed("report", "--run", place / "one", "--against", place / "two", "--out", path)
    return path


def text_of(path: Path) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", path.read_text(encoding="utf-8"))).split())


def table_of(folder: Path) -> pd.DataFrame:
    return calirare.load(folder).to_frame()


def test_two_runs_of_many_classes_stand_side_by_side(place, page):
    text, (one, two) = text_of(page), (table_of(place / name) for name in ("one", "two"))
    metrics = [json.loads((place / name / "metrics.json").read_text()) for name in ("one", "two")]
    report = [run["report"]["population"] for run in metrics]
    for key, label in (("nll", "NLL"), ("brier", "Brier score"), ("accuracy", "accuracy")):
        assert f"{label} {report[0][key]:.4f} {report[1][key]:.4f}" in text
    ends = [f"{each['classwise_ece']:.4f} ({each['classwise_ece_noise_floor']:.3f})" for each in report]
    assert f"classwise ECE (expected) {ends[0]} {ends[1]}" in text
    differ = one.prediction != two.prediction
    assert 0 < differ.sum() < 500
    assert f"{differ.sum()} of 500 nodes of both runs; the 25 surest" in text
    for words in ("Compared with another run: two", "Settings that differ", "training.epochs 40 3", "Two runs"):
        assert words in text
    assert "The runs are judged on different nodes" in text
    assert "loo.damping" not in text.partition("How to make it again")[0], "a setting that is the same"


def test_the_nodes_that_differ_are_shown_the_surest_first(place):
    here, there = (calirare.load(place / name) for name in ("one", "two"))
    metrics = json.loads((place / "one" / "metrics.json").read_text())
    found = against(here, metrics, here.to_frame(), there)
    first, second = here.to_frame().set_index("node"), there.to_frame().set_index("node")
    differ = first.prediction != second.prediction
    sure = (first.confidence + second.confidence)[differ].sort_values(ascending=False, kind="stable")[:25]
    assert [int(row[0]) for row in found["changed"]] == sure.index.tolist()
    for node, *cells in found["changed"]:
        one, other = first.loc[int(node)], second.loc[int(node)]
        probabilities = f"{one.confidence:.3f}", f"{other.confidence:.3f}"
        assert cells == [one.prediction, probabilities[0], other.prediction, probabilities[1], one.y or "unknown"]
    same = against(here, metrics, here.to_frame(), here)
    assert (same["differ"], same["settings"], same["caveat"]) == (0, (), "")


def test_a_run_of_other_classes_is_refused(place, quick_run, tmp_path):
    for run, other in ((place / "one", quick_run), (quick_run, place / "one")):
        said = assert_refused(call("report", "--run", run, "--against", other, "--out", tmp_path / "no.html"))
        assert "--against must be a run of the same classes as" in said
        assert "name another run" in said
    assert not (tmp_path / "no.html").exists()


@pytest.mark.slow
@pytest.mark.skipif(browser() is None, reason=NONE)
@pytest.mark.parametrize("scheme", [LIGHT, DARK], ids=["light", "dark"])
def test_the_page_is_shown_whole(page, scheme, tmp_path):
    for width, told in looked_at(page, (1200, 400), scheme, tmp_path).items():
        assert (told["errors"], told["refused"], told["fetched"], told["broken"]) == ([], [], [], 0)
        assert told["needs"] <= width, "tables and pictures scroll in their own boxes, the page does not"
        assert told["contrast"] >= 4.5, told["contrast_at"]


def test_a_run_whose_label_effects_take_long_names_the_option(place, tmp_path, monkeypatch):
    monkeypatch.setattr("calirare.explain.explainer.LABEL_WORK", 0)
    assert call("report", "--run", place / "one", "--out", tmp_path / "short.html").code == 0
    assert "--labels 10 (in Python labels=10)" in text_of(tmp_path / "short.html")
