"""docs/research/multilabel.md says what the committed results say."""

from __future__ import annotations

import json
from pathlib import Path

from calirare_lab.multilabel.study import SLACK, TELLING, Cell, verdicts
from tests.helpers.pages import results

ROOT = Path(__file__).resolve().parents[3]


def test_the_bars_are_met_by_the_committed_results():
    sets = results("multilabel_experiments")["summary"]["sets"]
    assert {name: part["seeds"] for name, part in sets.items()} == dict.fromkeys(
        ("emotions", "scene", "yeast", "enron"), 10
    )
    passed = [
        part["methods"]["cmlcc"]["copula"][0] < part["methods"]["bce"]["copula"][0]
        and part["methods"]["cmlcc"]["hamming_loss"][0] <= 1.02 * part["methods"]["bce"]["hamming_loss"][0]
        for part in sets.values()
    ]
    assert sum(passed) >= 3
    for row in results("multilabel_speed")["estimator"]:
        assert row["median_s"] <= 3
        assert row["extra_peak_bytes_per_entry"] <= 64  # memory O(n K)
    assert results("multilabel_speed")["literal_double_sum"]["difference"] <= 1e-10


def test_the_committed_verdicts_are_those_of_the_committed_cells():
    found = results("multilabel_simulation")
    cells = [Cell(**cell) for cell in found["cells"]]
    assert json.loads(json.dumps(verdicts(cells))) == found["verdicts"]
    assert {v["consistent"] for v in found["verdicts"]} == {True, False}
    text = (ROOT / "docs" / "research" / "multilabel.md").read_text(encoding="utf-8")
    assert (SLACK, TELLING) == (3, 0.5)
    assert "at most three times what falling as n^(-p/2)" in text
    assert "less than 36 (p = 1) or 6 (p = 2) times the smallest" in text
