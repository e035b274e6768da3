"""What labels would teach: bounds that a coherent belief keeps, and the choice of several together."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch

from calirare.explain.explainer import Explainer
from calirare.explain.label_acquisition import label_values, taken_together


def told(p: list[float], after: list[list[list[float]]]) -> Explainer:
    """An explainer that says these P(rare) of its nodes, and those with each label, [2][c][n]."""
    before, later = torch.tensor(p).double(), torch.tensor(after).double()
    model = SimpleNamespace(with_each_label=lambda nodes, more: torch.logit(later[:, more][:, :, nodes]))
    context = SimpleNamespace(mapping=None)
    return SimpleNamespace(model=model, context=context, lock=nullcontext(), p_rare=lambda nodes: before[nodes])


def test_of_a_coherent_belief_the_value_is_the_fall_of_its_expected_error():
    """P(rare) of node 1 becomes 0.5 or 0.1 by the label of node 0, whose own P is 0.25: 0.2 on average."""
    explainer = told([0.25, 0.2], [[[0.1, 0.1], [0.2, 0.2]], [[0.9, 0.5], [0.3, 0.3]]])
    fall = label_values(explainer, torch.tensor([0]), torch.tensor([0, 1])).fall
    error = 0.2 * 0.8 - (0.25 * 0.5 * 0.5 + 0.75 * 0.1 * 0.9)
    assert fall[0, 1] == pytest.approx(error)
    assert fall[0, 0] == pytest.approx(0.25 * 0.75), "its own error is gone"


def test_a_shift_that_the_label_plays_no_part_in_is_worth_nothing():
    explainer = told([0.5, 0.2], [[[0.5, 0.1]] * 2, [[0.5, 0.1]] * 2])
    assert label_values(explainer, torch.tensor([0]), torch.tensor([1])).fall.item() == 0


def test_no_node_is_expected_to_gain_more_than_it_has_to_lose():
    explainer = told([0.5, 0.01], [[[0.5, 0.0001]] * 2, [[0.5, 0.99]] * 2])
    assert label_values(explainer, torch.tensor([0]), torch.tensor([1])).fall.item() <= 0.01 * 0.99 + 1e-12


def test_what_has_been_taught_is_not_asked_again():
    fall = torch.tensor([[3.0, 3.0, 0.0], [2.9, 2.9, 0.0], [0.0, 0.0, 1.0], [0.0, 3.5, 0.0]]).double()
    rows, more = taken_together(fall, 3)
    assert rows.tolist() == [0, 2, 3]
    assert more.tolist() == pytest.approx([6.0, 1.0, 0.5])
