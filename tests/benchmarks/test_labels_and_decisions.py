"""Benchmarks of labels and decisions: scores and intervals by hand, nodes that judge are never queried."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from calirare.run.deciding import HELD
from tests.helpers.pages import results


def test_the_score_is_one_where_effects_add_up_and_none_where_they_say_nothing(bench):
    draw = torch.Generator().manual_seed(0)
    change = torch.randn(20, 4, generator=draw, dtype=torch.float64)
    gone = torch.rand(30, 20, generator=draw) < 0.5
    said = 3 + gone.double() @ change
    score = bench("bench_explain_labels").datamodelling_score
    assert score(change, gone, said) == pytest.approx(1)
    assert score(-change, gone, said) == pytest.approx(-1)
    assert abs(score(torch.randn(20, 4, generator=draw, dtype=torch.float64), gone, said)) < 0.5


def test_the_nodes_that_judge_are_never_asked_for_and_every_rule_starts_alike(bench):
    rounds = bench("labelling.rounds")
    task = rounds.SETS["simulated, hard"]()
    first, again = (rounds.start(task, "simulated, hard", 1) for _ in range(2))
    parts = [first.chosen, first.random, first.pool, first.test]
    assert len(np.unique(np.concatenate(parts))) == sum(map(len, parts)) == task.graph.n_nodes
    assert len(first.test) == task.graph.n_nodes // 2
    assert (task.y[first.chosen] == 1).sum() == rounds.PER_CLASS
    assert (task.y[first.random] == 1).sum() >= rounds.MIN_RARE
    assert all(np.array_equal(a, b) for a, b in zip(parts, vars(again).values(), strict=True))


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
