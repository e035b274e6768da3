"""Labels of trees: leaf values are made again from the labels that LightGBM saw, without some of them or with more."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest
import torch

from calirare.explain import tree_labels
from calirare.explain.tree_labels import BoostedLabels
from calirare.explain.tree_leaves import REPRODUCED, Leaves, bags, leaves_of
from calirare.explain.trees import ExplainableTrees
from calirare.graph import Graph
from calirare.models import TreesTraining
from tests.helpers.tasks import rare_task

NODES = torch.arange(40, 60).flip(0)  # as alerts come: in no order of their numbers
ROUNDING = 1e3 * float(np.finfo(np.float64).eps)  # sums of a few hundred terms
KINDS = [(2, "boosting"), (2, "extra"), (3, "boosting"), (3, "extra")]


@pytest.fixture(scope="module", params=KINDS, ids=str)
def model(request):
    return grown(*request.param)


@cache
def grown(k: int, kind: str) -> ExplainableTrees:
    graph = rare_task(n_classes=k)
    growing = TreesTraining(kind=kind, rounds=10, patience=0, folds=2, seed=3)
    return ExplainableTrees(growing.fit(graph, graph.split.train), graph)


def leaves_in(model: ExplainableTrees) -> list[Leaves]:
    """The leaves of boosting, or of a forest those of each class."""
    return [model.labels.leaves] if isinstance(model.labels, BoostedLabels) else [o.leaves for o in model.labels.each]


def softmax(z: list[float]) -> list[float]:
    """Of one number the logistic function."""
    z = [0.0, *z] if len(z) == 1 else z
    total = sum(math.exp(x) for x in z)
    return [math.exp(x) / total for x in z][-len(z) + (len(z) == 2) :]


def by_hand(model: ExplainableTrees, node: int, left_out=(), more: tuple[int, int] | None = None) -> np.ndarray:
    """The logits of a node by leaf values made without some labels, one number at a time.

    `more`: another node and its label, which moves only the leaves that it lies in.
    """
    fitted, k = model.fitted, model.fitted.n_classes
    w, y = fitted.sample_weights.double().numpy(), fitted.targets.tolist()
    w = w / w.mean()
    kept = [i for i in range(len(w)) if i not in left_out]
    counts = [sum(w[i] for i in kept if y[i] == c) + 1 for c in range(k)]
    prior = [count / sum(counts) for count in counts]
    mine, at = (
        leaves_of(fitted, model._columns(torch.tensor([v])))[:, 0] for v in (node, node if more is None else more[0])
    )
    worth = 0.0 if more is None else np.mean([w[i] for i in range(len(w)) if y[i] == more[1]])
    out = []
    for leaves in leaves_in(model):
        classes = range(k) if leaves.boosted and k > 2 else [leaves.of]
        start = [math.log(p) for p in prior] if len(classes) > 1 else [math.log(prior[1] / (1 - prior[1]))]
        scores, own, z = dict.fromkeys(range(len(w)), start), list(start), list(start)
        total = 0.0
        for first in range(0, leaves.n_trees, len(classes)):
            p, q = {i: softmax(scores[i]) for i in scores}, softmax(own)
            for place, c in enumerate(classes):
                t, bag, values = first + place, leaves.bags[first + place], leaves.values[first + place]
                whole, moved = {}, 0.0
                for leaf in range(values.size):
                    here = [i for i in kept if bag[i] and leaves.of_labels[t][i] == leaf]
                    if leaves.boosted:
                        bend = k / (k - 1) if k > 2 else 1
                        top = -leaves.rate * sum(w[i] * (p[i][place] - (y[i] == c)) for i in here)
                        low = sum(w[i] * bend * p[i][place] * (1 - p[i][place]) for i in here) + leaves.penalty
                        if more is not None:
                            new = top - leaves.rate * worth * (q[place] - (more[1] == c))
                            new /= low + worth * bend * q[place] * (1 - q[place])
                    else:
                        top = sum(w[i] * ((y[i] == c) - prior[c]) for i in here)
                        low = sum(w[i] for i in here) + leaves.penalty
                        if more is not None:
                            new = (top + worth * ((more[1] == c) - prior[c])) / (low + worth)
                    whole[leaf] = values[0] if values.size == 1 else top / low
                    if more is not None and leaf == at[t] and values.size > 1:
                        moved = bag.mean() * (new - whole[leaf])
                value = whole[mine[t]] + (moved if at[t] == mine[t] else 0.0)
                z[place] += value
                total += value
                own[place] += whole[at[t]] + moved
                scores = {
                    i: [x + (whole[leaves.of_labels[t][i]] if j == place else 0) for j, x in enumerate(s)]
                    for i, s in scores.items()
                }
        share = prior[leaves.of] + total / leaves.n_trees
        forest = math.log(share / (1 - share)) if k == 2 else math.log(max(share, 1e-300))
        out += z if leaves.boosted else [forest]
    return np.array([0.0, *out] if k == 2 else out)


def test_stored_leaf_values_are_made_again_and_other_labels_are_noticed(model):
    assert model.labels.error < REPRODUCED
    each = leaves_in(model)
    assert all(0 < leaves.bags.mean() < 1 if leaves.boosted else leaves.bags.all() for leaves in each)
    part = "bags" if each[0].boosted else "of_labels"
    wrong = [Leaves(**vars(own) | {part: np.roll(getattr(own, part), 1, axis=1)}) for own in each]
    if each[0].boosted:
        assert BoostedLabels(wrong[0]).error > 100 * REPRODUCED
    else:
        assert type(model.labels)(wrong, model.labels.each[0].smallest).error > 100 * REPRODUCED


def test_leaves_need_only_the_models_text_as_older_versions_of_lightgbm_have_it(model, monkeypatch):
    monkeypatch.setattr(model.fitted.trees.all_labels.booster, "params", {})
    leaves, columns = leaves_in(model)[0], model._columns(model.fitted.nodes).astype(np.float32)
    found = Leaves.from_trees(model.fitted, columns)
    assert np.array_equal(found.bags, leaves.bags)
    assert (found.rate, found.penalty) == (leaves.rate, leaves.penalty)


def test_without_labels_logits_are_those_of_leaf_values_by_hand(model):
    alone, base = model.without_each_label(NODES), model.logits(NODES)
    sets = [[3], [0, 7, 21]]
    together = model.without_labels(NODES, [torch.tensor(each) for each in sets])
    for column in (0, 9):
        node = int(NODES[column])
        start, found = (
            by_hand(model, node),
            base[column].numpy() - (base[column, 0].item() if base.shape[1] == 2 else 0),
        )
        assert found == pytest.approx(start, abs=12 * REPRODUCED)
        for label in (3, 30):
            moved = by_hand(model, node, [label]) - start
            assert (alone[label, column] - base[column]).numpy() == pytest.approx(moved, abs=ROUNDING)
        for row, places in enumerate(sets):
            moved = by_hand(model, node, places) - start
            assert (together[row, column] - base[column]).numpy() == pytest.approx(moved, abs=ROUNDING)
    assert float((alone - base).abs().max()) > 0.01


def test_a_label_more_moves_its_own_leaves_as_by_hand(model):
    more, k = torch.tensor([45, 200]), model.fitted.n_classes
    found = model.with_each_label(NODES, more) - model.logits(NODES)
    for label in range(k):
        for row, place in ((0, 5), (1, 3)):
            node = int(NODES[place])
            expected = by_hand(model, node, (), (int(more[row]), label)) - by_hand(model, node)
            assert found[label, row, place].numpy() == pytest.approx(expected, abs=12 * REPRODUCED)
    own = torch.stack([found[c, ..., c] - found[c].mean(-1) for c in range(k)])
    assert bool((own >= -1e-12).all()), "a label draws to its class"
    assert float(found.abs().max()) > 0.01


def test_labels_of_boosting_weigh_alike_and_a_label_left_out_moves_the_share_it_starts_from():
    graph = rare_task()
    train = graph.split.train
    nodes = torch.cat([train[graph.y[train] == 0], train[graph.y[train] == 1][:6]])
    fitted = TreesTraining(rounds=12, patience=0, folds=2, seed=3).fit(graph, nodes)
    model, n_rest = ExplainableTrees(fitted, graph), nodes.numel() - 6
    leaves = model.labels.leaves
    assert model.labels.error < REPRODUCED
    assert (leaves.weights == 1).all()
    assert math.isclose(leaves.start(leaves.totals)[0], math.log(7 / (n_rest + 1)))
    label = nodes.numel() - 1  # a rare one
    change = (model.without_each_label(NODES)[label, 0] - model.logits(NODES)[0]).numpy()
    wanted = by_hand(model, int(NODES[0]), [label]) - by_hand(model, int(NODES[0]))
    assert change == pytest.approx(wanted, abs=ROUNDING)


@pytest.mark.parametrize(("k", "m", "counts"), [(2, 116, (6,)), (2, 60, (6,)), (3, 48, (8, 6))])
def test_rounds_that_found_nothing_to_split_drew_a_bag_and_left_no_tree(k, m, counts):
    draw = np.random.default_rng(m if k == 2 else 5)
    y = np.repeat(np.arange(k - 1, -1, -1), [*counts[::-1], m - sum(counts)])
    x = draw.normal((1.5 if k == 2 else 1.2) * y, 1)[:, None].astype(np.float32)
    graph = Graph.from_edges(draw.integers(0, m, (20, 2)), x, y, symmetrize=True, duplicates="drop", self_loops="drop")
    growing = TreesTraining(rounds=60, patience=0, folds=2, seed=3)
    model = ExplainableTrees(growing.fit(graph, torch.arange(m)), graph)
    leaves = model.labels.leaves
    assert leaves.n_trees < 60 * leaves.per_round or any(values.size == 1 for values in leaves.values)
    assert model.labels.error < REPRODUCED
    z = model.logits(torch.tensor([1]))[0].numpy()
    assert z - (z[0] if k == 2 else 0) == pytest.approx(by_hand(model, 1), abs=1e-4)
    assert not any("LightGBM" in note for note in model.label_notes)


@pytest.mark.parametrize("k", [2, 3])
def test_of_many_labels_the_strongest_are_exact_and_the_others_near(monkeypatch, k):
    model = grown(k, "boosting")
    exact, base = model.without_each_label(NODES), model.logits(NODES)
    monkeypatch.setattr(tree_labels, "REFITS", 0)
    monkeypatch.setattr(tree_labels, "LATER", 0)
    other = ExplainableTrees(model.fitted, model.graph)
    assert any("only the strongest" in note for note in other.label_notes)
    assert not any("only the strongest" in note for note in model.label_notes)
    found = other.without_each_label(NODES)
    change = (exact - base).numpy()
    strongest = np.argsort(-np.ptp(change, 2).max(1))[:5]
    np.testing.assert_array_less(np.abs((found - exact).numpy())[strongest], ROUNDING)
    assert np.corrcoef((found - base).numpy().ravel(), change.ravel())[0, 1] > 0.95


def test_bags_of_more_rows_than_a_block_have_a_generator_each():
    drawn = bags(2100, 3, seed=7, fraction=0.7)
    np.testing.assert_array_equal(drawn[:, :1024], bags(1024, 3, seed=7, fraction=0.7))
    np.testing.assert_array_equal(drawn[:, 1024:2048], bags(1024, 3, seed=8, fraction=0.7))
    assert bags(5, 2, seed=7, fraction=1.0).all()
