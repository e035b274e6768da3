"""Labels of networks: effects are those of retraining without or with them, in every form, for two classes and more."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from calirare.explain import network_labels
from calirare.explain.explainable_model import probabilities
from calirare.explain.explainer import Explainer
from calirare.explain.label_acquisition import label_values, taken_together
from calirare.explain.network import ExplainableNetwork
from calirare.explain.network_labels import TOLERANCE, DualLabels, IterativeLabels, PrimalLabels, jacobian_at
from calirare.explain.proximal_label_update import resting_gradients
from calirare.leave_one_out import ALO, leave_one_out
from calirare.models import minimise
from calirare.models.gcn_fit import of_network
from tests.calirare.explain.cases import calibrator
from tests.calirare.leave_one_out.cases import SOME, agreement, retrained, trained
from tests.helpers.tolerance import assert_telling, assert_within

SETS = [torch.tensor([0, 3, 7]), torch.tensor([1]), torch.arange(5, 13)]
# Two systems solved in float64 instead of one, of condition about 1e4 here.
ROUNDING = 1e6 * torch.finfo(torch.float64).eps
MORE = torch.tensor([25, 103])  # nodes without a label


@pytest.fixture(scope="module", params=[2, 3])
def model(request):
    return ExplainableNetwork(*trained(request.param))


@pytest.fixture(scope="module")
def everyone(model):
    return torch.arange(model.graph.n_nodes)


def fixed(logits: torch.Tensor) -> torch.Tensor:
    """Logits less that of class 0."""
    return logits.double() - logits.double()[..., :1]


def forms(model: ExplainableNetwork) -> list:
    return [kind(model.fitted, model.fitted.weight_decay) for kind in (DualLabels, PrimalLabels, IterativeLabels)]


@pytest.mark.slow
@pytest.mark.parametrize(("k", "layers", "least"), [(2, 2, 0.98), (3, 1, 0.99), (3, 2, 0.95)])
def test_effects_on_p_are_those_of_retraining_without_the_label(k, layers, least):
    fitted, graph = trained(k, layers)
    model, nodes = ExplainableNetwork(fitted, graph), torch.arange(graph.n_nodes)
    base = model.logits(nodes)
    moved = torch.nn.functional.pad(retrained(k, layers).change.double(), (0, 0, 1, 0)).permute(2, 0, 1)  # [s, n, k]
    for mapping in (None, calibrator(k)):
        p, after = probabilities(base, mapping), probabilities(model.without_each_label(nodes)[SOME], mapping)
        truth = probabilities(base + moved, mapping)
        for of in range(k):
            assert agreement((p - after)[..., of], (p - truth)[..., of])[0] >= least


@pytest.mark.slow
def test_a_set_of_labels_is_left_out_as_one(model, everyone):
    """Five labels together: far from the sum of each, near to retraining."""
    fitted, places = model.fitted, torch.tensor([2, 8, 14, 21, 33])
    weights = fitted.sample_weights.clone()
    weights[places] = 0
    without = fitted.copy(sample_weights=weights)
    minimise(without, tolerance=1e-6, max_steps=200, warm=True)
    truth = fixed(without.logits_of(model.graph)) - fixed(model.logits(everyone))
    found = fixed(model.without_labels(everyone, [places])[0]) - fixed(model.logits(everyone))
    assert agreement(found.flatten(), truth.flatten())[0] >= 0.93


def test_a_label_is_what_leave_one_out_gives_and_a_set_of_one(model, everyone):
    alone, base = model.without_each_label(everyone), model.logits(everyone)
    change = leave_one_out(model.fitted, model.graph, ALO()).change  # [n, k - 1, m]
    wanted = base + torch.nn.functional.pad(change.double(), (0, 0, 1, 0)).permute(2, 0, 1)
    bound = ROUNDING * (alone.abs() + 1)
    assert_telling((wanted - base)[..., 1:], bound[..., 1:])
    assert_within(alone, wanted, bound)
    sets = model.without_labels(everyone, [torch.tensor([], dtype=torch.int64), torch.tensor([4])])
    assert_within(sets[0], base, bound[0])
    assert_within(sets[1], alone[4], bound[4])
    assert model.without_labels(everyone, []).shape == (0, *base.shape)


def test_labels_are_left_out_alike_in_every_form(model, everyone):
    """Leverages, which conjugate gradients sample, play no part in sets; those near one are sampled badly."""
    field = model.fitted.evaluation_field(model.graph, everyone)
    dual, primal, steps = forms(model)
    wanted, every = dual.change_without(field, SETS), dual.change(field)
    assert_within(primal.change_without(field, SETS), wanted, ROUNDING * (wanted.abs() + 1))
    assert_within(primal.change(field), every, ROUNDING * (every.abs() + 1))
    assert agreement(steps.change_without(field, SETS), wanted)[1] <= 10 * TOLERANCE
    assert agreement(steps.change(field), every)[0] >= 0.9


@pytest.mark.slow
def test_a_label_more_is_what_training_with_it_gives(model, everyone):
    """Each node of `MORE` with each label, of the weight that its class has, and trained on to the end."""
    fitted, graph, base = model.fitted, model.graph, fixed(model.logits(everyone))
    found = fixed(model.with_each_label(everyone, MORE)) - base
    truth, m = torch.empty_like(found), fitted.nodes.numel()
    for label in range(fitted.n_classes):
        worth = fitted.sample_weights[fitted.targets == label].mean()
        for row, node in enumerate(MORE):
            y = graph.y.clone()
            y[node] = label
            nodes = torch.cat([fitted.nodes, node[None]])
            weights = torch.cat([fitted.sample_weights, worth[None]]) * ((m + 1) / m)
            more = of_network(fitted.copy().model, replace(graph, y=y), nodes, fitted.weight_decay, weights)
            minimise(more, tolerance=1e-4, max_steps=60, warm=True)
            truth[label, row] = fixed(more.logits_of(graph)) - base
    assert agreement(found.flatten(), truth.flatten())[0] >= 0.9
    own = found[:, torch.arange(len(MORE)), MORE]
    drawn = torch.stack([own[c, :, c] - own[c].mean(-1) for c in range(fitted.n_classes)])
    assert bool((drawn > 0).all()), "a label draws its own node to its class"


def test_labels_more_are_the_same_in_every_form(model, everyone):
    fields = [model.fitted.evaluation_field(model.graph, some) for some in (everyone, MORE)]
    dual, *others = [labels.change_with(*fields, model.logits(MORE)) for labels in forms(model)]
    for found in others:
        assert agreement(found[None], dual[None])[1] <= 10 * TOLERANCE


@pytest.mark.slow
@pytest.mark.parametrize("nodes_at_once", [1, 7])
@pytest.mark.parametrize("kind", [DualLabels, PrimalLabels])
def test_labels_more_are_the_same_a_few_nodes_at_a_time(monkeypatch, model, everyone, kind, nodes_at_once):
    """In the order of the nodes, whichever it is."""
    some = torch.arange(90, 100)
    fields = [model.fitted.evaluation_field(model.graph, nodes) for nodes in (everyone[::6].flip(0), some)]
    labels, z = kind(model.fitted, model.fitted.weight_decay), model.logits(some)
    known = labels.change_with(*fields, z)
    made, numbers = [], labels.linearised.n_parameters * labels.error.shape[1]
    monkeypatch.setattr(network_labels, "PASS", nodes_at_once * numbers)
    monkeypatch.setattr(
        network_labels,
        "jacobian_at",
        lambda fitted, field: made.append(field.nodes.numel()) or jacobian_at(fitted, field),
    )
    found = labels.change_with(*fields, z)
    torch.testing.assert_close(found, known, rtol=1e-5, atol=1e-5 * float(known.abs().max()))
    assert max(made) == nodes_at_once


@pytest.mark.parametrize("label", [0, 1])
@pytest.mark.parametrize("leverage", [0.0, 3.0, 8474.9088, 1e7])
@pytest.mark.parametrize("width", [1, 2])
def test_a_label_rests_where_its_own_gradient_is(label, leverage, width):
    """A node that is like no label has k a in the thousands, where full steps of Newton's go to and fro."""
    z = torch.tensor([-30.0, -2.8659, -0.5, 0.0, 4.0, 30.0]).double()[:, None].repeat(1, width)
    y, k = torch.full((6,), label), leverage * torch.eye(width).double().repeat(6, 1, 1)
    pull = resting_gradients(z, k, torch.ones(6).double(), y)
    moved = z - leverage * pull
    p = torch.nn.functional.pad(moved, (1, 0)).softmax(-1)
    assert_within((p - torch.nn.functional.one_hot(y, width + 1))[:, 1:], pull, 1e-6)
    assert bool((moved.abs() < 31 * width).all()), "it moves no further than its own loss needs"


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
