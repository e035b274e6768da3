"""Labels of trees: leaf values are made again from the labels that LightGBM saw, and without some of them."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest
import torch

from calirare.explain import tree_labels
from calirare.explain.leaf_refit import change_with_all
from calirare.explain.tree_labels import BoostedLabels
from calirare.explain.tree_leaves import Leaves, bags, leaves_of
from calirare.explain.trees import REPRODUCED, ExplainableTrees
from calirare.graph import Graph
from calirare.models import TreesDetector, TreesTraining
from tests.helpers.tasks import rare_task

NODES = torch.arange(40, 60).flip(0)  # as alerts come: in no order of their numbers
ROUNDING = 1e3 * float(np.finfo(np.float64).eps)  # sums of a few hundred terms


@pytest.fixture(scope="module", params=["boosting", "extra"])
def model(request):
    return grown(request.param)


@cache
def grown(kind: str) -> ExplainableTrees:
    graph = rare_task()
    growing = TreesTraining(kind=kind, rounds=12, patience=0, folds=2, seed=3)
    return ExplainableTrees(TreesDetector(growing).fit(graph, graph.split.train), graph)


def by_hand(model: ExplainableTrees, node: int, left_out: list[int]) -> float:
    """The log-odds of a node by leaf values made without some labels, one number at a time."""
    leaves = model.labels.leaves
    rows = leaves_of(model.fitted, model._columns(torch.tensor([node])))[:, 0]
    kept = [i for i in range(leaves.weights.size) if i not in left_out]
    w, y = leaves.weights, leaves.targets
    rare = sum(w[i] for i in kept if y[i] == 1) + 1
    prior = rare / (sum(w[i] for i in kept) + 2)
    said = dict.fromkeys(range(w.size), math.log(prior / (1 - prior)))
    total = 0.0
    for t in range(leaves.n_trees):
        value = {}
        for leaf in range(leaves.values[t].size):
            here = [i for i in kept if leaves.bags[t][i] and leaves.of_labels[t][i] == leaf]
            if leaves.boosted:
                p = {i: 1 / (1 + math.exp(-said[i])) for i in here}
                gradient = sum(w[i] * (p[i] - y[i]) for i in here)
                value[leaf] = -leaves.rate * gradient / (sum(w[i] * p[i] * (1 - p[i]) for i in here) + leaves.penalty)
            else:
                value[leaf] = sum(w[i] * (y[i] - prior) for i in here) / (sum(w[i] for i in here) + leaves.penalty)
        total += value[rows[t]]
        said = {i: z + value[leaves.of_labels[t][i]] for i, z in said.items()}
    if leaves.boosted:
        return math.log(prior / (1 - prior)) + total
    share = prior + total / leaves.n_trees
    return math.log(share / (1 - share))


def test_stored_leaf_values_are_made_again_and_other_labels_are_noticed(model):
    assert model.labels.error < REPRODUCED
    leaves = model.labels.leaves
    if leaves.boosted:
        assert 0 < leaves.bags.mean() < 1
        assert not np.array_equal(leaves.bags[0], leaves.bags[1])
    else:
        assert leaves.bags.all()
    part = "bags" if leaves.boosted else "of_labels"
    wrong = type(leaves)(**vars(leaves) | {part: np.roll(getattr(leaves, part), 1, axis=1)})
    other = BoostedLabels(wrong) if leaves.boosted else type(model.labels)(wrong, model.labels.smallest)
    assert other.error > 100 * REPRODUCED


def test_leaves_are_of_the_models_text_alone_as_older_versions_of_lightgbm_need_it(model, monkeypatch):
    monkeypatch.setattr(model.fitted.trees.all_labels.booster, "params", {})
    leaves, columns = model.labels.leaves, model._columns(model.fitted.nodes).astype(np.float32)
    found = Leaves.of(model.fitted, columns)
    assert np.array_equal(found.bags, leaves.bags)
    assert (found.rate, found.penalty) == (leaves.rate, leaves.penalty)


def test_the_log_odds_made_by_hand_are_those_of_the_trees(model):
    for node in (41, 50):
        assert abs(by_hand(model, node, []) - float(model.log_odds(torch.tensor([node])))) < 12 * REPRODUCED


def test_without_labels_is_what_leaf_values_by_hand_say(model):
    alone = model.without_each_label(NODES)
    base = model.log_odds(NODES)
    sets = [[3], [0, 7, 21]]
    together = model.without_labels(NODES, [torch.tensor(each) for each in sets])
    for column in (0, 9):
        node = int(NODES[column])
        start = by_hand(model, node, [])
        for label in (3, 30):
            expected = by_hand(model, node, [label]) - start
            assert abs(float(alone[label, column] - base[column]) - expected) < ROUNDING
        for row, places in enumerate(sets):
            expected = by_hand(model, node, places) - start
            assert abs(float(together[row, column] - base[column]) - expected) < ROUNDING
    assert float((alone - base).abs().max()) > 0.01


def test_labels_of_boosting_weigh_alike_and_a_label_left_out_moves_the_share_it_starts_from():
    graph = rare_task()
    train = graph.split.train
    nodes = torch.cat([train[graph.y[train] == 0], train[graph.y[train] == 1][:6]])
    fitted = TreesDetector(TreesTraining(rounds=12, patience=0, folds=2, seed=3)).fit(graph, nodes)
    model, n_rest = ExplainableTrees(fitted, graph), nodes.numel() - 6
    assert model.labels.error < REPRODUCED
    assert (model.labels.leaves.weights == 1).all()
    assert math.isclose(model.labels.start, math.log(7 / (n_rest + 1)))
    label = nodes.numel() - 1  # a rare one
    change = float(model.without_each_label(NODES)[label, 0] - model.log_odds(NODES)[0])
    assert abs(change - by_hand(model, int(NODES[0]), [label]) + by_hand(model, int(NODES[0]), [])) < ROUNDING


@pytest.mark.parametrize(("labels", "rare"), [(116, 6), (60, 6)])
def test_rounds_that_found_nothing_to_split_drew_a_bag_and_left_no_tree(labels, rare):
    draw = np.random.default_rng(labels)
    y = np.r_[np.ones(rare, np.int64), np.zeros(labels - rare, np.int64)]
    x = draw.normal(1.5 * y, 1)[:, None].astype(np.float32)
    graph = Graph.from_edges(
        draw.integers(0, labels, (20, 2)), x, y, symmetrize=True, duplicates="drop", self_loops="drop"
    )
    growing = TreesTraining(rounds=60, patience=0, folds=2, seed=3)
    model = ExplainableTrees(TreesDetector(growing).fit(graph, torch.arange(labels)), graph)
    assert model.labels.leaves.n_trees < 60
    assert model.labels.error < REPRODUCED / 1e3
    node = torch.tensor([1])
    assert float(model.log_odds(node)) == pytest.approx(by_hand(model, 1, []), abs=1e-6)
    assert not any("LightGBM" in note for note in model.notes)


def test_of_many_labels_the_strongest_are_exact_and_the_others_near(monkeypatch):
    model = grown("boosting")
    rows = leaves_of(model.fitted, model._columns(NODES))
    exact = BoostedLabels(model.labels.leaves).change(rows)
    monkeypatch.setattr(tree_labels, "REFITS", 0)
    monkeypatch.setattr(tree_labels, "LATER", 0)
    few = BoostedLabels(model.labels.leaves)
    assert not few.exact
    found = few.change(rows)
    strongest = np.argsort(-np.abs(exact).max(1))[:5]
    np.testing.assert_array_less(np.abs(found - exact)[strongest], ROUNDING)
    assert np.corrcoef(found.ravel(), exact.ravel())[0, 1] > 0.95


def test_bags_of_more_rows_than_a_block_have_a_generator_each():
    drawn = bags(2100, 3, seed=7, fraction=0.7)
    np.testing.assert_array_equal(drawn[:, :1024], bags(1024, 3, seed=7, fraction=0.7))
    np.testing.assert_array_equal(drawn[:, 1024:2048], bags(1024, 3, seed=8, fraction=0.7))
    assert bags(5, 2, seed=7, fraction=1.0).all()


def moved_by_hand(model: ExplainableTrees, more: int, label: int, node: int) -> float:
    """How far a label at one node moves the log-odds of another: its own leaves alone, one number at a time."""
    leaves = model.labels.leaves
    at, of_node = (leaves_of(model.fitted, model._columns(torch.tensor([v])))[:, 0] for v in (more, node))
    w, y, n = leaves.weights, leaves.targets, leaves.weights.size
    own_weight = sum(w[y == label]) / (y == label).sum()
    prior = (sum(w * y) + 1) / (sum(w) + 2)
    said, own, before, after = [math.log(prior / (1 - prior))] * n, math.log(prior / (1 - prior)), 0.0, 0.0
    for t in range(leaves.n_trees):
        whole, moved = {}, 0.0
        for leaf in range(leaves.values[t].size):
            here = [i for i in range(n) if leaves.bags[t][i] and leaves.of_labels[t][i] == leaf]
            if leaves.boosted:
                p = {i: 1 / (1 + math.exp(-said[i])) for i in here}
                top = sum(w[i] * (p[i] - y[i]) for i in here)
                bottom = sum(w[i] * p[i] * (1 - p[i]) for i in here) + leaves.penalty
                q = 1 / (1 + math.exp(-own))
                whole[leaf] = -leaves.rate * top / bottom
                new = -leaves.rate * (top + own_weight * (q - label)) / (bottom + own_weight * q * (1 - q))
            else:
                top, bottom = sum(w[i] * (y[i] - prior) for i in here), sum(w[i] for i in here) + leaves.penalty
                whole[leaf], new = top / bottom, (top + own_weight * (label - prior)) / (bottom + own_weight)
            if leaf == at[t]:
                moved = leaves.bags[t].mean() * (new - whole[leaf])
        said = [z + whole[leaf] for z, leaf in zip(said, leaves.of_labels[t], strict=True)]
        own += whole[at[t]] + moved
        before += whole[of_node[t]]
        after += whole[of_node[t]] + (moved if at[t] == of_node[t] else 0.0)
    if leaves.boosted:
        return after - before
    shares = (prior + after / leaves.n_trees, prior + before / leaves.n_trees)
    ends = [math.log(share / (1 - share)) for share in shares]
    return ends[0] - ends[1]


def test_a_label_more_moves_its_own_leaves_as_by_hand(model):
    more = torch.tensor([45, 200])
    found = model.with_each_label(NODES, more) - model.log_odds(NODES)
    for label in (0, 1):
        for row, place in ((0, 5), (0, 9), (1, 3)):
            expected = moved_by_hand(model, int(more[row]), label, int(NODES[place]))
            assert abs(float(found[label, row, place]) - expected) < 12 * REPRODUCED
    assert bool((found[1] >= 0).all() and (found[0] <= 0).all())
    assert float(found.abs().max()) > 0.01


def test_labels_together_make_their_leaves_anew_once(model):
    """One label is what it is alone, nearly; the same look-alikes again and again move a leaf less and less."""
    more = torch.tensor([45, 200])
    one = model.with_labels(NODES, more[:1], torch.tensor([1])) - model.log_odds(NODES)
    alone = model.with_each_label(NODES, more[:1])[1, 0] - model.log_odds(NODES)
    assert float((one - alone).abs().max()) < 0.15 * float(alone.abs().max())
    labels = model.labels
    rows, others = (leaves_of(model.fitted, model._columns(some)) for some in (more[:1], NODES))
    many = change_with_all(labels, np.repeat(rows, 40, 1), np.ones(40, dtype=np.int64), others)
    assert (many >= one.numpy() - REPRODUCED).all()
    assert many.max() < 20 * float(one.max()), "40 times the same is not 40 times as much"
    both = model.with_labels(NODES, more[:2], torch.tensor([1, 0])) - model.log_odds(NODES)
    added = one + model.with_each_label(NODES, more[1:2])[0, 0] - model.log_odds(NODES)
    assert float((both - added).abs().max()) < 0.3 * float(added.abs().max())
