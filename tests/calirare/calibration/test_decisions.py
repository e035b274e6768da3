"""Rules of decision and budgets: thresholds by hand, guarantees that hold, promises kept where the truth is known."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch
from scipy.special import expit
from scipy.stats import binom

from calirare._util.errors import InputError
from calirare.calibration import PriorPlattCalibrator, are_apart, budget_curve, next_period
from calirare.calibration.decisions import (
    RULES,
    Balanced,
    Budget,
    Capped,
    Cost,
    Labelled,
    Precision,
    Recall,
    decide,
    make_rule,
    precision_threshold,
    recall_threshold,
)
from tests.helpers.logits import drawn_logits

P = np.array([0.9, 0.8, 0.8, 0.4, 0.1, 0.0])  # sum 3.0


@pytest.mark.parametrize(
    ("rule", "alerts"),
    [
        (Balanced(), 3),  # mean 0.5
        (Cost(miss=9.0, alarm=1.0), 5),  # 0.1
        (Cost(miss=1.0, alarm=3.0), 3),  # 0.75
        (Budget(alerts=3), 3),
        (Budget(alerts=2), 1),  # of two tied nodes none
        (Budget(alerts=100), 6),
        (Budget(alerts=0.5), 3),
        (Precision(at_least=0.83), 3),  # .9 .85 .833 .725 .6
        (Precision(at_least=0.84), 1),  # the second of the tied nodes would bring it below
        (Precision(at_least=0.95), 0),
        (Precision(at_least=0.5), 6),
        (Recall(at_least=0.29), 1),
        (Recall(at_least=0.8), 3),
        (Recall(at_least=0.97), 5),
    ],
)
def test_thresholds_by_hand(rule, alerts):
    assert int((rule.threshold(P, None) <= P).sum()) == alerts


def test_cost_threshold_is_the_cheapest_of_all():
    rng = np.random.default_rng(0)
    p = rng.beta(0.3, 3, 500)
    for miss in (0.5, 5.0, 50.0):
        rule = Cost(miss=miss, alarm=2.0)
        costs = [2.0 * (1 - p[p >= t]).sum() + miss * p[p < t].sum() for t in np.append(p, 1.1)]
        t = rule.threshold(p, None)
        assert 2.0 * (1 - p[p >= t]).sum() + miss * p[p < t].sum() == pytest.approx(min(costs))


def test_rules_by_name():
    assert make_rule("cost", miss=5.0) == Cost(miss=5.0)
    assert set(RULES) == {"balanced", "cost", "budget", "precision", "recall"}
    for name, options, message in (
        ("luck", {}, "decide must be one of balanced, cost"),
        ("cost", {"precision": 0.8}, "options must be among miss, alarm, got precision"),
        ("cost", {"miss": 0.0}, "cost of a miss must be positive"),
        ("budget", {"alerts": 2.5}, "whole number or a share"),
        ("budget", {"alerts": float("nan")}, "whole number or a share"),
        ("budget", {"alerts": 0}, "whole number or a share"),
        ("precision", {"at_least": 1.0}, r"precision must be in \(0, 1\)"),
        ("recall", {"confidence": 1.0}, r"confidence must be in \(0, 1\)"),
    ):
        with pytest.raises(InputError, match=message):
            make_rule(name, **options)


def test_proved_precision_by_hand():
    # 5 % in four parts: 1.25 %; .8^20 = .0115 is the first below, so 20 hits without a false alarm are proof.
    p = np.linspace(1, 0, 40)
    rare = np.arange(40) < 20
    assert precision_threshold(Labelled(p, rare), 0.8, 0.95) == p[19]
    with pytest.raises(InputError, match="the 20 likeliest would all have to be rare"):
        precision_threshold(Labelled(p, np.arange(40) < 19), 0.8, 0.95)
    one_false = rare & (np.arange(40) != 5)
    with pytest.raises(InputError, match=r"cannot be proved with confidence 0\.95 by 40 labels, 19 of them rare"):
        precision_threshold(Labelled(p, one_false), 0.8, 0.95)
    with pytest.raises(InputError, match="needs labels drawn at random"):
        Precision(confidence=0.9).threshold(P, None)


def test_proved_recall_by_hand():
    # of 50 rare labels the j-th smallest is safe where P(binomial(50, .2) >= j) >= .95
    p = np.arange(50) / 50
    j = max(j for j in range(51) if binom.sf(j - 1, 50, 0.2) >= 0.95)
    assert recall_threshold(Labelled(p, np.ones(50)), 0.8, 0.95) == p[j - 1]
    with pytest.raises(InputError, match="by 5 rare labels, 14 are needed"):
        recall_threshold(Labelled(p, np.arange(50) < 5), 0.8, 0.95)


@pytest.mark.slow
def test_what_is_proved_holds_as_often_as_it_says():
    """However wrong P is: here the odds are ten times too high and everyone's recall and precision known."""
    rng = np.random.default_rng(1)
    everyone = (rng.random(40_000) < 0.2).astype(int)
    score = drawn_logits(everyone, rng)[:, 1].numpy()
    right, refused = np.zeros(2), 0
    runs = 150
    for _ in range(runs):
        y = (rng.random(800) < 0.2).astype(int)
        labelled = Labelled(expit(drawn_logits(y, rng)[:, 1].numpy() + 2.3), y)
        recalled = expit(score + 2.3) >= recall_threshold(labelled, 0.75, 0.9)
        right[1] += everyone[recalled].sum() >= 0.75 * everyone.sum()
        try:
            alert = expit(score + 2.3) >= precision_threshold(labelled, 0.6, 0.9)
            right[0] += everyone[alert].mean() >= 0.6
        except InputError:
            refused += 1
    assert right[0] >= 0.84 * (runs - refused)  # .9 less 2.4 standard errors
    assert refused < 0.1 * runs
    assert 0.84 * runs <= right[1] < runs, "a bound that never fails would be too cautious"


