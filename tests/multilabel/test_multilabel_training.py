from __future__ import annotations

import copy
import dataclasses

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from scipy.special import expit

from calirare._util.errors import InputError
from calirare_ext import gcn_norm
from calirare_lab.multilabel.graphs import simulated_graph
from calirare_multilabel import accuracy_measures, canonical_calibration_error
from calirare_multilabel.drawing import DrawnFrom
from calirare_multilabel.networks import GraphConvolution, build_network
from calirare_multilabel.training import TrainOptions, choose_beta, fit_temperature, make_loss, train_network
from tests.helpers.multilabel import small_data

QUICK = TrainOptions(hidden=8, learning_rate=0.02, max_epochs=12, patience=4, batch_size=48)


@pytest.mark.parametrize("loss", ["bce", "focal", "cmlcc"])
def test_each_loss_learns_and_keeps_the_best_epoch(loss):
    data = small_data()
    options = dataclasses.replace(QUICK, loss=loss, beta=0.3)
    model = train_network(data, options)
    rows, labels = data.part("val")
    assert model.history[model.best_epoch - 1] == min(model.history)
    value = float(make_loss(options)(model.network(data.x, rows), labels.float()).detach())
    assert value == pytest.approx(min(model.history), rel=1e-6, abs=0)
    test, truth = data.part("test")
    untrained = build_network(data, hidden=8, seed=0)(data.x, test).detach().sigmoid()
    assert accuracy_measures(truth, model.scores(data, test))["nll"] < 0.9 * accuracy_measures(truth, untrained)["nll"]


def test_training_is_deterministic_in_the_seed_and_leaves_the_global_generator_alone():
    data = small_data()
    options = dataclasses.replace(QUICK, loss="cmlcc", dropout=0.3, max_epochs=3)
    state = torch.random.get_rng_state()
    one, two = (train_network(data, options) for _ in range(2))
    other = train_network(data, dataclasses.replace(options, seed=1))
    assert torch.equal(torch.random.get_rng_state(), state)
    assert one.history == two.history
    assert one.history != other.history


@pytest.mark.slow
def test_test_rows_play_no_part():
    data = small_data()
    changed = copy.deepcopy(data)
    changed.x[data.split.test] = 1e3
    changed.y[data.split.test] = True
    options = dataclasses.replace(QUICK, max_epochs=4)
    one, two = (choose_beta(d, options, betas=(0.3, 1.0)) for d in (data, changed))
    assert one.table == two.table
    assert one.model.history == two.model.history


def test_patience_stops_the_training():
    noise = small_data()
    noise.y[:] = torch.rand(noise.y.shape, generator=torch.Generator().manual_seed(0)) < 0.5
    model = train_network(noise, dataclasses.replace(QUICK, max_epochs=100, patience=3, learning_rate=0.05))
    assert len(model.history) == model.best_epoch + 3 < 100


@pytest.mark.slow
def test_beta_is_the_best_within_the_slack():
    data = small_data()
    rows, labels = data.part("val")
    base = train_network(data, QUICK)
    choice = choose_beta(data, QUICK, betas=(0.1, 30.0), baseline=base)
    for beta in (0.1, 30.0):
        model = train_network(data, dataclasses.replace(QUICK, loss="cmlcc", beta=beta))
        scores = model.scores(data, rows)
        error = canonical_calibration_error(labels, scores).mean
        assert choice.table[beta] == (error, accuracy_measures(labels, scores)["hamming_loss"])
    limit = 1.01 * choice.table[0.0][1]
    allowed = {beta: error for beta, (error, wrong) in choice.table.items() if beta and wrong <= limit}
    assert choice.within_slack == bool(allowed)
    assert choice.beta == (min(allowed, key=allowed.get) if allowed else 0.1)
    assert choice.model.options.beta == choice.beta


@pytest.mark.parametrize("true", [0.3, 1.0, 4.0])
def test_temperature_minimises_the_cross_entropy(true):
    random = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(500, 3, dtype=torch.float64, generator=random)
    labels = torch.rand(500, 3, dtype=torch.float64, generator=random) < (logits / true).sigmoid()
    found = fit_temperature(logits, labels)

    def risk(t):
        chance = np.where(labels.numpy(), expit(logits.numpy() / t), expit(-logits.numpy() / t))
        return -np.log(chance).mean()

    expected = minimize_scalar(risk, bounds=(0.05, 20), method="bounded", options={"xatol": 1e-10})
    assert risk(found) <= expected.fun + 1e-9
    assert 0.7 * true < found < 1.4 * true


def test_a_graph_network_is_two_convolutions():
    data = simulated_graph(120, n_labels=3, share=0.2, n_features=6)
    network = build_network(data, hidden=4, seed=3)
    assert isinstance(network, GraphConvolution)
    a = gcn_norm(data.adjacency).to_dense().double()
    inner, outer = network.inner, network.outer
    hidden = (a @ data.x.double() @ inner.weight.T.double() + inner.bias.double()).relu()
    expected = a @ hidden @ outer.weight.T.double() + outer.bias.double()
    rows = torch.tensor([5, 0, 119])
    assert float((network(data.x, rows) - expected[rows]).detach().abs().max()) < 1e-5
    other = data.x + 1  # new features are propagated anew
    assert not torch.equal(network(other, rows), network(data.x, rows))


@pytest.mark.slow
def test_a_graph_is_learned_better_with_its_edges():
    data = simulated_graph(1500).standardised()
    rows, labels = data.part("test")
    options = TrainOptions(hidden=32, learning_rate=0.01, max_epochs=60, loss="cmlcc", beta=0.1)
    scores = {
        which: train_network(dataclasses.replace(data, adjacency=adjacency), options).scores(data, rows)
        for which, adjacency in (("graph", data.adjacency), ("table", None))
    }
    nll = {which: accuracy_measures(labels, f)["nll"] for which, f in scores.items()}
    rate = data.y[data.split.train].double().mean(0).expand(len(rows), -1)
    assert nll["graph"] < 0.97 * nll["table"] < accuracy_measures(labels, rate)["nll"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": "hinge"}, "loss must be one of bce, focal, cmlcc"),
        ({"beta": -1.0}, "beta must be at least 0"),
        ({"batch_size": 8}, "batch_size must be at least 32"),
        ({"max_epochs": 0}, "max_epochs must be at least 1"),
        ({"dropout": 1.0}, r"dropout in \[0, 1\)"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(InputError, match=message):
        TrainOptions(**options)


def test_a_diverging_training_is_named():
    data = small_data()
    data.x[data.split.val[0], 0] = 3e38
    with pytest.raises(InputError, match="validation loss must be finite"):
        train_network(data, dataclasses.replace(QUICK, learning_rate=10.0))


def test_weights_are_drawn_as_torchs_own_generator_would_and_leave_it_alone():
    torch.manual_seed(3)
    want = [torch.nn.Linear(4, 5).weight, torch.nn.Embedding(3, 2).weight, torch.empty(6).uniform_()]
    state = torch.get_rng_state()
    with DrawnFrom(torch.Generator().manual_seed(3)):
        got = [torch.nn.Linear(4, 5).weight, torch.nn.Embedding(3, 2).weight, torch.empty(6).uniform_()]
        assert torch.nn.Linear(2, 2, device="meta").weight.is_meta, "elsewhere nothing is drawn from it"
    assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))
    assert torch.equal(torch.get_rng_state(), state)
