"""The summary of a run does not contradict its labelled test nodes."""

from __future__ import annotations

import copy

import calirare
from calirare.run.summary import summary_of
from tests.helpers.command import rough_runs
from tests.helpers.tasks import rare_task


def test_test_nodes_outweigh_the_check_of_the_labels():
    with rough_runs():
        metrics = calirare.train(rare_task(), model="trees").metrics
    assert metrics["judged_on"] == "test"
    plain = copy.deepcopy(metrics)
    plain["population_check"] |= {"verdict": "trust"}
    side = "population"
    plain["p_rare"][side] |= {"mean_p_over_share_lower": 0.8, "mean_p_over_share_upper": 1.2}
    plain["detection"][side] |= {"auprc_lower": plain["detection"][side]["prevalence"] + 0.1}
    shown = summary_of(plain)
    assert "OK: P(rare) can be read" in shown
    assert "random order beyond chance" not in shown
    plain["p_rare"][side]["mean_p_over_share_upper"] = 0.9
    plain["detection"][side]["auprc_lower"] = 0.0
    shown = summary_of(plain)
    assert "DO NOT TRUST: the test nodes contradict P(rare)" in shown
    assert "not above that of a random order beyond chance" in shown
