from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import binomtest

from calirare import metrics
from calirare.metrics import PopulationCheck, population_check


def test_brier_decomposition_by_hand():
    # Two bins: {.2, .4} with one event, {.8} with an event. base = 2/3.
    p, y = np.array([0.2, 0.4, 0.8]), np.array([0, 1, 1])
    parts = metrics.brier_decomposition(y, p, n_bins=2)
    assert parts.reliability == pytest.approx(2 / 3 * 0.2**2 + 1 / 3 * 0.2**2, rel=1e-12, abs=0)
    assert parts.resolution == pytest.approx(2 / 3 * (1 / 6) ** 2 + 1 / 3 * (1 / 3) ** 2, rel=1e-12, abs=0)
    assert parts.uncertainty == pytest.approx(2 / 9, rel=1e-12, abs=0)
    # Inside the first bin p - mean = -.1, .1 and y - mean = -.5, .5: (2 * .01 - 2 * 2 * .05) / 3.
    assert parts.within_bin == pytest.approx((0.02 - 0.2) / 3, rel=1e-12, abs=0)


@pytest.mark.parametrize("n_bins", [1, 15])
def test_parts_add_up_to_the_score(task, n_bins, within_rounding):
    p, y = task
    weights = np.random.default_rng(0).random(len(y))
    for w in (None, weights):
        parts = metrics.brier_decomposition(y, p, n_bins, weights=w)
        total = parts.reliability - parts.resolution + parts.uncertainty + parts.within_bin
        within_rounding(total, metrics.brier(y, p, weights=w), terms=4 * len(y), scale=1.0)
    assert parts.reliability >= 0
    assert parts.resolution >= 0


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("spread", [2.0, 1e-4, 1e-10])
def test_the_line_is_where_the_likelihood_is_greatest(spread, weighted):
    rng = np.random.default_rng(0)
    z = spread * rng.standard_normal(2000) - 0.8
    y, p = rng.random(2000) < 1 / (1 + np.exp(-0.6 * z)), 1 / (1 + np.exp(-z))
    w = rng.integers(0, 4, 2000) if weighted else np.ones(2000)
    line = metrics.calibration_line(y, p, weights=w if weighted else None)
    away = (np.log(p) - np.log1p(-p)) - np.average(z, weights=w)
    height = line.intercept + line.slope * np.average(z, weights=w)
    surplus = w * (1 / (1 + np.exp(-height - line.slope * away)) - y) / w.sum()
    rounding = 1e-9 + 1e-14 * abs(line.slope)  # the intercept of a steep line is a difference of large numbers
    assert abs(surplus.sum()) < rounding
    assert abs(surplus @ away) / spread < rounding
    assert spread < 1 or abs(line.slope - 0.6) < 0.1


def test_certain_scores_do_not_break_the_line():
    line = metrics.calibration_line([0, 1, 1, 0, 1, 0], [0.0, 1.0, 0.5, 1.0, 0.0, 0.4])
    assert np.isfinite(line).all()


@pytest.mark.parametrize(
    ("scores", "outcomes", "message"),
    [
        ([0.1, 0.2, 0.8, 0.9], [0, 0, 1, 1], "must overlap"),
        ([0.1, 0.2], [1, 1], "both 0 and 1"),
        ([0.3, 0.3], [0, 1], "must differ"),
        ([0.3, 0.3 + 1e-16, 0.3], [0, 1, 0], "must differ"),
        ([0.3, 0.3], [0, 2], "y_true must lie in"),
        ([0.3, 0.3], [0], "y_true must have shape"),
    ],
)
def test_where_there_is_no_line(scores, outcomes, message):
    with pytest.raises(ValueError, match=message):
        metrics.calibration_line(outcomes, scores)
    with pytest.raises(ValueError, match="both 0 and 1 with positive weights"):
        metrics.calibration_line([1, 0, 1], [0.2, 0.4, 0.7], weights=[1.0, 1e-320, 1.0])


def test_a_slope_hears_small_probabilities_in_float32():
    rng = np.random.default_rng(5)
    odds = rng.normal(-7, 3, 60_000)
    y = (rng.random(60_000) < 1 / (1 + np.exp(-odds))).astype(int)
    p = 1 / (1 + np.exp(-2 * odds))  # log-odds twice too large: down to 1e-16
    assert (p < 1e-7).mean() > 0.2
    wanted = metrics.calibration_line(y, p)
    found = metrics.calibration_line(y, p.astype(np.float32))
    assert wanted.slope == pytest.approx(0.5, abs=0.03)
    assert found.slope == pytest.approx(wanted.slope, abs=1e-3)
    one = p.copy()
    one[:3] = 0.0  # as the smallest beside them
    assert metrics.calibration_line(y, one).slope == pytest.approx(wanted.slope, abs=0.01)


CLOSE = 1e-6  # relative, of roots found to 1e-12 in log-odds


