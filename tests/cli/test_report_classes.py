"""Two runs of many classes side by side, and the pages as Chromium shows them."""

from __future__ import annotations

import html
import json
import re
import shutil
from pathlib import Path

import pandas as pd
import pytest

import calirare
from calirare.page.against import against, class_caveat
from tests.helpers.browser import DARK, LIGHT, NONE, browser, looked_at
from tests.helpers.classes import NAMES, blocks, file_of
from tests.helpers.command import assert_refused, call, succeed

FAST = ("--task", "classes", "--model", "gcn", "--folds", "0")


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """Three runs: of one graph, with fewer epochs and other test nodes, and recalibrated from the first. Read only."""
    folder = tmp_path_factory.mktemp("two")
    graph = file_of(blocks(500, labelled=350), folder, "own")
    for name, how in (("one", ("--epochs", 40)), ("two", ("--epochs", 3, "--seed", 1))):
        succeed("train", "--dataset", graph, *FAST, *how, "--out", folder / name, pictures=True)
    shifted = file_of(blocks(400, (0.1, 0.1, 0.1, 0.7), seed=1), folder, "shifted")
    anew = shutil.copytree(folder / "one", folder / "anew")
    succeed("recalibrate", "--run", anew, "--graph", shifted, "--overwrite")
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
    for key, label in (("nll", "NLL"), ("brier", "Brier score"), ("accuracy", "accuracy")):
        values = [run["report"]["population"][key] for run in metrics]
        assert f"{label} {values[0]:.4f} {values[1]:.4f}" in text
    report = [run["report"]["population"] for run in metrics]
    ends = [f"{each['classwise_ece']:.4f} ({each['classwise_ece_noise_floor']:.3f})" for each in report]
    assert f"classwise ECE (floor) {ends[0]} {ends[1]}" in text
    rows = [{row["name"]: row for row in run["classes"]["population"]} for run in metrics]
    for name in NAMES:
        assert f"{name} {rows[0][name]['auprc']:.3f} {rows[1][name]['auprc']:.3f}" in text
    differ = one.prediction != two.prediction
    assert 0 < differ.sum() < 500
    assert f"{differ.sum()} of 500 nodes of both runs." in text
    known = differ & (one.y != "")
    right = [int((known & (table.y == table.prediction)).sum()) for table in (one, two)]
    assert f"Of those with a label ({known.sum()}) it is right here for {right[0]}, there for {right[1]}" in text
    for words in ("Compared with another run: two", "Settings that differ", "training.epochs 40 3", "Two runs"):
        assert words in text
    assert "The runs are judged on different nodes" in text
    assert "loo.damping" not in text.partition("How to make it again")[0], "a setting that is the same"


def test_the_nodes_that_differ_are_told_the_furthest_apart_first(place):
    here, there = (calirare.load(place / name) for name in ("one", "two"))
    metrics = json.loads((place / "one" / "metrics.json").read_text())
    found = against(here, metrics, here.to_frame(), there)
    p = [f"p_{name}" for name in NAMES]
    first, second = here.to_frame().set_index("node"), there.to_frame().set_index("node")
    apart = (first[p] - second[p]).abs().sum(axis=1) / 2
    differ = first.prediction != second.prediction
    assert found["counts"]["differ"] == differ.sum() > len(found["changed"]) == 25
    wanted = apart[differ].sort_values(ascending=False, kind="stable")[:25]
    assert [row["apart"] for row in found["changed"]] == [f"{each:.3f}" for each in wanted]
    for row in found["changed"]:
        node = int(row["node"])
        assert (row["here"], row["there"]) == (first.prediction[node], second.prediction[node])
        assert (row["p_here"], row["p_there"]) == (f"{first.confidence[node]:.3f}", f"{second.confidence[node]:.3f}")
        assert row["label"] == (first.y[node] or "unknown")
    assert found["same_nodes"]
    assert "judged on different nodes" in found["caveat"]
    found = against(here, metrics, here.to_frame(), calirare.load(place / "anew"))
    assert (found["counts"]["differ"], found["settings"]) == (0, ())
    assert "Recalibrated on fresh labels after training: there." in found["caveat"]
    assert ("recalibrated on", "no fresh labels", "400 labels of shifted") in found["measures"]


