"""Labels of networks: what is said of them is what retraining without them says, in every form."""

from __future__ import annotations

import pytest
import torch

from calirare.explain.network import network_voice
from calirare.explain.network_labels import TOLERANCE, DualLabels, IterativeLabels, PrimalLabels
from calirare.leave_one_out import ALO, leave_one_out
from calirare.training import minimise
from tests.calirare.leave_one_out.cases import SOME, agreement, retrained, trained
from tests.helpers.tolerance import assert_telling, assert_within

SETS = [torch.tensor([0, 3, 7]), torch.tensor([1]), torch.arange(5, 13)]
# Two systems solved in float64 instead of one, of condition about 1e4 here.
ROUNDING = 1e6 * torch.finfo(torch.float64).eps


@pytest.fixture(scope="module")
def voice():
    return network_voice(*trained())


@pytest.fixture(scope="module")
def everyone(voice):
    return torch.arange(voice.graph.n_nodes)


def test_effects_are_those_of_retraining_without_the_label(voice, everyone):
    change = voice.without_each_label(everyone) - voice.log_odds(everyone)
    assert agreement(change[SOME].T, retrained().change[:, 0])[0] >= 0.98
    p, after = torch.sigmoid(voice.log_odds(everyone)), torch.sigmoid(voice.without_each_label(everyone)[SOME])
    truth = torch.sigmoid(voice.log_odds(everyone)[:, None] + retrained().change[:, 0])
    assert agreement((p - after).T, p[:, None] - truth)[0] >= 0.98


def test_a_set_of_labels_is_left_out_as_one(voice, everyone):
    """Five labels together: far from the sum of each, near to retraining."""
    fitted, places = voice.fitted, torch.tensor([2, 8, 14, 21, 33])
    weights = fitted.sample_weights.clone()
    weights[places] = 0
    without = fitted.copy(sample_weights=weights)
    minimise(without, tolerance=1e-6, max_steps=200, warm=True)
    after = without.logits_of(voice.graph)
    truth = after[:, 1] - after[:, 0] - voice.log_odds(everyone)
    found = voice.without_labels(everyone, [places])[0] - voice.log_odds(everyone)
    assert agreement(found, truth)[0] >= 0.95


def test_a_set_of_one_is_the_label_alone_and_what_leave_one_out_says(voice, everyone):
    alone = voice.without_each_label(everyone)
    change = leave_one_out(voice.fitted, voice.graph, ALO()).change[:, 0].T
    bound = ROUNDING * (alone.abs() + 1)
    assert_telling(change, bound)
    assert_within(alone, voice.log_odds(everyone) + change, bound)
    assert_within(voice.without_labels(everyone, [torch.tensor([4])]), alone[4:5], bound[4:5])


def test_the_primal_form_says_the_same(voice, everyone):
    field = voice.fitted.evaluation_field(voice.graph, everyone)
    dual, primal = (kind(voice.fitted, voice.fitted.weight_decay) for kind in (DualLabels, PrimalLabels))
    pairs = (
        (dual.change(field), primal.change(field)),
        (dual.change_without(field, SETS), primal.change_without(field, SETS)),
    )
    for expected, found in pairs:
        assert_within(found, expected, ROUNDING * (expected.abs() + 1))


def test_conjugate_gradients_say_the_same_up_to_where_they_stop(voice, everyone):
    """Leverages, which are sampled, play no part in sets; those near one are sampled badly, and the ranking stands."""
    field = voice.fitted.evaluation_field(voice.graph, everyone)
    dual, steps = (kind(voice.fitted, voice.fitted.weight_decay) for kind in (DualLabels, IterativeLabels))
    assert agreement(steps.change_without(field, SETS), dual.change_without(field, SETS))[1] <= 10 * TOLERANCE
    assert agreement(steps.change(field), dual.change(field))[0] >= 0.95
