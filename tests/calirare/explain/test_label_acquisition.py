"""What labels would tell: bounds that a coherent belief keeps, and the choice of several together."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch

from calirare.explain.explainer import Explainer
from calirare.explain.label_acquisition import label_values, taken_together


def believing(p: list[float], after: list[list[list[float]]]) -> Explainer:
    """An explainer with these P(rare) of its nodes, and those with each label, [2][c][n]."""
    before, later = (torch.stack([1 - x, x], -1) for x in (torch.tensor(p).double(), torch.tensor(after).double()))
    model = SimpleNamespace(with_each_label=lambda nodes, more: later[:, more][:, :, nodes].log())
    context = SimpleNamespace(probabilities=lambda z: z.softmax(-1))
    return SimpleNamespace(model=model, context=context, lock=nullcontext(), probabilities=lambda nodes: before[nodes])


def test_of_a_coherent_belief_the_value_is_the_fall_of_its_expected_error():
    """P(rare) of node 1 becomes 0.5 or 0.1 by the label of node 0, whose own P is 0.25: 0.2 on average."""
    explainer = believing([0.25, 0.2], [[[0.1, 0.1], [0.2, 0.2]], [[0.9, 0.5], [0.3, 0.3]]])
    fall = label_values(explainer, torch.tensor([0]), torch.tensor([0, 1])).fall
    error = 0.2 * 0.8 - (0.25 * 0.5 * 0.5 + 0.75 * 0.1 * 0.9)
    assert fall[0, 1] == pytest.approx(error)
    assert fall[0, 0] == pytest.approx(0.25 * 0.75), "its own error is gone"


def test_a_shift_that_the_label_plays_no_part_in_is_worth_nothing():
    explainer = believing([0.5, 0.2], [[[0.5, 0.1]] * 2, [[0.5, 0.1]] * 2])
    assert label_values(explainer, torch.tensor([0]), torch.tensor([1])).fall.item() == 0


def test_no_node_is_expected_to_gain_more_than_it_has_to_lose():
    explainer = believing([0.5, 0.01], [[[0.5, 0.0001]] * 2, [[0.5, 0.99]] * 2])
    assert label_values(explainer, torch.tensor([0]), torch.tensor([1])).fall.item() <= 0.01 * 0.99 + 1e-12


def test_of_three_classes_the_value_is_that_of_each_class_against_the_others():
    """Node 1 follows node 0's label wholly; a third label that changes nothing leaves what the others are worth."""
    p = torch.tensor([[0.2, 0.3, 0.5]]).double()
    after = torch.eye(3).double().clamp(min=1e-12)[:, None, None]
    model = SimpleNamespace(with_each_label=lambda nodes, more: after.log())
    context = SimpleNamespace(probabilities=lambda z: z.softmax(-1))
    explainer = SimpleNamespace(model=model, context=context, lock=nullcontext(), probabilities=lambda nodes: p)
    found = label_values(explainer, torch.tensor([0]), torch.tensor([1]))
    assert found.fall.item() == pytest.approx(float((p * (1 - p)).sum()) / 2), "all of its error is gone"
    assert found.moved.item() == pytest.approx(1)
    model.with_each_label = lambda nodes, more: p.log().expand(3, 1, 1, 3)
    assert label_values(explainer, torch.tensor([0]), torch.tensor([1])).fall.item() == pytest.approx(0, abs=1e-12)


def test_labels_that_tell_the_same_do_not_count_twice():
    fall = torch.tensor([[3.0, 3.0, 0.0], [2.9, 2.9, 0.0], [0.0, 0.0, 1.0], [0.0, 3.5, 0.0]]).double()
    rows, more = taken_together(fall, 3)
    assert rows.tolist() == [0, 2, 3]
    assert more.tolist() == pytest.approx([6.0, 1.0, 0.5])
