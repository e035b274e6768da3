"""Pages of the documentation say what was measured."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

import pytest

from calirare import metrics
from tests.helpers.pages import committed, is_current, results

RESEARCH = Path(__file__).resolve().parents[2] / "docs" / "research"


@pytest.mark.slow
@pytest.mark.parametrize("script", ["bench_record", "detection_page", "metrics_page", "multilabel_page", "paper_page"])
def test_a_page_is_what_its_files_say(script):
    assert is_current(script), f"run python benchmarks/{script}.py, bench_record.py with --page"


def test_other_averages_are_on_the_page_of_detection(bench):
    page = (RESEARCH / "detection.md").read_text(encoding="utf-8")
    assert "\n".join(bench("bench_average").table(results("average"))) in page


@pytest.mark.parametrize("part", ["labels", "peers"])
def test_explanations_are_on_their_page(part, bench):
    page, found = bench("explain_page"), results(f"explain_{part}")
    begin, end = (getattr(page, f"{part.upper()}_{side}") for side in ("BEGIN", "END"))
    told = page.PAGE.read_text(encoding="utf-8").partition(begin)[2].partition(end)[0]
    assert told == {"labels": page.label_peers_page, "peers": page.peers_page}[part](found)
    assert part == "labels" or all(graph["logits_apart"] <= 1e-5 for graph in found.values())


def test_other_graphs_are_on_the_page_of_detection(bench):
    unseen = bench("bench_unseen")
    found = committed("unseen")
    told = unseen.PAGE.read_text(encoding="utf-8").split(unseen.BEGIN)[1].split(unseen.END)[0]
    assert told.strip("\n") == unseen.page(found["results"], found["commit"])
    lines = [json.loads(line) for line in unseen.cells.path_of(unseen.LINES).read_text(encoding="utf-8").splitlines()]
    assert json.loads(json.dumps(unseen.compared(lines, "shot"))) == found["results"]["shot"]


def test_drift_is_on_the_page_of_probability():
    told = results("drift")
    page = " ".join((RESEARCH / "probability.md").read_text(encoding="utf-8").split())
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
    text = (RESEARCH.parent / "metrics.md").read_text(encoding="utf-8")
    functions = {name for name, each in vars(metrics).items() if inspect.isfunction(each)}
    assert [name for name in sorted(functions) if name not in text] == []
