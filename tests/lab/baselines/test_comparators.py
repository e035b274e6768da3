"""Each comparator calibrator against scikit-learn, scipy or a case worked by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.isotonic import IsotonicRegression
from torch.nn import functional as F

from calirare.calibration import target_weights
from calirare.calibration.affine import SCALE_PRIOR
from calirare.datasets import synthetic_rare
from calirare.graph.convolution import propagation
from calirare.graph.graph import Graph
from calirare.models import GcnTraining, fit
from calirare_lab.baselines import GATS, CaGCN
from calirare_lab.baselines.comparators import EnsembleTemperature, LinearScaling, post_hoc
from calirare_lab.baselines.node_temperature import NodeTemperature
from tests.helpers.graphs import small_graph
from tests.helpers.logits import problem

TARGETS = pytest.mark.parametrize("target", ["population", "balanced"])


@TARGETS
@pytest.mark.parametrize(("name", "k"), [("vector", 2), ("matrix", 2), ("vector", 5), ("matrix", 5)])
def test_linear_scaling_is_where_its_loss_is_flat(name, k, target):
    z, y = problem(k=k)
    fitted = post_hoc(name, target).fit(z, y)
    assert isinstance(fitted, LinearScaling)
    weight, bias = fitted.weight_.clone().requires_grad_(), fitted.bias_.clone().requires_grad_()
    losses = torch.nn.functional.cross_entropy(z @ weight.T + bias, y, reduction="none")
    away = (weight - torch.eye(k)).square().sum() + bias.square().sum() / len(z)
    slopes = torch.autograd.grad((target_weights(y, k, target) * losses).mean() + SCALE_PRIOR * away, [weight, bias])
    of_weight = slopes[0].diagonal() if name == "vector" else slopes[0]
    assert float(of_weight.abs().max()) < 1e-8
    assert float(slopes[1].abs().max()) < 1e-8
    assert name == "matrix" or float((fitted.weight_ - torch.diag(fitted.weight_.diagonal())).abs().max()) == 0


@TARGETS
def test_isotonic_is_scikit_learns_also_beyond_the_fitted_range(target):
    z, y = problem()
    weights = target_weights(y, 2, target).numpy()
    p = torch.softmax(z, 1)[:, 1].numpy()
    exact = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip").fit(p, y.numpy(), weights)
    new = torch.cat([z, torch.tensor([[0.0, 40.0], [40.0, 0.0]]).double()])
    found = post_hoc("isotonic", target).fit(z, y).transform(new)[:, 1].numpy()
    assert np.abs(found - exact.predict(torch.softmax(new, 1)[:, 1].numpy())).max() < 1e-9


def test_histogram_binning_by_hand():
    odds = torch.arange(20).double()
    z, y = torch.stack([torch.zeros(20).double(), odds], 1), torch.tensor([0, 1] * 3 + [1] * 14)
    new = torch.tensor([[0.0, -9.0], [0.0, 5.0], [0.0, 5.5], [0.0, 99.0]]).double()  # two nodes to a bin
    assert post_hoc("histogram").fit(z, y).transform(new)[:, 1].tolist() == [0.5, 0.5, 1.0, 1.0]
    weights = target_weights(y, 2, "balanced")
    balanced = post_hoc("histogram", "balanced").fit(z, y).transform(new)[0, 1]
    assert float(balanced) == pytest.approx(float(weights[1] / (weights[0] + weights[1])), rel=1e-12)
    one_bin = post_hoc("histogram").fit(torch.zeros(20, 2).double(), y)
    assert float(one_bin.transform(new)[0, 1]) == pytest.approx(17 / 20)


@TARGETS
def test_beta_calibration_minimises_its_loss(target):
    z, y = problem()
    p = torch.softmax(z, 1)[:, 1].numpy()
    weights = target_weights(y, 2, target).numpy()
    features = np.stack([np.log(p), -np.log1p(-p), np.ones_like(p)], 1)

    def loss(theta: np.ndarray) -> float:
        a_b_c = np.array([theta[0] ** 2, theta[1] ** 2, theta[2]])  # the bounds by substitution
        away = a_b_c - np.array([1, 1, 0])
        margin = (1 - 2 * y.numpy()) * (features @ a_b_c)
        prior = away[:2] @ away[:2] + away[2] ** 2 / len(p)
        return float(np.mean(weights * np.logaddexp(0, margin)) + SCALE_PRIOR * prior)

    exact = minimize(loss, np.array([1.0, 1.0, 0.0]), method="BFGS", options={"gtol": 1e-9}).x
    expected = expit(features @ np.array([exact[0] ** 2, exact[1] ** 2, exact[2]]))
    assert np.abs(post_hoc("beta", target).fit(z, y).transform(z)[:, 1].numpy() - expected).max() < 1e-5
    turned = post_hoc("beta", target).fit(-z, y).transform(-z)[:, 1]
    assert bool((turned[z[:, 1] > z[:, 0]].max() <= turned.max()).item())


def test_ensemble_temperature_scaling_finds_the_best_mixture():
    z, y = problem(k=3)
    fitted = post_hoc("ets").fit(z, y)
    assert isinstance(fitted, EnsembleTemperature)
    parts = torch.stack([fitted.tempered_.transform(z), torch.softmax(z, 1), torch.full_like(z, 1 / 3)])
    at = parts[:, torch.arange(len(y)), y].numpy()

    def loss(mixture: np.ndarray) -> float:
        return float(-np.log(mixture @ at).mean())

    constraint = {"type": "eq", "fun": lambda w: w.sum() - 1}
    exact = minimize(loss, np.full(3, 1 / 3), method="SLSQP", bounds=[(0, 1)] * 3, constraints=constraint).x
    assert loss(fitted.mixture_.numpy()) <= loss(exact) + 1e-7
    assert loss(fitted.mixture_.numpy()) < loss(np.full(3, 1 / 3)) - 1e-4
    assert float(fitted.mixture_.sum()) == pytest.approx(1, abs=1e-12)


KINDS = pytest.mark.parametrize("kind", [CaGCN, lambda **how: GATS(torch.arange(60), **how)], ids=["cagcn", "gats"])


@pytest.fixture(scope="module")
def fitted_logits() -> tuple[Graph, torch.Tensor]:
    graph = synthetic_rare(500, seed=2, share=0.2, n_features=6, separation=0.5, homophily=0.4)
    training = GcnTraining(epochs=60, hidden=4, order="propagated")
    return graph, 10 * fit(graph, torch.arange(60), training).model.logits(graph)


@pytest.mark.slow
@KINDS
def test_keeps_decisions_and_mends_overconfidence(kind, fitted_logits: tuple[Graph, torch.Tensor]) -> None:
    graph, logits = fitted_logits
    assert graph.y is not None
    nodes, rest = torch.arange(60, 260), torch.arange(260, 500)
    calibrator: NodeTemperature = kind()
    p = calibrator.fit(logits, graph.y, graph, nodes).transform(logits)
    assert torch.equal(p.argmax(1), logits.argmax(1))
    assert float((p.sum(1) - 1).abs().max()) < 1e-5
    before = F.cross_entropy(logits[rest], graph.y[rest])
    assert float(F.nll_loss(p[rest].log(), graph.y[rest])) < float(before)
    balanced = kind(target="balanced").fit(logits, graph.y, graph, nodes).transform(logits)
    assert float((balanced - p).abs().max()) > 1e-3


@torch.no_grad()
def test_cagcn_is_a_graph_convolution_of_the_logits() -> None:
    graph = small_graph()
    logits = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    torch.manual_seed(1)
    model = CaGCN().build(graph.adjacency, logits).eval()
    a = propagation(graph).a_hat.to_dense()
    hidden = torch.relu(a @ logits @ model.first.weight.T + model.first.bias)
    u = a @ (hidden @ model.second.weight.T + model.second.bias)
    expected = torch.log(torch.exp(u) + 1.1)
    assert float((model(logits) - expected).abs().max()) < 1e-5 * float(expected.abs().max())


@torch.no_grad()
def test_cagcns_regulariser_by_hand() -> None:
    logits = torch.tensor([[0.0, math.log(3)], [math.log(4), 0.0]], dtype=torch.float64)
    labels, weights = torch.tensor([1, 1]), torch.ones(2, dtype=torch.float64)
    gaps = (3 / 4 - 1 / 4, 4 / 5 - 1 / 5)
    expected = (-math.log(3 / 4) - math.log(1 / 5)) / 2 + 0.5 * ((1 - gaps[0]) + gaps[1]) / 2
    assert float(CaGCN().loss(logits, labels, weights)) == pytest.approx(expected, rel=1e-12)


@torch.no_grad()
def test_gats_temperature_node_by_node() -> None:
    graph = small_graph()
    logits = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    torch.manual_seed(1)
    model = GATS(torch.tensor([0])).build(graph.adjacency, logits)
    with torch.no_grad():
        model.gamma.copy_(torch.tensor([0.5, 2.0]))
        model.omega.fill_(0.7)
        model.base.fill_(1.5)
    scaled = (logits - logits.min(1, keepdim=True).values) / (logits.max(1).values - logits.min(1).values)[:, None]
    confidence = torch.softmax(logits, 1).max(1).values
    gamma = torch.tensor([0.5, 2.0, 1.0, 1.0, 1.0])  # node 0 was trained on, node 1 is its neighbour
    neighbours = {0: [1], 1: [0, 2, 3], 2: [1, 3], 3: [1, 2], 4: []}
    for v, around in neighbours.items():
        near = [*around, v]
        scores = torch.stack([F.leaky_relu(scaled[v] @ scaled[j], 0.2) for j in near])
        tau = torch.stack([gamma[j] * model.tau(scaled[j].sort(descending=True).values) for j in near])
        relative = confidence[v] - confidence[around].mean() if around else torch.tensor(0.0)
        spread = torch.softmax(scores, 0) @ tau + 0.7 * relative
        temperature = F.softplus(spread).mean() + 1.5 - math.log(2)
        assert float(model(logits)[v]) == pytest.approx(float(1 / temperature), rel=1e-5)