def test_a_decision_adds_up():
    rng = np.random.default_rng(2)
    y = (rng.random(400) < 0.1).astype(int)
    fitted = PriorPlattCalibrator(residual_sd=None).fit(drawn_logits(y, rng), torch.from_numpy(y))
    scored = drawn_logits((rng.random(1000) < 0.1).astype(int), rng)
    found = decide(Cost(miss=10.0, alarm=1.0), fitted, scored)
    p = fitted.transform(scored)[:, 1]
    assert found.threshold == pytest.approx(1 / 11)
    assert found.alerts == int((p >= 1 / 11).sum())
    assert found.hits.expected + found.misses.expected == pytest.approx(float(p.sum()))
    assert found.hits.expected == pytest.approx(found.hits_by_p)
    assert "sums of P(rare)" not in found.sentence
    assert found.cost.expected == pytest.approx(10 * found.misses.expected + found.alerts - found.hits.expected)
    for counted in (found.hits, found.misses, found.cost, found.precision, found.recall):
        assert counted.low < counted.expected < counted.high
    assert "makes" in found.sentence
    assert "a missed rare node costs 10" in found.sentence
    none = decide(Precision(at_least=0.9999), fitted, scored)
    assert none.alerts == 0
    assert np.isnan(none.precision.expected)
    assert none.hits.high == 0
    with pytest.raises(InputError, match="there must be nodes"):
        decide(Balanced(), fitted, scored[:0])
    with pytest.raises(InputError, match="coverage must be in"):
        decide(Balanced(), fitted, scored, coverage=0.0)


