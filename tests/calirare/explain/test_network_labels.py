"""Labels of networks: what is said of them is what retraining without them says, in every form."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from calirare.explain import network_labels
from calirare.explain.network import ExplainableNetwork
from calirare.explain.network_labels import (
    TOLERANCE,
    DualLabels,
    IterativeLabels,
    PrimalLabels,
    jacobian_at,
    pulled,
    pulled_together,
)
from calirare.leave_one_out import ALO, leave_one_out
from calirare.models import MlpTraining
from calirare.models.gcn_fit import of_network
from calirare.training import minimise
from tests.calirare.leave_one_out.cases import SOME, agreement, retrained, trained
from tests.helpers.tasks import rare_task
from tests.helpers.tolerance import assert_identical, assert_telling, assert_within

SETS = [torch.tensor([0, 3, 7]), torch.tensor([1]), torch.arange(5, 13)]
# Two systems solved in float64 instead of one, of condition about 1e4 here.
ROUNDING = 1e6 * torch.finfo(torch.float64).eps


@pytest.fixture(scope="module")
def model():
    return ExplainableNetwork(*trained())


@pytest.fixture(scope="module")
def everyone(model):
    return torch.arange(model.graph.n_nodes)


@pytest.mark.slow
def test_effects_are_those_of_retraining_without_the_label(model, everyone):
    change = model.without_each_label(everyone) - model.log_odds(everyone)
    assert agreement(change[SOME].T, retrained().change[:, 0])[0] >= 0.98
    p, after = torch.sigmoid(model.log_odds(everyone)), torch.sigmoid(model.without_each_label(everyone)[SOME])
    truth = torch.sigmoid(model.log_odds(everyone)[:, None] + retrained().change[:, 0])
    assert agreement((p - after).T, p[:, None] - truth)[0] >= 0.98


@pytest.mark.slow
def test_a_set_of_labels_is_left_out_as_one(model, everyone):
    """Five labels together: far from the sum of each, near to retraining."""
    fitted, places = model.fitted, torch.tensor([2, 8, 14, 21, 33])
    weights = fitted.sample_weights.clone()
    weights[places] = 0
    without = fitted.copy(sample_weights=weights)
    minimise(without, tolerance=1e-6, max_steps=200, warm=True)
    after = without.logits_of(model.graph)
    truth = after[:, 1] - after[:, 0] - model.log_odds(everyone)
    found = model.without_labels(everyone, [places])[0] - model.log_odds(everyone)
    assert agreement(found, truth)[0] >= 0.95


def test_a_set_of_one_is_the_label_alone_and_what_leave_one_out_says(model, everyone):
    alone = model.without_each_label(everyone)
    change = leave_one_out(model.fitted, model.graph, ALO()).change[:, 0].T
    bound = ROUNDING * (alone.abs() + 1)
    assert_telling(change, bound)
    assert_within(alone, model.log_odds(everyone) + change, bound)
    assert_within(model.without_labels(everyone, [torch.tensor([4])]), alone[4:5], bound[4:5])
    none = torch.tensor([], dtype=torch.int64)
    both = model.without_labels(everyone, [none, torch.tensor([4])])
    assert_identical(both[0], model.log_odds(everyone))
    assert_within(both[1:], alone[4:5], bound[4:5])
    assert model.without_labels(everyone, []).shape == (0, everyone.numel())


def test_the_primal_form_says_the_same(model, everyone):
    field = model.fitted.evaluation_field(model.graph, everyone)
    dual, primal = (kind(model.fitted, model.fitted.weight_decay) for kind in (DualLabels, PrimalLabels))
    pairs = (
        (dual.change(field), primal.change(field)),
        (dual.change_without(field, SETS), primal.change_without(field, SETS)),
    )
    for expected, found in pairs:
        assert_within(found, expected, ROUNDING * (expected.abs() + 1))


@pytest.mark.slow
def test_conjugate_gradients_say_the_same_up_to_where_they_stop(model, everyone):
    """Leverages, which are sampled, play no part in sets; those near one are sampled badly, and the ranking stands."""
    field = model.fitted.evaluation_field(model.graph, everyone)
    dual, steps = (kind(model.fitted, model.fitted.weight_decay) for kind in (DualLabels, IterativeLabels))
    assert agreement(steps.change_without(field, SETS), dual.change_without(field, SETS))[1] <= 10 * TOLERANCE
    assert agreement(steps.change(field), dual.change(field))[0] >= 0.95


MORE = torch.tensor([25, 103])  # nodes without a label


@pytest.mark.slow
def test_a_label_more_is_what_training_with_it_says(model, everyone):
    """Each node of `MORE` labelled as rest and as rare, of the weight that its class has, and trained on to the end."""
    fitted, graph = model.fitted, model.graph
    found = model.with_each_label(everyone, MORE) - model.log_odds(everyone)
    truth, before = torch.empty_like(found), model.log_odds(everyone)
    m = fitted.nodes.numel()
    for label in (0, 1):
        worth = fitted.sample_weights[fitted.targets == label].mean()
        for row, node in enumerate(MORE):
            y = graph.y.clone()
            y[node] = label
            nodes = torch.cat([fitted.nodes, node[None]])
            weights = torch.cat([fitted.sample_weights, worth[None]]) * ((m + 1) / m)
            more = of_network(fitted.copy().model, replace(graph, y=y), nodes, fitted.weight_decay, weights)
            minimise(more, tolerance=1e-4, max_steps=60, warm=True)
            after = more.logits_of(graph)
            truth[label, row] = after[:, 1] - after[:, 0] - before
    assert agreement(found.flatten(0, 1).T, truth.flatten(0, 1).T)[0] >= 0.9
    own = found[:, torch.arange(len(MORE)), MORE]
    assert bool((own[0] < 0).all() and (own[1] > 0).all()), "a label draws its own node to its class"


def test_a_label_more_is_the_same_in_every_form(model, everyone):
    fields = [model.fitted.evaluation_field(model.graph, some) for some in (everyone, MORE)]
    z = model.log_odds(MORE)
    dual, primal, steps = (
        kind(model.fitted, model.fitted.weight_decay).change_with(*fields, z)
        for kind in (DualLabels, PrimalLabels, IterativeLabels)
    )
    for found in (primal, steps):
        assert agreement(found.flatten(0, 1), dual.flatten(0, 1))[1] <= 10 * TOLERANCE


@pytest.mark.parametrize("nodes_at_once", [1, 7])
@pytest.mark.parametrize("kind", [DualLabels, PrimalLabels])
def test_labels_more_are_the_same_a_few_nodes_at_a_time(monkeypatch, model, everyone, kind, nodes_at_once):
    """In the order that nodes are asked for, whichever it is."""
    fields = [
        model.fitted.evaluation_field(model.graph, some) for some in (everyone[::6].flip(0), torch.arange(90, 100))
    ]
    labels, z = kind(model.fitted, model.fitted.weight_decay), model.log_odds(torch.arange(90, 100))
    y = torch.arange(10) % 2
    known, together = labels.change_with(*fields, z), labels.change_with_all(*fields, z, y)
    made = []
    monkeypatch.setattr(network_labels, "PASS", nodes_at_once * labels.linearised.n_parameters)
    monkeypatch.setattr(
        network_labels,
        "jacobian_at",
        lambda fitted, field: made.append(field.nodes.numel()) or jacobian_at(fitted, field),
    )
    for found, wanted in (
        (labels.change_with(*fields, z), known),
        (labels.change_with_all(*fields, z, y), together),
    ):
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5 * float(wanted.abs().max()))
    assert max(made) == nodes_at_once


@pytest.mark.parametrize("nodes_at_once", [7, 1000])
def test_labels_more_are_the_same_by_kernels_and_by_jacobians(monkeypatch, nodes_at_once):
    """A perceptron on columns, whose nodes read nobody else: kernels cost the less."""
    task = rare_task()
    model = ExplainableNetwork(MlpTraining(epochs=15).fit(task, task.split.train), task)
    nodes, more = torch.arange(task.n_nodes).flip(0), torch.arange(20)
    fields = [model.fitted.evaluation_field(model.graph, some) for some in (nodes, more)]
    labels, z, made = DualLabels(model.fitted, model.fitted.weight_decay), model.log_odds(more), []
    with monkeypatch.context() as patched:
        patched.setattr(network_labels, "closed_form", lambda linearised: False)
        known = labels.change_with(*fields, z)
    monkeypatch.setattr(network_labels, "PASS", nodes_at_once * labels.linearised.n_parameters)
    monkeypatch.setattr(network_labels, "jacobian_at", lambda *_: made.append(1))
    found = labels.change_with(*fields, z)
    torch.testing.assert_close(found, known, rtol=1e-4, atol=1e-5 * float(known.abs().max()))
    assert not made


@pytest.mark.parametrize("label", [0, 1])
def test_a_label_comes_to_rest_where_its_own_gradient_says(label):
    z, k, a = (
        torch.tensor([-9.0, -0.5, 0.0, 7.0, 30.0]).double(),
        torch.tensor([400.0, 3.0, 0.0, 80.0, 2.0]).double(),
        0.7,
    )
    pull = pulled(z, k, a, label)
    assert_within(a * (torch.sigmoid(z - k * pull) - label), pull, ROUNDING * (k + 1))
    assert pull[2] == pytest.approx(a * (0.5 - label)), "without leverage the gradient where it stands"


@pytest.mark.parametrize("label", [0, 1])
@pytest.mark.parametrize("leverage", [8474.9088, 1e7])
def test_a_label_far_from_all_others_comes_to_rest_too(label, leverage):
    """A node that is like no label has k a in the thousands, where steps of Newton's went to and fro without an end."""
    z, k = torch.tensor([-2.8659, -30.0, 4.0]).double(), torch.full((3,), leverage).double()
    pull = pulled(z, k, 1.0, label)
    rest = z - k * pull
    assert_within(torch.sigmoid(rest) - label, pull, 1e-6)
    assert bool((rest.abs() < 31).all()), "it moves no further than its own loss asks for"


