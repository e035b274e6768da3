"""The detector `hops` is a perceptron on hop columns, and every closed form of a graph convolution is right for it."""

from __future__ import annotations

import pytest
import torch

import calirare
from calirare import Settings
from calirare.leave_one_out import ALO, leave_one_out
from calirare.models import GCN, MlpFit, MlpTraining
from calirare_lab.leave_one_out import Retrain
from tests.helpers.tasks import rare_task
from tests.helpers.tolerance import assert_identical, assert_within, sum_bound


def fitted_and_graph(n_layers: int = 2):
    graph = rare_task()
    return MlpTraining(epochs=20, hidden=8, n_layers=n_layers).fit(graph, graph.split.train), graph


@pytest.mark.parametrize("n_layers", [1, 2])
def test_logits_are_those_of_a_perceptron_on_the_columns(n_layers):
    fitted, graph = fitted_and_graph(n_layers)
    fitted = fitted.as_dtype(graph, torch.float64)
    x = fitted.columns.of(graph).x.double()
    h, absolute = x, x.abs()
    for i, (weight, bias) in enumerate(fitted.model.layers()):
        h, absolute = h @ weight + bias, absolute @ weight.abs() + bias.abs()
        h = h.relu() if i + 1 < n_layers else h
    h, absolute = h.detach(), absolute.detach()
    assert_within(fitted.logits_of(graph), h, sum_bound(h, x.shape[1] + 9, absolute, out=torch.float64))


def test_no_label_of_a_neighbour_s_neighbour_is_needed_between_the_layers():
    fitted, graph = fitted_and_graph()
    assert torch.equal(fitted.field.rows[0], graph.split.train)
    assert fitted.model.hops == 0
    assert fitted.hops == 2


def test_leave_one_out_of_the_linear_model_is_retraining():
    graph = rare_task()
    detector = MlpTraining(n_layers=1, weight_decay=0.05)
    fitted, _ = detector.fit_to_convergence(graph, graph.split.train)
    closed = leave_one_out(fitted, graph, ALO()).own.flatten()
    truth = leave_one_out(fitted, graph, Retrain()).own.flatten()
    assert float(torch.corrcoef(torch.stack([closed, truth]))[0, 1]) > 0.995
    assert float((closed - truth).norm() / truth.norm()) < 0.1


def test_a_state_gives_the_same_network_again():
    fitted, graph = fitted_and_graph()
    again = MlpFit.from_state(*fitted.state())
    assert_identical(again.logits_of(graph), fitted.logits_of(graph))
    assert_identical(again.linearisation.logits, fitted.linearisation.logits)
    assert again.losses == fitted.losses


def test_a_network_without_propagation_still_wants_positive_sizes():
    with pytest.raises(ValueError, match="hops must be at least 0"):
        GCN(3, hops=-1)
    with pytest.raises(ValueError, match="hops must be at least 0"):
        MlpTraining(hops=-1)


@pytest.mark.slow
def test_hops_that_are_asked_for_are_taken():
    assert calirare.train(rare_task(), model="hops", hops=1, epochs=3, folds=0).fit.columns.hops == 1
    assert Settings.of(model="gcn").training.detector(0).hops == 1
