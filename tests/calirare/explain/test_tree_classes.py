"""Labels of trees of many classes: leaf values are made again from the labels that LightGBM saw, and without some."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest
import torch

from calirare.explain import tree_classes
from calirare.explain.label_propagation import ExplainablePropagation
from calirare.explain.tree_classes import BoostedClasses
from calirare.explain.tree_leaves import REPRODUCED, leaves_of
from calirare.explain.trees import ExplainableTrees
from calirare.graph import Graph
from calirare.models import LabelPropagation, TreesDetector, TreesTraining
from tests.calirare.leave_one_out.cases import agreement
from tests.helpers.tasks import rare_task

K = 3
NODES = torch.arange(40, 60).flip(0)
ROUNDING = 1e3 * float(np.finfo(np.float64).eps)  # sums of a few hundred terms


@cache
def grown(kind: str) -> ExplainableTrees:
    graph = rare_task(n_classes=K)
    growing = TreesTraining(kind=kind, rounds=10, patience=0, folds=2, seed=3)
    return ExplainableTrees(TreesDetector(growing).fit(graph, graph.split.train), graph)


@pytest.fixture(scope="module", params=["boosting", "extra"])
def model(request) -> ExplainableTrees:
    return grown(request.param)


def softmax(z: list[float]) -> list[float]:
    total = sum(math.exp(x) for x in z)
    return [math.exp(x) / total for x in z]


def by_hand(model: ExplainableTrees, node: int, left_out: list[int]) -> list[float]:
    """The logits of a node by leaf values made without some labels, one number at a time."""
    fitted, columns = model.fitted, model._columns(torch.tensor([node]))
    w, y = fitted.sample_weights.double().numpy(), fitted.targets.tolist()
    w = w / w.mean()
    kept = [i for i in range(len(w)) if i not in left_out]
    counts = [sum(w[i] for i in kept if y[i] == c) + 1 for c in range(K)]
    prior = [count / sum(counts) for count in counts]
    if isinstance(model.labels, BoostedClasses):
        leaves = model.labels.leaves
        said, z = {i: [math.log(p) for p in prior] for i in range(len(w))}, [math.log(p) for p in prior]
        mine = leaves_of(fitted, columns)[:, 0]
        for first in range(0, leaves.n_trees, K):
            p = {i: softmax(said[i]) for i in said}
            for c in range(K):
                t, value = first + c, {}
                for leaf in range(leaves.values[t].size):
                    here = [i for i in kept if leaves.bags[t][i] and leaves.of_labels[t][i] == leaf]
                    gradient = sum(w[i] * (p[i][c] - (y[i] == c)) for i in here)
                    curvature = sum(w[i] * K / (K - 1) * p[i][c] * (1 - p[i][c]) for i in here)
                    value[leaf] = -leaves.rate * gradient / (curvature + leaves.penalty)
                if leaves.values[t].size == 1:
                    value = {0: leaves.values[t][0]}
                z[c] += value[mine[t]]
                for i in said:
                    said[i] = [x + (value[leaves.of_labels[t][i]] if j == c else 0) for j, x in enumerate(said[i])]
        return z
    out = []
    for c, labels in enumerate(model.labels.each):
        leaves, mine, total = labels.leaves, leaves_of(fitted, columns)[:, 0], 0.0
        for t in range(leaves.n_trees):
            here = [i for i in kept if leaves.bags[t][i] and leaves.of_labels[t][i] == mine[t]]
            value = sum(w[i] * ((y[i] == c) - prior[c]) for i in here) / (sum(w[i] for i in here) + leaves.penalty)
            total += leaves.values[t][0] if leaves.values[t].size == 1 else value
        out.append(math.log(prior[c] + total / leaves.n_trees))
    return out


def test_stored_leaf_values_are_made_again_and_other_labels_are_noticed(model):
    assert model.labels.error < REPRODUCED
    each = [model.labels.leaves] if isinstance(model.labels, BoostedClasses) else [o.leaves for o in model.labels.each]
    assert all(0 < leaves.bags.mean() < 1 if leaves.boosted else leaves.bags.all() for leaves in each)
    part = "bags" if each[0].boosted else "of_labels"
    wrong = [type(own)(**vars(own) | {part: np.roll(getattr(own, part), 1, axis=1)}) for own in each]
    if isinstance(model.labels, BoostedClasses):
        assert BoostedClasses(wrong[0]).error > 100 * REPRODUCED
    else:
        other = [type(o)(bad, o.smallest) for o, bad in zip(model.labels.each, wrong, strict=True)]
        assert type(model.labels)(other).error > 100 * REPRODUCED


def test_the_logits_made_by_hand_are_those_of_the_trees(model):
    for node in (41, 50):
        found = model.log_odds(torch.tensor([node]))[0].tolist()
        assert found == pytest.approx(by_hand(model, node, []), abs=12 * REPRODUCED)


def test_without_labels_is_what_leaf_values_by_hand_say(model):
    alone, base, sets = model.without_each_label(NODES), model.log_odds(NODES), [[3], [0, 7, 21]]
    together = model.without_labels(NODES, [torch.tensor(each) for each in sets])
    for column in (0, 9):
        node = int(NODES[column])
        start = np.array(by_hand(model, node, []))
        for label in (3, 30):
            moved = np.array(by_hand(model, node, [label])) - start
            assert (alone[label, column] - base[column]).numpy() == pytest.approx(moved, abs=ROUNDING)
        for row, places in enumerate(sets):
            moved = np.array(by_hand(model, node, places)) - start
            assert (together[row, column] - base[column]).numpy() == pytest.approx(moved, abs=ROUNDING)
    assert float((alone - base).abs().max()) > 0.01


def test_of_many_labels_each_moves_the_leaves_it_lies_in_alone_which_is_near(monkeypatch):
    model = grown("boosting")
    exact, base = model.without_each_label(NODES), model.log_odds(NODES)
    monkeypatch.setattr(tree_classes, "REFITS", 0)
    other = ExplainableTrees(model.fitted, model.graph)
    assert any("each moves the leaves it lies in alone" in note for note in other.notes)
    assert not any("each moves the leaves it lies in alone" in note for note in model.notes)
    assert agreement(other.without_each_label(NODES) - base, exact - base)[0] > 0.97


def test_rounds_that_found_nothing_to_split_drew_a_bag_and_left_no_tree():
    draw, m = np.random.default_rng(5), 48
    y = np.r_[np.full(6, 2), np.full(8, 1), np.zeros(m - 14)].astype(np.int64)
    x = draw.normal(1.2 * y, 1)[:, None].astype(np.float32)
    graph = Graph.from_edges(draw.integers(0, m, (20, 2)), x, y, symmetrize=True, duplicates="drop", self_loops="drop")
    growing = TreesTraining(rounds=60, patience=0, folds=2, seed=3)
    model = ExplainableTrees(TreesDetector(growing).fit(graph, torch.arange(m)), graph)
    leaves = model.labels.leaves
    assert any(values.size == 1 for values in leaves.values) or leaves.n_trees < 60 * K
    assert model.labels.error < REPRODUCED
    assert model.log_odds(torch.tensor([1]))[0].tolist() == pytest.approx(by_hand(model, 1, []), abs=1e-4)


def test_spread_labels_of_many_classes_are_left_out_exactly():
    graph = rare_task(n_classes=K)
    fitted = LabelPropagation(2, 0).fit(graph, graph.split.train)
    model, step = ExplainablePropagation(fitted, graph), graph.adjacency.to_dense().double()
    root = step.sum(1).clamp(min=1e-30).rsqrt()
    s, nodes = fitted.reach * root[:, None] * step * root, torch.arange(40, 60)

    def said(left_out: list[int]) -> torch.Tensor:
        x = torch.zeros(graph.n_nodes, K).double()
        for i, node in enumerate(fitted.nodes.tolist()):
            if i not in left_out:
                x[node, fitted.targets[i]] += fitted.sample_weights[i]
        total, at = torch.zeros_like(x), x
        for _ in range(10):
            at = s @ at
            total += at
        return (total + fitted.prior / K).log()[nodes]

    alone = model.without_each_label(nodes)
    heard = ~alone[4].isnan().any(1)
    assert int(heard.sum()) > 10
    assert float((alone[4] - said([4]))[heard].abs().max()) < 1e-4
    together = model.without_labels(nodes, [torch.tensor([1, 4])])[0]
    assert float((together - said([1, 4]))[~together.isnan().any(1)].abs().max()) < 1e-4
