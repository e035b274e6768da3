"""What decisions cost and promise: the benchmarks count right, and the caveat of a run says what they found."""

from __future__ import annotations

from typing import Any

from calirare.run.deciding import HELD
from tests.helpers.pages import results


def test_intervals_by_hand(bench: Any) -> None:
    bench = bench("bench_decision_graphs")
    middle = f"gcn{bench.MIDDLE}"
    rows = {"gcn, a, 0": {"hits": [3, 9], "gcn": [[4, 2, 6], [5, 1, 8]], middle: [[3, 3, 3], [9, 0, 9]]}}
    assert bench.held(rows, "gcn") == {
        "gcn": {"intervals": 2, "inside": 0.5, "width": 5.5, "error": 2.5},
        middle: {"intervals": 2, "inside": 1.0, "width": 4.5, "error": 0.0},
    }


def test_the_caveat_of_a_run_says_what_was_measured() -> None:
    told = results("decision_graphs")["summary"]
    inside = {model: round(100 * told[model]["inside"]) for model in ("auto", "hops", "gcn")}
    assert HELD[True] == f"{inside['auto']} %"
    low, high = sorted((inside["hops"], inside["gcn"]))
    assert HELD[False] == f"{low} to {high} %"