def test_numbers_follow_labels_that_speak_against_the_form_and_say_so():
    """Half of the rare class look like the rest, and one slope cannot say so: alerts hold more than P sums to."""
    rng = np.random.default_rng(4)

    def drawn(n: int) -> tuple[torch.Tensor, np.ndarray]:
        y = (rng.random(n) < 0.1).astype(int)
        return drawn_logits(y * (rng.random(n) < 0.5), rng), y

    z, y = drawn(20_000)
    scored, truth = drawn(20_000)
    bare, fitted = (PriorPlattCalibrator(residual_sd=sd).fit(z, torch.from_numpy(y)) for sd in (None, 1.0))
    rule = Budget(alerts=800)
    told = [decide(rule, each, scored) for each in (bare, fitted)]
    hits = truth[fitted.transform(scored)[:, 1].numpy() >= told[1].threshold].sum()
    assert told[1].hits.low <= hits <= told[1].hits.high
    assert not told[0].hits.low <= hits <= told[0].hits.high, "the form alone is sure of something else"
    assert told[0].hits.expected == pytest.approx(told[1].hits_by_p), "P(rare) is the same"
    assert abs(told[1].hits_by_p - hits) > 2 * abs(told[1].hits.expected - hits)
    assert f"sums of P(rare) are {told[1].hits_by_p:.0f} and" in told[1].sentence
    assert not are_apart(10.4, 10.0, 7.0, 13.0), "a little of the interval is not worth a sentence"
    assert budget_curve(fitted, scored).expected[-1] == pytest.approx(told[1].hits.expected + told[1].misses.expected)


@cache
def simulated(runs: int) -> list[tuple[PriorPlattCalibrator, torch.Tensor, np.ndarray]]:
    """Returns maps fitted on 25 rare labels, 2,000 nodes to score, and which of these are rare."""
    rng, made = np.random.default_rng(3), []
    for _ in range(runs):
        slope, shift = np.exp(rng.normal(0, 0.3)), rng.normal(0, 0.3)
        y = (rng.random(500) < 0.05).astype(int)
        fitted = PriorPlattCalibrator().fit(drawn_logits(y, rng, slope=slope, shift=shift), torch.from_numpy(y))
        truth = (rng.random(2000) < 0.05).astype(int)
        made.append((fitted, drawn_logits(truth, rng, slope=slope, shift=shift), truth))
    return made


AMOUNTS = np.random.default_rng(1).lognormal(3, 1.5, 2000)


def test_of_costs_that_differ_the_alerts_cost_least():
    p, rule = np.random.default_rng(0).beta(0.3, 3, 2000), Cost(miss=AMOUNTS, alarm=20.0)
    gain = p * AMOUNTS - 20 * (1 - p)
    assert ((p >= rule.threshold(p, None) / rule.weights) == (gain > 0)).all()
    few = Capped(of=rule, most=40)
    alerts = np.flatnonzero(p >= few.threshold(p, None) / few.weights)
    assert set(alerts) == set(np.argsort(-gain)[:40]) != set(np.argsort(-p)[:40])
    tied = Capped(of=Cost(miss=np.full(6, 900.0)), most=2)
    assert (tied.tie(P, tied.threshold(P, None)).p, tied.cut(5.0)) == (0.8, "5 / (amount + 1)")
    with pytest.raises(InputError, match="amounts of 2 of 3 rows are negative or missing: leave these rows out"):
        Cost(miss=np.array([-1.0, np.nan, 0.0]))


KEPT = (Cost(miss=15.0), Cost(miss=AMOUNTS, alarm=20.0), Budget(alerts=150), Precision(at_least=0.6), Recall())


@pytest.mark.slow
@pytest.mark.parametrize("rule", KEPT)
def test_promises_are_kept(rule):
    """Posteriors are known: what happens lies inside the promised interval."""
    kept, runs = np.zeros(4), 40
    for fitted, scored, truth in simulated(runs):
        found = decide(rule, fitted, scored, coverage=0.95)
        alert = fitted.transform(scored)[:, 1].numpy() >= found.threshold / rule.weights
        hits = truth[alert].sum()
        miss, alarm = rule.costs()
        cost = (miss * truth)[~alert].sum() + alarm * (alert & (truth == 0)).sum()
        happened = (hits, cost, hits / alert.sum(), hits / truth.sum())
        promised = (found.hits, found.cost, found.precision, found.recall)
        kept += [c.low <= h <= c.high for c, h in zip(promised, happened, strict=True)]
    assert kept.min() >= 0.9 * runs


