"""What a budget buys: expected hits are sums of P(rare) without a residual, and the promised band holds the truth."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from calirare._util.errors import InputError
from calirare.calibration import PriorPlattCalibrator, budget_curve


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
