"""The pages on the reproduction say what the committed results say."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from calirare_lab.paper.cells import cell_path, write_cell
from calirare_lab.paper.methods import METHODS
from calirare_lab.paper.protocol import DATASETS, Place
from tests.helpers.pages import is_current

ROOT = Path(__file__).resolve().parents[3]
NEW = ("citeseer", 30, "cagcn")


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


@pytest.mark.slow
def test_a_run_without_cells_changes_no_result(page: Any, tmp_path: Path) -> None:
    file = committed()
    found = json.loads(json.dumps(page._finite(page.collect(tmp_path, committed()))))
    for name, table in file["results"]["tables"].items():
        assert found["tables"][name]["rows"] == table["rows"], name
    assert found["cells"] == file["results"]["cells"]
    assert found["bars"] == file["results"]["bars"]
    assert found["search"] == file["results"]["search"]


@pytest.mark.slow
def test_a_run_of_one_method_replaces_its_row_and_says_of_which_commit_the_others_are(
    page: Any, tmp_path: Path
) -> None:
    file = committed()
    entry = next(e for e in file["results"]["cells"] if (e["dataset"], e["label_rate"], e["method"]) == NEW)
    measures = {name: value[0] for name, value in entry.items() if page.paper_keep.is_summary(value)} | {"recall": 0.25}
    for seed in range(len(entry["seeds"])):
        cell = {"dataset": NEW[0], "label_rate": NEW[1], "method": NEW[2], "seed": seed, "measures": measures}
        cell |= {"seconds": 1.0, "numbers": {}, "probability": [0.5] * 1000}
        write_cell(cell_path(tmp_path, Place(*NEW[:2], seed), NEW[2]), cell)
    found = page.collect(tmp_path, committed())
    title = METHODS[NEW[2]].title
    for name in ("table2", "off"):
        old, new = file["results"]["tables"][name]["rows"], found["tables"][name]["rows"]
        changed = [a for a, b in zip(old, new, strict=True) if a != b]
        assert [row[:3] for row in changed] == [[NEW[0], str(NEW[1]), title]]
    (row,) = [r for r in found["tables"]["table2"]["rows"] if r[:3] == [NEW[0], str(NEW[1]), title]]
    assert row[6] == "25.00 ± 0.00"
    assert found["tables"]["verdict"]["rows"] == file["results"]["tables"]["verdict"]["rows"]
    mean = {r[0]: r[3] for r in found["tables"]["equal_labels"]["rows"]}[title]
    places_there = [e for e in file["results"]["cells"] if e["method"] == NEW[2] and e["dataset"] in DATASETS]
    expected = (sum(e["recall"][0] for e in places_there) - entry["recall"][0] + 0.25) / len(places_there)
    assert mean == f"{100 * expected:.2f}"
    assert found["rows"]["ours"]["commit"] == file["results"].get("rows", {}).get("ours", file)["commit"]
    fewer = tmp_path / "fewer"
    write_cell(cell_path(fewer, Place(*NEW[:2], 0), NEW[2]), cell | {"seed": 0})
    assert page.collect(fewer, committed())["cells"] == file["results"]["cells"], "fewer seeds do not replace more"