@pytest.mark.parametrize(
    ("p", "rare", "error", "message"),
    [
        ([0.1, 0.2], [1], InputError, "one shape"),
        ([0.1, 1.2], [0, 1], InputError, r"p must lie in \[0, 1\]"),
        ([0.1, 0.2], [-1, 1], InputError, "rare must hold 0 and 1"),
        ([0.1, 0.2], [float("nan"), 1], InputError, "rare must hold 0 and 1"),
        ([0.1, 0.2], ["0", "1"], TypeError, "rare must hold real numbers"),
    ],
)
def test_labels_that_guarantee_something_are_0_or_1(p, rare, error, message):
    with pytest.raises(error, match=message):
        Labelled(np.array(p), np.array(rare))
    assert Labelled(torch.tensor([0.1, 0.2]), torch.tensor([False, True])).rare.tolist() == [False, True]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_budgets_threshold_lies_between_two_nodes(dtype):
    """Where P is computed again, elsewhere, its last digits differ: the last alert must not hang on them."""
    p = np.random.default_rng(0).random(1000).astype(dtype)
    for alerts in (1, 10, 999):
        threshold = Budget(alerts=alerts).threshold(p, None)
        last, following = np.sort(p)[::-1][alerts - 1 : alerts + 1]
        assert following < threshold < last
        assert abs((float(last) - threshold) - (threshold - float(following))) < 1e-9
    tied = np.array([0.2, 0.2, np.nextafter(0.2, 1), 0.9], dtype=np.float64)  # but for rounding
    assert int((tied >= Budget(alerts=2).threshold(tied, None)).sum()) == 1
    assert Budget(alerts=2).tie(tied, 0.5).nodes == 3
    certain = 1 - np.array([1e-11, 1e-12, 1e-13])  # whose odds are far apart
    assert int((certain >= Budget(alerts=2).threshold(certain, None)).sum()) == 2
    assert [Budget(alerts=2).cut(p) for p in (0.12345, 0.99971, 1.0)] == ["0.123", "0.99971", "1"]


def test_a_budget_that_ends_in_a_tie_says_so_and_is_never_exceeded():
    p = np.repeat([0.95, 0.6, 0.1], [86, 30, 400])
    for budget, alerts, tied in ((10, 0, (86, 0.95)), (86, 86, None), (100, 86, (30, 0.6)), (0.25, 116, (400, 0.1))):
        rule = Budget(alerts=budget)
        threshold = rule.threshold(p, None)
        tie = rule.tie(p, threshold)
        assert int((p >= threshold).sum()) == alerts
        assert (None if tie is None else (tie.nodes, tie.p)) == tied
    assert Budget(alerts=1000).tie(p, 0.0) is None
    assert Cost().tie(p, 0.5) is None
    some = Precision(at_least=0.93)  # of the 30 at .6 a few could be taken, not all
    assert some.tie(p, some.threshold(p, None)).nodes == 30
    assert Precision(at_least=0.93, confidence=0.9).tie(p, 0.95) is None


@pytest.mark.parametrize("alerts", [1, 37])
def test_no_more_hits_than_alerts_are_promised(alerts):
    rng = np.random.default_rng(0)
    y = (rng.random(2000) < 0.05).astype(int)
    scores = torch.tensor(np.where(y == 1, 6.0, -6.0))
    fitted = PriorPlattCalibrator(trained_shares=[0.95, 0.05], form_sd=0.5)
    fitted.fit(torch.stack([torch.zeros_like(scores), scores], 1), torch.tensor(y))
    tied = torch.cat([torch.full((alerts,), 6.0), torch.full((3000 - alerts,), -6.0)]).double()
    found = decide(Cost(), fitted, torch.stack([torch.zeros_like(tied), tied], 1))
    assert found.alerts == alerts
    assert found.hits.low <= found.hits.expected <= found.hits.high <= alerts
    assert found.precision.high <= 1


def problem(seed: int, n: int = 2000, labels: int = 400, residual_sd: float | None = 1.0):
    """A map fitted on some nodes, the logits of the others, and which of these are rare; P(rare) is known."""
    rng = np.random.default_rng(seed)
    score = rng.normal(-2.0, 2.0, n + labels)
    y = torch.from_numpy((rng.random(n + labels) < 1 / (1 + np.exp(-score))).astype(np.int64))
    logits = torch.stack([torch.zeros(n + labels), torch.from_numpy(score)], 1)
    fitted = PriorPlattCalibrator(residual_sd=residual_sd).fit(logits[:labels], y[:labels])
    return fitted, logits[labels:], (y[labels:] == 1).numpy()


