"""A mixture is the mean probability of its members, with the weights that maximise the penalised likelihood."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from calirare.leave_one_out import from_folds, jackknife
from calirare.models import (
    FoldedNetwork,
    Mixture,
    MlpTraining,
    TreesTraining,
    class_weights,
    fold_converged,
    fold_network,
    mixture_of,
    stacking_weights,
)
from tests.helpers.tasks import rare_task
from tests.helpers.tolerance import assert_identical


def penalised(weights, p, v, c):
    return float(v @ np.log(p @ weights) + c / len(weights) * np.log(weights).sum())


def test_weights_are_the_maximum_of_the_penalised_likelihood():
    generator = np.random.default_rng(1)
    p, v = generator.uniform(0.05, 0.95, (40, 3)), generator.uniform(0.5, 1.5, 40)
    got = stacking_weights(torch.from_numpy(p), torch.from_numpy(v), 2.0).numpy()
    best = penalised(got, p, v, 2.0)
    grid = [np.array([a, b, 1 - a - b]) for a in np.linspace(0.01, 0.98, 60) for b in np.linspace(0.01, 0.99 - a, 60)]
    assert got.sum() == pytest.approx(1, abs=1e-12)
    assert max(penalised(w, p, v, 2.0) for w in grid if w.min() > 0) <= best
    assert best - max(penalised(w, p, v, 2.0) for w in grid if w.min() > 0) < 0.1


def test_members_that_say_the_same_share_alike_and_a_bad_one_gets_the_prior_s_share():
    same = stacking_weights(torch.full((30, 4), 0.7), torch.ones(30))
    assert same.tolist() == pytest.approx([0.25] * 4, abs=1e-12)
    good, bad = torch.full((1000, 1), 0.9), torch.full((1000, 1), 1e-6)
    weights = stacking_weights(torch.cat([good, bad], 1), torch.ones(1000), 4.0)
    assert float(weights[1]) == pytest.approx(2 / 1004, rel=1e-3)


@pytest.fixture(scope="module")
def graph():
    return rare_task()


@pytest.fixture(scope="module")
def mixture(graph):
    nodes = graph.split.train
    weights = class_weights(graph.y[nodes], 2)[graph.y[nodes]].float()
    trees = TreesTraining(rounds=5, folds=3).fit(graph, nodes, sample_weights=weights)
    detector = MlpTraining(epochs=15, hidden=4)
    network = fold_network(detector, graph, detector.fit(graph, nodes, sample_weights=weights), 3)
    return mixture_of({"trees": trees, "hops": network}, weights)


def test_logits_are_the_logarithm_of_the_weighted_mean_of_the_members(mixture, graph):
    mean = sum(m.weight * m.calibrator.transform(m.fitted.logits_of(graph).double()) for m in mixture.members)
    got = torch.softmax(mixture.logits_of(graph), 1)
    assert float((got - mean).abs().max()) < 1e-8
    assert sum(m.weight for m in mixture.members) == pytest.approx(1, abs=1e-12)


def test_the_average_speaks_of_classes_of_equal_weight_whatever_its_members_learnt_with(graph):
    nodes = graph.split.train
    few = torch.cat([nodes[graph.y[nodes] == 0], nodes[graph.y[nodes] == 1][:8]])
    weights = class_weights(graph.y[few], 2)[graph.y[few]].float()
    growing = TreesTraining(rounds=5, folds=3)
    alike, even = (growing.fit(graph, few, sample_weights=w) for w in (None, weights))
    assert alike.sample_weights.unique().tolist() == [1.0]
    averages = [mixture_of({"trees": fitted}, weights) for fitted in (alike, even)]
    for average in averages:
        assert_identical(average.sample_weights, weights)
    raw = [float(torch.softmax(fitted.own_logits, 1)[:, 1].mean()) for fitted in (alike, even)]
    said = [float(torch.softmax(average.own_logits, 1)[:, 1].mean()) for average in averages]
    assert raw[1] - raw[0] > 0.1 > 2 * abs(said[1] - said[0]), (raw, said)


def test_models_without_a_fold_have_not_seen_it(mixture, graph):
    nodes = graph.split.train
    detector = MlpTraining(epochs=15, hidden=4, dropout=0.0)
    network = fold_network(detector, graph, detector.fit(graph, nodes), 3)
    kept = network.fold != 1
    alone = detector.fit(graph, nodes[kept], sample_weights=network.sample_weights[kept])
    z, own = alone.logits_of(graph), alone.logits_of(graph, nodes[~kept]).double()
    assert float((network.all_logits_of(graph)[1][1] - z).norm() / z.norm()) < 1e-4
    assert float((network.own_logits[~kept] - own).norm() / own.norm()) < 1e-4


def test_converged_folds_are_minima_without_their_labels(graph):
    detector = MlpTraining(n_layers=1, weight_decay=0.05)
    fitted, _ = detector.fit_to_convergence(graph, graph.split.train)
    folded = fold_converged(detector, graph, fitted, 4)
    kept = folded.fold != 2
    alone, _ = detector.fit_to_convergence(
        graph, fitted.nodes[kept], sample_weights=fitted.sample_weights[kept] / fitted.sample_weights[kept].mean()
    )
    z = folded.all_logits_of(graph)[1][2]
    scaled = fitted.copy(sample_weights=fitted.sample_weights * kept * (kept.numel() / kept.sum()))
    scaled.move_to(folded.theta[2])
    assert scaled.gradient_norm() < 1e-3
    assert float(torch.corrcoef(torch.stack([z[:, 1], alone.logits_of(graph)[:, 1]]))[0, 1]) > 0.999


def test_a_state_gives_the_same_mixture_again(mixture, graph):
    again = Mixture.from_state(*mixture.state())
    for got, want in zip(again.all_logits_of(graph), mixture.all_logits_of(graph), strict=True):
        assert_identical(got, want)
    assert_identical(again.own_logits, mixture.own_logits)
    assert isinstance(again.members[1].fitted, FoldedNetwork)


def test_changes_by_folds_are_differences_of_logits(mixture, graph):
    z, without = mixture.all_logits_of(graph)
    logits, result = from_folds(mixture, graph)
    assert_identical(logits, z)
    for k in range(3):
        want = (without[k, :, 1] - without[k, :, 0]) - (z[:, 1] - z[:, 0])
        assert_identical(result.change[:, 0, k], want)
    assert torch.equal(result.model_of, mixture.fold)


def test_intervals_are_quantiles_over_the_models_without_each_label_s_fold(mixture, graph):
    got = jackknife(mixture, graph, coverage=0.8)
    own = torch.softmax(mixture.own_logits, 1)[:, 1]
    residuals = (mixture.targets.double() - own).abs()
    p = torch.softmax(mixture.all_logits_of(graph)[1], 2)[:, :, 1]
    scores = p[mixture.fold].T  # [n, m]
    low = np.quantile((scores - residuals).numpy(), 0.1, axis=1, method="linear")
    high = np.quantile((scores + residuals).numpy(), 0.9, axis=1, method="linear")
    assert np.abs(got.lower.numpy() - low).max() < 1e-7
    assert np.abs(got.upper.numpy() - high).max() < 1e-7
    assert got.method == "cross-fitting"


def test_logits_are_kept_for_one_more_call_and_not_in_the_detector(mixture, graph, monkeypatch):
    calls, made = list[int](), type(mixture).evaluate
    monkeypatch.setattr(type(mixture), "evaluate", lambda *args, **how: (calls.append(1), made(*args, **how))[1])
    some = graph.split.test
    found = [mixture.all_logits_of(graph, nodes) for nodes in (some, some, some, some.clone())]
    assert len(calls) == 3, "the second call is answered, and then forgotten"
    assert all(torch.equal(each[1], found[0][1]) for each in found)
    assert all(each is not graph for each in vars(mixture).values())
