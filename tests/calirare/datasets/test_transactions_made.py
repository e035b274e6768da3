"""Simulated card transactions: labels follow their probabilities, and fraud arises as each law says."""

from __future__ import annotations

from functools import cache

import numpy as np
import pandas as pd
import pytest

from calirare.datasets import LAWS, synthetic_transactions
from calirare.datasets import transactions as made

made_once = cache(synthetic_transactions)


def calibrated(y, p):
    """Returns whether labels are drawn with these probabilities: sums within 5 standard deviations in every group."""
    groups = np.array_split(np.argsort(p, kind="stable"), 12)
    return all(abs(y[g].sum() - p[g].sum()) <= 5 * np.sqrt((p[g] * (1 - p[g])).sum()) + 1 for g in groups)


@pytest.mark.parametrize("law", LAWS)
def test_labels_follow_the_probabilities_of_each_law(law):
    frame, p = made_once(40_000, 1, law)
    y = frame.is_fraud.to_numpy()
    assert p.shape == (40_000,)
    assert 0.005 < p.mean() < 0.06
    assert calibrated(y, p)
    assert not calibrated(y, p[::-1])
    assert not calibrated(y, 1.5 * p.clip(0, 0.6))
    assert frame.when.is_monotonic_increasing
    parties = ["card", "merchant", "device"]
    assert list(frame) == ["transaction", "when", *parties, "category", "channel", "amount", "is_fraud"]
    assert frame.transaction.is_unique
    assert frame.amount.min() > 0


def test_the_same_seed_gives_the_same_transactions():
    frame, p = synthetic_transactions(1000, 5, "drift")
    again, q = synthetic_transactions(1000, 5, "drift")
    pd.testing.assert_frame_equal(frame, again)
    assert (p == q).all()
    assert not frame.equals(synthetic_transactions(1000, 6, "drift")[0])


def test_fraud_grows_under_the_law_of_drift_only():
    growth = {}
    for law in LAWS:
        parts = np.array_split(made_once(40_000, 1, law)[1], 4)
        growth[law] = parts[-1].mean() / parts[0].mean()
    assert growth.pop("drift") > 5
    assert max(growth.values()) < 3


def test_cards_that_paid_at_a_compromised_terminal_are_at_risk_for_a_week():
    frame, p = made_once(40_000, 1, "compromised merchants")
    log_amount = np.log(frame.amount)
    plain = made.ORDINARY + made.ONLINE * (frame.channel == "online") + made.AMOUNT * (log_amount - log_amount.mean())
    added = np.log(p / (1 - p)) - plain.to_numpy()
    here, skimmed = abs(added - made.COMPROMISED) < 0.1, abs(added - made.SKIMMED) < 0.1
    assert (here | skimmed | (abs(added) < 0.1)).all()
    assert min(here.sum(), skimmed.sum()) > 100
    visits = frame.when.where(here).groupby(frame.card)
    last = visits.transform(lambda times: times.ffill().shift())
    week = (frame.when - last).dt.total_seconds() < 7 * made.DAY
    assert (skimmed == (week & ~here)).all()


@pytest.mark.parametrize(
    ("wrong", "part"), [({"rows": 999}, "rows"), ({"law": "ring"}, "rings"), ({"seed": -1}, "seed")]
)
def test_arguments_out_of_range_are_refused(wrong, part):
    with pytest.raises(ValueError, match=part):
        synthetic_transactions(**({"rows": 1000} | wrong))
