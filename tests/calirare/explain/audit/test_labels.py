"""An audit of a detector's labels: who speaks of them, what is told of each, and in which words."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest
import torch
from scipy.special import expit
from scipy.stats import beta, binom

from calirare._util.amounts import class_words
from calirare._util.errors import InputError
from calirare.explain.audit import audit_labels
from calirare.explain.audit import noise as module
from calirare.explain.audit.noise import LabelNoise, label_noise
from calirare.explain.audit.posterior import Posterior
from calirare.explain.audit.reasons import Company, company_of
from calirare.models import MlpTraining, TreesTraining, class_weights, fold_network, mixture_of
from tests.helpers.tasks import rare_task
from tests.helpers.tolerance import assert_identical


@pytest.fixture(scope="module")
def graph():
    graph = rare_task()
    names = np.array([f"n{i}" for i in range(graph.n_nodes)], dtype=object)
    return dataclasses.replace(graph, node_names=names)


@pytest.fixture(scope="module")
def parts(graph):
    nodes = graph.split.val
    weights = class_weights(graph.y[nodes], 2)[graph.y[nodes]].float()
    trees = TreesTraining(rounds=5, folds=3).fit(graph, nodes, sample_weights=weights)
    detector = MlpTraining(epochs=15, hidden=4)
    network = fold_network(detector, graph, detector.fit(graph, nodes, sample_weights=weights), 3)
    return trees, network, weights


@pytest.fixture(scope="module")
def mixture(parts):
    trees, network, weights = parts
    knowing = network.own_logits + 3 * torch.nn.functional.one_hot(network.targets, 2)
    tampered = dataclasses.replace(network, own_logits=knowing)
    return mixture_of({"trees": trees, "hops": tampered}, weights)


@pytest.fixture(scope="module")
def audit(mixture, graph):
    return audit_labels(mixture, graph, mixture.judged_by_folds(graph).own_logits, "by folds", "auto", 0.5)


def test_logits_that_know_the_label_are_not_listened_to(mixture, parts, graph):
    trees, network, weights = parts
    honest = mixture_of({"trees": trees, "hops": network}, weights)
    unseen = mixture.judged_by_folds(graph).own_logits
    # folds trained side by side, and one by one from their parameters, differ by float32 rounding
    assert float((unseen - honest.own_logits).norm() / unseen.norm()) < 1e-5
    assert float((unseen - mixture.own_logits).abs().max()) > 0.1
    assert_identical(trees.judged_by_folds(graph).own_logits, trees.own_logits)


def test_every_label_has_a_row_the_most_doubtful_first(audit, graph):
    table = audit.to_frame()
    assert sorted(table.node) == sorted(f"n{i}" for i in graph.split.val.tolist())
    assert (np.diff(table.p_wrong) <= 0).all()
    assert table.expected_wrong.iloc[-1] == pytest.approx(audit.p_wrong.sum(), rel=1e-12)
    assert (table.flag == (table.p_wrong >= 0.5)).all()
    of = {f"n{i}": graph.class_names[int(y)] for i, y in enumerate(graph.y.tolist()) if y >= 0}
    assert [of[node] for node in table.node] == table.given.tolist()
    assert table.p_given.between(0, 1).all()
    assert table.reason.str.contains("nearest look-alikes are ").all()


def test_a_label_that_is_not_likely_is_doubted_more_than_others_of_its_class(audit):
    for name, rows in audit.to_frame().groupby("given"):
        assert np.corrcoef(rows.p_given.rank(), rows.p_wrong.rank())[0, 1] < -0.9, name


def test_the_summary_says_what_the_table_says(audit):
    text = audit.summary(80)
    assert f"of {len(audit.given)} labels {int(audit.flagged.sum())} " in text
    assert max(map(len, text.splitlines())) <= 80
    first = audit.to_frame().iloc[0]
    assert re.search(
        rf"^{first.node} +{class_words(first.given)} +{first.p_given:.3f} +{first.p_wrong:.3f} +", text, re.MULTILINE
    )
    assert "confident learning" in text


@pytest.mark.parametrize(("high", "known"), [(9, True), (12, False)])
def test_an_interval_too_wide_to_be_an_answer_is_none(audit, high, known):
    class Wide(Posterior):
        def count(self, among, level=0.9):
            return 2.0, 0, high

    worlds = {field.name: getattr(audit.noise, field.name) for field in dataclasses.fields(Posterior)}
    wide = dataclasses.replace(audit, noise=Wide(**worlds))
    text = wide.summary(80)
    assert (f"  expect 2.0 wrong labels in all (90 %: 0 to {high}); P(" in text) == known
    assert (f"  the data cannot tell how many labels are wrong (90 %: 0 to {high}); P(" in text) != known
    assert ("not known" in text) != known
    assert str(wide.to_frame().iloc[0].node) in text, "the most suspicious are listed all the same"


def test_neighbours_and_look_alikes_are_counted(parts, graph):
    trees = parts[0]
    asked = torch.tensor([0, 7, 50])
    company = company_of(trees, graph, trees.targets, asked)
    x = trees.columns.of(graph).x.double()
    dense = graph.adjacency.to_dense()
    for row, place in enumerate(asked.tolist()):
        node = trees.nodes[place]
        near = [v for v in trees.nodes.tolist() if dense[node, v] != 0 and v != node]
        assert company.neighbours[row].tolist() == torch.bincount(graph.y[near], minlength=2).tolist()
        distance = (x[trees.nodes] - x[node]).norm(dim=1)
        distance[place] = torch.inf
        assert company.alike[row].tolist() == trees.nodes[distance.argsort()[:5]].tolist()
        assert company.alike_labels[row].tolist() == graph.y[company.alike[row]].tolist()


def test_reasons_are_words():
    company = Company(torch.tensor([[2, 1], [0, 0]]), torch.zeros(2, 3), torch.tensor([[0, 0, 1], [1, 1, 1]]))
    names = ("fine", "fraud")
    assert company.sentence(0, 1, names) == "1 of 3 labelled neighbours and 1 of 3 nearest look-alikes are fraud"
    assert company.sentence(1, 0, names) == "no labelled neighbour, 0 of 3 nearest look-alikes are fine"
    alone = Company(torch.zeros(1, 2), torch.zeros(1, 3), torch.tensor([[0, 0, 1]]))
    assert alone.sentence(0, 0, ("rest", "1")) == "2 of 3 nearest look-alikes are normal"


@pytest.mark.slow
def test_labels_without_a_model_are_left_out(mixture, graph):
    logits = mixture.judged_by_folds(graph).own_logits.clone()
    logits[[3, 8]] = torch.nan
    audit = audit_labels(mixture, graph, logits, "", "auto", 0.5)
    assert len(audit.to_frame()) == len(logits) - 2
    assert not set(mixture.nodes[[3, 8]].tolist()) & set(audit.nodes.tolist())


def test_what_cannot_be_audited_is_one_sentence(mixture, graph):
    logits = mixture.judged_by_folds(graph).own_logits
    with pytest.raises(InputError, match=r"must be in \(0, 1\], got 1.5"):
        audit_labels(mixture, graph, logits, "", "auto", 1.5)
    few = logits.clone()
    few[(mixture.targets == 1).nonzero().flatten()[4:]] = torch.nan
    with pytest.raises(InputError, match=r"needs 10 labels of each class .* got 4 of '1'"):
        audit_labels(mixture, graph, few, "", "auto", 0.5)


M, WRONG_OF_REST, MISSED = 240, 0.08, 0.15


def world(rho_1: float, rho_0: float, seed: int = 0, m: int = M) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns scores, given labels and which are wrong; the score is a detector's that noise made doubtful."""
    rng = np.random.default_rng(seed)
    truth = rng.choice([-4.0, 4.0], m, p=[0.75, 0.25]) + 1.5 * rng.standard_normal(m)
    eta = expit(truth)
    rare = rng.random(m) < eta
    wrong = rng.random(m) < np.where(rare, rho_0, rho_1)
    return truth * (1 - 2 * (rho_0 + rho_1)), rare ^ wrong, wrong


