"""The benchmark of rules that ask for labels: who is asked for, who judges, and how games are summed up."""

from __future__ import annotations

import numpy as np


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