@pytest.mark.parametrize(
    ("there", "same", "words"),
    [
        ({}, True, ""),
        ({}, False, "different nodes"),
        ({"n_judged": 9}, True, "different nodes"),
        ({"judged_on": "leave-one-out"}, True, "different nodes"),
        ({"target": "balanced"}, True, "other targets"),
    ],
)
def test_measures_are_held_together_where_they_are_of_the_same(there, same, words):
    here = {"judged_on": "test", "n_judged": 8, "target": "population", "report": {"population": {}, "balanced": {}}}
    found = class_caveat(here, here | there, same)
    assert words in found
    assert bool(found) == bool(words)


def test_what_cannot_stand_beside_a_run_is_refused(place, quick_run, tmp_path):
    def refused(run: Path, other: Path) -> str:
        return assert_refused(call("report", "--run", run, "--against", other, "--out", tmp_path / "no.html"))

    said = refused(place / "one", quick_run)
    assert "--against must be a run of task classes" in said
    assert "is of a rare class: name another run" in said
    assert "--against must be a run of a rare class" in refused(quick_run, place / "one")
    assert "there is no such folder" in refused(place / "one", tmp_path / "gone")
    fewer = file_of(blocks(300, (0.5, 0.3, 0.2)), tmp_path, "fewer")
    succeed("train", "--dataset", fewer, *FAST, "--epochs", 2, "--out", tmp_path / "fewer")
    said = refused(place / "one", tmp_path / "fewer")
    assert "of the same classes as" in said
    assert "has no 'rare, one': name another run" in said
    assert "has 'rare, one': name another run" in refused(tmp_path / "fewer", place / "one")
    assert not (tmp_path / "no.html").exists()


@pytest.mark.slow
@pytest.mark.skipif(browser() is None, reason=NONE)
@pytest.mark.parametrize("scheme", [LIGHT, DARK], ids=["light", "dark"])
def test_the_pages_are_shown_whole(place, page, scheme, tmp_path):
    anew = tmp_path / "anew.html"
    succeed("report", "--run", place / "anew", "--against", place / "one", "--out", anew)
    for path in (page, anew):
        for width, told in looked_at(path, (1200, 400), scheme, tmp_path).items():
            assert (told["errors"], told["refused"], told["fetched"], told["broken"]) == ([], [], [], 0)
            assert told["needs"] <= width, "tables and pictures scroll in their own boxes, the page does not"
            assert told["contrast"] >= 4.5, told["contrast_at"]
            assert "Nodes whose likeliest class differs" in told["text"]


def test_its_pictures_tell_their_numbers(page):
    """A group of points for each panel: before and after, each class, and before and after of both runs."""
    text = page.read_text(encoding="utf-8")
    groups = {*re.findall(r'<input type="radio" name="(\w+-\d+)"', text)}
    panels = {"confidence": 2, "classes": len(NAMES), "here": 2, "there": 2}
    assert groups == {f"{name}-{i + 1}" for name, n in panels.items() for i in range(n)}
    assert {*re.findall(r'role="radiogroup" aria-label="([^"]+)"', text)} >= {html.escape(name) for name in NAMES}


def test_a_run_whose_label_effects_take_long_names_the_option(place, tmp_path, monkeypatch):
    monkeypatch.setattr("calirare.explain.explainer.LABEL_WORK", 0)
    assert call("report", "--run", place / "one", "--out", tmp_path / "short.html").code == 0
    assert "--labels 10 (in Python labels=10)" in text_of(tmp_path / "short.html")
