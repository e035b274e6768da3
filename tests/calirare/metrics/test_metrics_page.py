"""docs/research/metrics.md says what its example prints and what the committed times say."""

from __future__ import annotations

import inspect
from pathlib import Path

from calirare import metrics
from tests.helpers.pages import results

ROOT = Path(__file__).resolve().parents[3]


def test_the_bars_are_met_by_the_committed_times():
    found = results("metrics")
    assert (found["rows"], found["classes"]) == (1_000_000, 10)
    rivals = set()
    for case in found["cases"]:
        times = {name: summary["median"] for name, summary in case["milliseconds"].items()}
        assert times["calirare"] == min(times.values()), case["case"]
        assert times["calirare"] < 50 or not case["case"].startswith("ece")
        rivals |= set(times)
    assert rivals == {"calirare", "torchmetrics", "netcal", "sklearn"}


def test_the_page_names_every_public_function():
    text = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    functions = {name for name, each in vars(metrics).items() if inspect.isfunction(each)}
    assert [name for name in sorted(functions) if name not in text] == []