@pytest.mark.slow
def test_expected_hits_are_sums_of_the_likeliest():
    fitted, logits, _ = problem(0, residual_sd=None)
    curve = budget_curve(fitted, logits)
    p = np.sort(fitted.predict_proba(logits)[:, 1].numpy())[::-1]
    assert curve.alerts[0] == 1
    assert curve.alerts[-1] == len(p)
    for alerts, expected in zip(curve.alerts, curve.expected, strict=True):
        assert expected == pytest.approx(p[:alerts].sum(), rel=1e-9)
    assert (np.diff(curve.expected) >= 0).all()
    assert (curve.low <= curve.high).all()


def test_observed_hits_are_counted_in_the_order_of_the_curve():
    fitted, logits, rare = problem(1, n=300)
    curve = budget_curve(fitted, logits)
    observed = curve.observed(rare)
    assert observed[-1] == pytest.approx(rare.sum())
    top = np.argsort(-fitted.predict_proba(logits)[:, 1].numpy(), kind="stable")[: curve.alerts[20]]
    assert observed[20] == pytest.approx(rare[top].sum())
    tied, mixed = budget_curve(fitted, logits.round()), np.random.default_rng(0).permutation(300)
    again = budget_curve(fitted, logits.round()[mixed]).observed(rare[mixed])
    assert again == pytest.approx(tied.observed(rare)), "the order of nodes of one P(rare) changes nothing"
    with pytest.raises(InputError, match=r"rare must have shape \[300\], got \[299\]"):
        curve.observed(rare[1:])


def test_what_cannot_be_drawn_is_refused():
    fitted, logits, _ = problem(2, n=10)
    with pytest.raises(InputError, match="there must be nodes, got none"):
        budget_curve(fitted, logits[:0])
    with pytest.raises(InputError, match=r"coverage must be in \(0, 1\), got 1"):
        budget_curve(fitted, logits, coverage=1)


def walks(sd: float, runs: int = 300, rare: float = 40.0, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Returns observed counts of seven periods whose level walks, and what calibration expects of the first six."""
    rng = np.random.default_rng(seed)
    levels = sd * rng.standard_normal((runs, 7)).cumsum(1)
    observed = rng.poisson(rare * np.exp(levels))
    expected = np.broadcast_to(observed[:, :6].mean(1, keepdims=True), (runs, 6))  # right on average
    return expected, observed


@pytest.mark.parametrize("sd", [0.0, 0.1, 0.3])
def test_the_next_period_is_covered_whatever_the_drift(sd):
    rng = np.random.default_rng(1)
    held, width = [], []
    for expected, observed in zip(*walks(sd), strict=True):
        mean, spread = next_period(expected, observed[:6])
        draws = rng.poisson(expected[0] * np.exp(mean + spread * rng.standard_normal(2000)))
        low, high = np.quantile(draws, [0.05, 0.95])
        held.append(low <= observed[6] <= high)
        width.append(spread)
    assert 0.84 < np.mean(held) < 0.97
    assert 0.9 * sd < np.mean(width) < sd + 0.16


def test_counts_of_later_nodes_follow_the_newest_labels():
    fitted, logits, _ = simulated(1)[0]
    p, rng = np.repeat(fitted.predict_proba(logits)[:, 1].numpy(), 5), np.random.default_rng(0)
    steady = Labelled(p, rng.random(len(p)) < p)
    rising = Labelled(p, rng.random(len(p)) < p * np.linspace(0.3, 1.7, len(p)))
    plain, same, more = (decide(Cost(), fitted, logits, earlier=each) for each in (None, steady, rising))
    assert plain.threshold == same.threshold
    assert same.misses.expected == pytest.approx(plain.misses.expected, rel=0.25)
    assert more.misses.expected > 1.2 * plain.misses.expected
    assert same.misses.high - same.misses.low > plain.misses.high - plain.misses.low
    assert "follow the newest labels" in more.sentence
    assert more.hits.high <= more.alerts
