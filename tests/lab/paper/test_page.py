"""The pages on the reproduction say what the committed results say."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.pages import is_current

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.slow
def test_the_pages_are_what_the_file_says() -> None:
    assert is_current("paper_page"), "run python benchmarks/paper_page.py"


def test_the_page_is_short_and_links_every_page_of_tables(page: Any) -> None:
    text = page.PAGE.read_text(encoding="utf-8")
    assert len(text.split()) <= 5000
    linked = set(re.findall(r"\(reproduction/(\w+\.md)\)", text))
    assert linked == {path.name for path in page.TABLES.glob("*.md")}
    for path in page.pages():
        for target in re.findall(r"\]\(([^)#:]+)\)", path.read_text(encoding="utf-8")):
            assert (path.parent / target).exists(), f"{path.name}: {target}"


def test_every_table_of_the_file_stands_on_one_page(page: Any) -> None:
    found = committed()
    texts = page.pages()
    assert page.filled(texts, found) == texts
    begun = [name for text in texts.values() for name in re.findall(r"<!-- (\w+):begin -->", text)]
    assert sorted(begun) == sorted(page.parts(found))
    with pytest.raises(ValueError, match="not enough values"):
        page.filled({path: text.replace("table2:begin", "") for path, text in texts.items()}, found)


def test_the_headline_shows_rows_of_the_table_of_equal_labels(page: Any) -> None:
    results = committed()["results"]
    rows = page.headline(results)[2:]
    assert len(rows) == len(page.HEADLINE)
    whole = page.table(results["tables"]["equal_labels"])
    assert rows == [line for line in whole if line in rows]


def test_verdicts_follow_from_the_cells() -> None:
    from calirare_lab.paper.published import TABLE2

    found = json.loads((ROOT / "benchmarks" / "results" / "paper.json").read_text(encoding="utf-8"))["results"]
    ours = {(c["dataset"], c["label_rate"]): c for c in found["cells"] if c["method"] == "ours"}
    won = 0
    for (dataset, rate), cell in ours.items():
        paper = TABLE2[dataset, rate, "ours"]
        better = [cell[m][0] >= paper[m] - 5e-6 for m in ("recall", "macro_f1")]
        won += all(better + [cell[m][0] < paper[m] for m in ("ace_minority", "macro_ace")])
    assert len(ours) == 12
    assert found["bars"][0]["measured"].startswith(f"{won} of 12 won")
    assert found["bars"][0]["met"] == (won >= 10)


def committed() -> dict[str, Any]:
    return json.loads((ROOT / "benchmarks" / "results" / "paper.json").read_text(encoding="utf-8"))


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return importlib.import_module("paper_page")
