"""Benchmarks of labels: the score is 1 where effects add up, and nodes that judge are never queried."""

from __future__ import annotations

import numpy as np
import pytest
import torch


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
