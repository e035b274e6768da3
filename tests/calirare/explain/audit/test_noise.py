"""P(wrong): on labels made wrong on purpose it counts them, on clean ones it flags none, and it is Bayes' rule."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import beta, binom

from calirare.explain.audit import noise as module
from calirare.explain.audit.noise import LabelNoise, label_noise
from calirare.explain.audit.posterior import Posterior

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
