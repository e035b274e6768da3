"""Other averages of detectors: the one to compare with is the product's, and the page says what was measured."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return importlib.import_module("bench_average")


def test_the_page_says_what_was_measured(bench: Any) -> None:
    told = json.loads((ROOT / "benchmarks" / "results" / "average.json").read_text(encoding="utf-8"))["results"]
    page = (ROOT / "docs" / "research" / "detection.md").read_text(encoding="utf-8")
    assert "\n".join(bench.table(told)) in page
