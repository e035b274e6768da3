"""The page of a run of many classes, as Chromium shows it."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest

from tests.helpers.browser import DARK, LIGHT, NONE, browser, looked_at
from tests.helpers.classes import blocks, file_of
from tests.helpers.command import call, succeed

FAST = ("--task", "classes", "--model", "gcn", "--folds", "0")


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A run. Read only."""
    folder = tmp_path_factory.mktemp("one")
    graph = file_of(blocks(500, labelled=350), folder, "own")
    succeed("train", "--dataset", graph, *FAST, "--epochs", 40, "--out", folder / "one", pictures=True)
    return folder


@pytest.fixture(scope="module")
def page(place) -> Path:
    path = place / "one.html"
    succeed("report", "--run", place / "one", "--out", path)
    return path


def text_of(path: Path) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", path.read_text(encoding="utf-8"))).split())


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