def test_labels_that_come_together_come_to_rest_together():
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(12, 5, generator=generator).double()
    leverages = 300 * rows @ rows.T
    z, y = torch.randn(12, generator=generator).double() - 2, torch.randint(2, (12,), generator=generator)
    a = torch.rand(12, generator=generator).double() + 0.1
    pull = pulled_together(z, leverages, a, y)
    assert_within(a * (torch.sigmoid(z - leverages @ pull) - y), pull, 1e-7)
    one = pulled_together(z[:1], leverages[:1, :1], a[:1], y[:1])
    twice = pulled_together(z[[0, 0]], leverages[[0, 0]][:, [0, 0]], a[[0, 0]], y[[0, 0]])
    assert float(twice.sum().abs()) < 1.3 * float(one.abs()), "the same label twice does not teach twice as much"
    assert_within(one, pulled(z[:1], leverages[0, :1], float(a[0]), int(y[0])), 1e-9)


def test_labels_together_are_the_same_in_every_form_and_one_is_itself(model, everyone):
    y = torch.tensor([1, 0])
    fields = [model.fitted.evaluation_field(model.graph, some) for some in (everyone, MORE)]
    dual, primal, steps = (
        kind(model.fitted, model.fitted.weight_decay).change_with_all(*fields, model.log_odds(MORE), y)
        for kind in (DualLabels, PrimalLabels, IterativeLabels)
    )
    for found in (primal, steps):
        assert agreement(found[None], dual[None])[1] <= 10 * TOLERANCE
    alone = model.with_labels(everyone, MORE[:1], y[:1])
    assert_within(alone, model.with_each_label(everyone, MORE[:1])[1, 0], 1e-7)