def test_equal_probabilities_have_the_exact_binomial_interval():
    y, p = np.repeat([0, 1], [190, 10]), np.full(200, 0.15)
    found = population_check(y, p)
    exact = binomtest(10, 200).proportion_ci(0.95, "exact")
    assert found.factor == pytest.approx(3, rel=CLOSE)
    assert found.low == pytest.approx(0.15 / exact.high, rel=CLOSE)
    assert found.high == pytest.approx(0.15 / exact.low, rel=CLOSE)
    assert found.wrong
    assert not found.trusted
    assert found.sentence.startswith("the predicted rate is 3.0 times the observed rate (1.7 to ")
    assert found.sentence.endswith("too high: not to be read as a probability")


def test_few_rare_labels_cannot_earn_trust_and_many_can():
    for rare, trusted in ((1, False), (5, False), (20, False), (200, True)):
        y = np.repeat([0, 1], [29 * rare, rare])
        found = population_check(y, np.full(30 * rare, 1 / 30))
        assert found.trusted is trusted
        assert not found.wrong
        assert ("calibrated on average" in found.sentence) is trusted
        labels = "1 rare label" if rare == 1 else f"{rare} rare labels"
        assert (f"{labels} cannot show" in found.sentence) is not trusted


def test_no_event_and_nothing_but_events():
    none = population_check(np.zeros(50, int), np.full(50, 0.3))
    assert none.factor == none.high == math.inf
    assert none.low == pytest.approx(0.3 / binomtest(0, 50).proportion_ci(0.95, "exact").high, rel=CLOSE)
    every = population_check(np.ones(50, int), np.full(50, 0.3))
    assert every.factor == pytest.approx(0.3)
    assert every.low == pytest.approx(0.3, rel=CLOSE)
    assert every.high == pytest.approx(0.3 / binomtest(50, 50).proportion_ci(0.95, "exact").low, rel=CLOSE)
    assert "too low" in every.sentence


def at_least(p, n_events):
    """P(n_events or more), of independent events."""
    counts = np.ones(1)
    for each in p:
        counts = np.convolve(counts, [1 - each, each])
    return counts[n_events:].sum()


@pytest.mark.parametrize("certain", [14, 20])
def test_one_false_alarm_that_seems_certain_leaves_no_more_open(certain):
    """It keeps its probability where those of all others are shifted away."""
    logits = np.r_[np.linspace(0, 7, 39), np.full(206, -5.0), certain]
    y, p = np.arange(246) < 39, expit(logits)
    found = population_check(y.astype(np.int64), p)
    shifted = [expit(logits + shift) for shift in np.linspace(-3, 0, 301)]
    exact = next(p.mean() / q.mean() for q in shifted if at_least(q, 39) > 0.025)
    assert found.high == pytest.approx(exact, rel=0.03)
    assert found.trusted


def test_weights_are_shares_and_cost_certainty():
    rng = np.random.default_rng(0)
    p = rng.beta(1, 9, 400)
    y = (rng.random(400) < p).astype(int)
    plain = population_check(y, p)
    assert population_check(y, p, weights=np.full(400, 3.0)).numbers() == pytest.approx(plain.numbers(), rel=1e-9)
    uneven = population_check(y, p, weights=np.where(np.arange(400) % 2, 9.0, 1.0))
    assert uneven.high / uneven.low > plain.high / plain.low
    kept = np.arange(400) % 2 > 0
    left_out = population_check(y, p, weights=kept.astype(float))
    assert left_out[:5] == pytest.approx(population_check(y[kept], p[kept])[:5], rel=1e-9)
    with pytest.raises(ValueError, match="coverage must be in"):
        population_check(y, p, coverage=1.0)


@pytest.mark.slow
@pytest.mark.parametrize("weighted", [False, True])
def test_the_interval_holds_the_true_factor(weighted):
    rng, holds, runs = np.random.default_rng(1), 0, 150
    for _ in range(runs):
        p = rng.beta(0.4, 6, 300)
        y = (rng.random(300) < p).astype(int)
        weights = rng.uniform(0.5, 2, 300) if weighted else None
        true = p.copy()
        given = 1 / (1 + (1 - p) / p / 2)  # odds twice too high
        w = np.ones(300) if weights is None else weights
        found = population_check(y, given, weights=weights)
        holds += found.low <= (w @ given) / (w @ true) <= found.high
    assert 0.92 * runs <= holds


def test_the_verdict_is_as_sure_as_the_interval():
    assert PopulationCheck(1.0, 0.9, 1.1, 0.1, 0.1, 500).verdict == "trust"
    assert PopulationCheck(1.0, 0.5, 2.1, 0.1, 0.1, 5).verdict == "caution"
    assert PopulationCheck(3.0, 2.1, 4.1, 0.3, 0.1, 50).verdict == "do not trust"