def posterior(scores: np.ndarray, given: np.ndarray) -> LabelNoise:
    return label_noise(scores, given, np.zeros(len(scores)), float(given.mean()))


@pytest.fixture(scope="module")
def clean() -> LabelNoise:
    return posterior(*world(0, 0)[:2])


@pytest.fixture(scope="module")
def noisy() -> tuple[LabelNoise, np.ndarray, np.ndarray, np.ndarray]:
    scores, given, wrong = world(WRONG_OF_REST, MISSED)
    return posterior(scores, given), scores, given, wrong


def test_clean_labels_are_left_alone(clean):
    assert not (clean.p_wrong >= 0.5).any()
    expected, low, _ = clean.count(np.ones(M, dtype=bool))
    assert expected < 0.02 * M
    assert low == 0


def test_wrong_labels_are_counted_and_found(noisy):
    noise, _, _, wrong = noisy
    expected, low, high = noise.count(np.ones(M, dtype=bool))
    assert low <= wrong.sum() <= high
    assert low < expected < high
    flags = noise.p_wrong >= 0.5
    assert (flags & wrong).sum() > 0.5 * wrong.sum()
    assert wrong[flags].mean() > 0.7
    least, most = noise.count(flags)[1:]
    assert least <= (flags & wrong).sum() <= most
    assert noise.clean < module.NO_NOISE


