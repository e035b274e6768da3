"""P(rare) from known rare nodes alone: the share among the others, its refusals, and the map."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from calirare import InputError
from calirare.calibration import (
    PositiveOnlyCalibrator,
    Prevalence,
    count_draws,
    expected_count,
    rare_among_unlabelled,
    unlabelled_share,
    with_prevalence,
)
from calirare.calibration.positive_only import SUREST
from calirare.calibration.posterior import log_odds
from calirare_lab.calibrator_interval import probability_interval
from tests.helpers.logits import drawn_logits

SAME = 1e-9  # absolute, on probabilities
STEP = 1e-6  # of a central difference
NEAR = 1e-4  # relative, of a derivative by it


def scores(rng: np.random.Generator, known: int, n: int, share: float, apart: float) -> tuple[torch.Tensor, ...]:
    """Returns scores of known rare nodes and of others, and whether the others are rare."""
    y = rng.random(n) < share
    parts = rng.normal(apart, 1, known), rng.normal(0, 1, n) + apart * y, y
    return tuple(torch.from_numpy(part) for part in parts)


@pytest.mark.parametrize(("known", "share", "apart"), [(40, 0.03, 4.0), (200, 0.1, 3.0)])
def test_the_share_among_the_others_is_found(known, share, apart):
    rng = np.random.default_rng(0)
    ratios, inside = [], 0
    for _ in range(60):
        own, others, rare = scores(rng, known, 3000, share, apart)
        found, truth = rare_among_unlabelled(own, others), float(rare.double().mean())
        ratios.append(found.share / truth)
        inside += found.low <= truth <= found.high
    assert 0.8 <= np.median(ratios) <= 1.25
    assert inside >= 52


def test_what_cannot_be_told_is_refused_in_a_sentence():
    rng = np.random.default_rng(1)
    own, others, _ = scores(rng, 50, 2000, 0.05, 0.0)
    with pytest.raises(InputError, match=r"cannot be estimated.*look too much like the others.*--prevalence"):
        rare_among_unlabelled(own, others)
    with pytest.raises(InputError, match=r"9 known rare nodes are too few .*, at least 10"):
        rare_among_unlabelled(own[:9], others)
    with pytest.raises(InputError, match="no unlabelled node looks like"):
        rare_among_unlabelled(own + 100, others)


def test_a_prevalence_of_all_becomes_that_of_the_others():
    assert unlabelled_share(0.1, 50, 1000) == pytest.approx(50 / 950)
    with pytest.raises(InputError, match=r"0\.04 of 1,000 nodes makes 40 rare nodes, but 50 are known"):
        unlabelled_share(0.04, 50, 1000)


def known_and_drawn(rng: np.random.Generator, c: float = 0.25) -> tuple[torch.Tensor, ...]:
    """Returns logits of a network that tells known rare nodes from others, what is known, and what is rare."""
    y = (rng.random(20_000) < 0.08).astype(int)
    ratio = drawn_logits(y, rng, spread=3.0)[:, 1].numpy()
    p = 1 / (1 + np.exp(-(ratio + np.log(0.08 / 0.92))))
    known = (rng.random(len(y)) < c * y).astype(int)
    odds = np.log(c * p) - np.log1p(-c * p)
    z = np.stack([np.zeros(len(y)), odds - np.log(known.mean() / (1 - known.mean()))], 1)  # as class weights make it
    return torch.from_numpy(z), torch.from_numpy(known), torch.from_numpy(y)


def test_the_naive_p_is_times_too_low_and_ours_right():
    z, known, y = known_and_drawn(np.random.default_rng(2))
    others, of = known == 0, float(y[known == 0].double().mean())
    share = rare_among_unlabelled(z[~others][:, 1], z[others][:, 1])
    made = {"trained_shares": [0.5, 0.5], "sentence": "said"}
    ours = PositiveOnlyCalibrator.fit_known(z, known, share, target="population", **made)
    naive = ours.seen().fit(z, known).transform(z)[others, 1]
    p, rare = ours.transform(z)[others, 1], y[others].double()
    assert float(naive.mean()) < of / 2.5
    count = expected_count(ours, z[others], 0.95)
    assert count.low <= float(rare.sum()) <= count.high
    assert float(p.mean()) == pytest.approx(share.share, abs=1e-6)
    exact = PositiveOnlyCalibrator.fit_known(z, known, Prevalence(of, of, of, ""), target="population", **made)
    p = exact.transform(z)[others, 1]
    for part in torch.argsort(p, descending=True)[:1200].chunk(4):  # right among the likeliest, not on the whole alone
        assert float(p[part].mean()) == pytest.approx(float(rare[part].mean()), abs=0.09)
    balanced = PositiveOnlyCalibrator.fit_known(z, known, Prevalence(of, of, of, ""), target="balanced", **made)
    odds = balanced.calibrated_logits(z)[:, 1] + np.log(of / (1 - of))
    likely = p < 0.9
    assert torch.allclose(torch.sigmoid(odds)[others][likely], p[likely], atol=0.02, rtol=0)


def fitted(share: Prevalence) -> tuple[PositiveOnlyCalibrator, torch.Tensor]:
    z, known, _ = known_and_drawn(np.random.default_rng(3))
    made = {"target": "population", "trained_shares": [0.5, 0.5], "sentence": "said"}
    return PositiveOnlyCalibrator.fit_known(z, known, share, **made), z


def test_the_gradient_is_that_of_the_log_odds():
    ours, z = fitted(Prevalence(0.06, 0.03, 0.12, ""))
    z, theta = torch.cat([z[::200], z[z[:, 1].argmax()][None] + torch.tensor([0.0, 1.0])]), ours.theta_.clone()
    _, gradient = log_odds(ours, z)
    assert bool((gradient[:, 1] < 1).any())  # bent beyond the surest
    for place in range(3):
        moved = []
        for step in (STEP, -STEP):
            ours.theta_ = theta.clone()
            ours.theta_[place] += step
            moved.append(log_odds(ours, z)[0])
        slope = (moved[0] - moved[1]) / (2 * STEP)
        assert torch.allclose(slope, gradient[:, place], rtol=NEAR, atol=NEAR)


def test_the_surest_nodes_are_told_apart_and_none_is_certain():
    ours, z = fitted(Prevalence(0.06, 0.03, 0.12, ""))
    top = z[:, 1].max() + torch.arange(0, 12, 0.5)
    p = ours.transform(torch.stack([torch.zeros_like(top), top], 1))[:, 1]
    assert float(p[0]) < SUREST < float(p[1])
    assert bool((p.diff() > 0).all())
    assert float(p[-1]) < (1 + SUREST) / 2


def test_the_share_s_interval_is_in_p_and_a_known_share_leaves_less_open():
    wide, z = fitted(Prevalence(0.06, 0.03, 0.12, ""))
    exact, _ = fitted(Prevalence(0.06, 0.06, 0.06, ""))
    ends = [expected_count(each, z, 0.95) for each in (wide, exact)]
    assert ends[0].high / ends[0].low > 2.5 > 1.6 > ends[1].high / ends[1].low
    low, high = probability_interval(wide, z)
    p = wide.transform(z)[:, 1]
    assert bool(((low <= p + SAME) & (p <= high + SAME)).all())
    told = with_prevalence(wide, z, 0.2)
    assert float(told.transform(z)[:, 1].mean()) == pytest.approx(0.2, abs=1e-6)


def test_doubt_of_the_share_scales_the_hits_and_reaches_all_alerts():
    wide, z = fitted(Prevalence(0.06, 0.03, 0.12, ""))
    alerts = (wide.transform(z)[:, 1] >= 0.5).long()
    expected, draws = count_draws(wide, z, alerts, 2)
    low, high = np.quantile(draws[:, 1], [0.025, 0.975])
    assert low < 0.75 * expected[1]
    assert high == int(alerts.sum())
    assert np.quantile(draws.sum(1), 0.975) < 0.12 * len(z)  # no more than the upper end of the share itself
    exact, _ = fitted(Prevalence(0.06, 0.06, 0.06, ""))
    known = np.quantile(count_draws(exact, z, alerts, 2)[1][:, 1], [0.025, 0.975])
    assert known[1] - known[0] < 0.6 * (high - low)


def test_a_map_comes_back_from_its_state():
    ours, z = fitted(Prevalence(0.06, 0.03, 0.12, ""))
    again = PositiveOnlyCalibrator.from_state(ours.state())
    assert torch.equal(again.transform(z), ours.transform(z))
    assert again.sentence_ == "said"
    assert ours.fit(z, (z[:, 1] > 0).long()).lift_ is None  # fitted anew it is a map of the labels that are seen
