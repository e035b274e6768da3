"""What the pages say of the drift report is what was measured."""

from __future__ import annotations

import json
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_says_what_was_measured():
    told = json.loads((ROOT / "benchmarks" / "results" / "drift.json").read_text(encoding="utf-8"))["results"]
    page = " ".join((ROOT / "docs" / "research" / "probability.md").read_text(encoding="utf-8").split())
    same, detectors = told["same_law"], told["detectors"].values()
    assert same["alarms"] / same["graphs"] <= 0.05
    assert f"On {same['graphs']} simulated months" in page
    rate = 100 * same["rate_below"]
    assert f"it raised {same['alarms']} false alarms, a rate below {rate:.1f} % with 95 %" in page
    runs = sum(each["runs"] for each in detectors)
    seen = {
        name: sum(each["drifts"][name]["seen"] for each in detectors) for name in told["detectors"]["gcn"]["drifts"]
    }
    always = [name for name, times in seen.items() if times == runs]
    assert f"{len(always)} were named in {runs} of {runs} runs" in page
    assert f"outliers in 3 % of a column in {seen['outliers in 3 %']};" in page
    assert f"in mean P(rare) in {seen['three times the fraud']}." in page
    assert len(seen) - 1 == 13
    wrong = told["detectors"]["gcn"]["next_months_times"]
    assert f"was {wrong['mean_p']:.3f} by a graph".replace("0.", ".") in page
    assert f"where {wrong['share']:.3f} of".replace("0.", ".") in page