def test_the_less_is_said_for_a_label_the_likelier_it_is_wrong(noisy):
    noise, scores, given, _ = noisy
    for label, sign in ((True, -1), (False, 1)):
        mine = given == label
        order = np.argsort(sign * scores[mine])
        assert (np.diff(noise.p_wrong[mine][order]) >= -1e-12).all()


def test_in_each_world_wrong_labels_make_up_what_bayes_says(noisy):
    """P(wrong | rest) (1 - f) + P(wrong | rare) f is the chance of a flip, rho_1 (1 - eta) + rho_0 eta."""
    grid = module._Grid.of(0.3)
    eta = np.broadcast_to(np.array([0.0, 0.1, 0.6, 1.0]), (len(grid.rho_1), 4))
    rho_1, rho_0 = grid.rho_1[:, None], grid.rho_0[:, None]
    f = rho_1 + (1 - rho_0 - rho_1) * eta
    rare, rest = (module._wrong(grid, eta, np.full(4, label)) for label in (True, False))
    flip = rho_1 * (1 - eta) + rho_0 * eta
    assert np.abs(rest * (1 - f) + rare * f - flip).max() < 8 * np.finfo(float).eps
    noise = noisy[0]
    assert noise.weight.sum() == pytest.approx(1, abs=1e-12)
    assert ((noise.given >= 0) & (noise.given <= 1)).all()


def test_no_world_has_more_wrong_labels_than_there_are():
    grid = module._Grid.of(0.3)
    truly = (1 - grid.wrong_rare) * 0.3 / (1 - grid.rho_0)
    # f integrates to the share that is given as rare
    assert np.abs(grid.rho_1 * (1 - truly) + (1 - grid.rho_0) * truly - 0.3).max() < 8 * np.finfo(float).eps
    assert np.exp(grid.log_prior).sum() <= 1 + 1e-12


def test_labels_of_both_classes_may_be_wrong_at_one_rate(monkeypatch):
    grid = module._Grid.of(0.3)
    alike = (grid.rho_0 > 0) & (np.abs(grid.rho_1 - grid.rho_0) < 1e-12)
    possible = beta.cdf((0.25 + 0.32) / 2, *module.SLAB)  # a rate above the share given as rare is not
    assert np.exp(grid.log_prior[alike]).sum() == pytest.approx(
        module.ALIKE * possible, rel=0.02
    )  # and a pair of rates by chance

    rng = np.random.default_rng(2)
    rare, wrong = rng.random(300) < 0.1, rng.random(300) < 0.15
    given = rare ^ wrong
    scores = np.log(given.mean() / (1 - given.mean())) + np.where(rare, 1.0, -1.0) + 0.7 * rng.standard_normal(300)
    told = posterior(scores, given).count(given)[0]
    monkeypatch.setattr(module, "ALIKE", 1e-9)
    assert posterior(scores, given).count(given)[0] < told < wrong[given].sum() + 5


def test_the_number_of_wrong_labels_is_that_of_independent_draws():
    quarter = np.full((1, 40), 0.25)
    one = Posterior(np.array([1.0]), quarter, quarter.repeat(400, axis=0), 0.0)
    expected, low, high = one.count(np.ones(40, dtype=bool))
    assert expected == 10
    assert abs(low - binom.ppf(0.05, 40, 0.25)) <= 1
    assert abs(high - binom.ppf(0.95, 40, 0.25)) <= 1
    none_or_all = np.array([[0.0] * 9, [1.0] * 9])
    two = Posterior(np.array([0.5, 0.5]), none_or_all, none_or_all, 0.0)
    assert two.count(np.ones(9, dtype=bool)) == (4.5, 0, 9)
    assert two.count(np.zeros(9, dtype=bool)) == (0, 0, 0)


def test_labels_beyond_enough_do_not_narrow_the_interval(monkeypatch):
    monkeypatch.setattr(module, "BINS", 60)
    (scores, given, wrong), every = world(WRONG_OF_REST, MISSED, m=1500), np.ones(1500, dtype=bool)
    noise = posterior(scores, given)
    monkeypatch.setattr(module, "ENOUGH", 1e9)
    sure = posterior(scores, given)
    assert (sure.p_wrong == noise.p_wrong).all()  # the interval alone is of the coarsened posterior
    (expected, low, high), (_, *narrow) = noise.count(every), sure.count(every)
    assert low <= wrong.sum() <= high
    assert low < narrow[0] < expected < narrow[1] < high
    assert sure.drawn.sum(1).std() > 3  # nor are u, v, c and the rates of one world


def test_many_labels_told_as_counts_say_the_same(noisy, monkeypatch):
    noise, scores, given, _ = noisy
    monkeypatch.setattr(module, "BINS", 60)
    assert np.abs(posterior(scores, given).p_wrong - noise.p_wrong).max() < 0.05
