"""What sets two runs apart: alerts of one alone with the label that either knows, and measures of the same nodes."""

from __future__ import annotations

import pandas as pd
import pytest

from calirare.page.against import _alerts, _joined, names_tested, rare_caveat


def table(nodes, y, alerts, split="test"):
    p = [0.9 if alert else 0.1 for alert in alerts]
    return pd.DataFrame({"node": nodes, "split": split, "y": y, "p_rare": p, "alert": alerts})


def test_labels_that_only_the_other_run_has_are_told():
    both = _joined(table(["a", "b", "c"], [1, -1, -1], [0, 0, 0]), table(["a", "b", "c"], [-1, 1, -1], [1, 1, 1]))
    told = {row["node"]: row["label"] for row in _alerts(both, "p_there", ("rest", "fraud"))}
    assert told == {"a": "fraud", "b": "fraud (there)", "c": "unknown"}


def metrics(n, judged_on="test"):
    detection = {"raw": {"n": n, "n_rare": 4, "judged_on": judged_on}}
    return {"graph": {"rare_class": "fraud"}, "detection": detection, "target": "population", "n_judged": n + 7}


@pytest.mark.parametrize(
    ("other", "nodes", "alike"),
    [
        (metrics(20), ["a", "b"], True),
        (metrics(20), ["a", "c"], False),  # as many, and others
        (metrics(19), ["a", "b"], False),
        (metrics(20, "leave-one-out"), ["a", "b"], False),
    ],
)
def test_measures_of_the_same_nodes_can_be_held_together(other, nodes, alike):
    same = names_tested(table(["a", "b"], 0, [0, 0])) == names_tested(table(nodes, 0, [0, 0]))
    assert (rare_caveat(metrics(20), other, same) == "") == alike


def test_labels_that_trained_are_the_same_where_as_many_are_judged():
    both = (metrics(20, "leave-one-out") | {"n_judged": n} for n in (20, 48))
    assert rare_caveat(*both, False) == ""
