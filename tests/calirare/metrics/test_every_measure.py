"""What is promised of every measure: weights, kinds of output, intervals, floors, devices."""

from __future__ import annotations

import inspect
import math

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import make_scorer

from calirare import metrics, plots

# Every measure of (y_true, p) as one number; those that need more say how.
MEASURES = {
    "ece": metrics.ece,
    "ece in L_3": lambda y, p, **more: metrics.ece(y, p, norm=3, **more),
    "mce": metrics.mce,
    "classwise_ece": metrics.classwise_ece,
    "class_ace": lambda y, p, **more: metrics.class_ace(y, p, 1, **more),
    "macro_ace": metrics.macro_ace,
    "auprc": metrics.auprc,
    "auroc": metrics.auroc,
    "precision_at": lambda y, p, **more: metrics.precision_at(y, p, 0.1, **more),
    "recall_at": lambda y, p, **more: metrics.recall_at(y, p, 0.1, **more),
    "nll": metrics.nll,
    "brier": metrics.brier,
    "reliability": lambda y, p, **more: metrics.brier_decomposition(y, p, **more).reliability,
    "resolution": lambda y, p, **more: metrics.brier_decomposition(y, p, **more).resolution,
    "slope": lambda y, p, **more: metrics.calibration_line(*_rare(y, p), **more).slope,
    "equal_mass_ece": lambda y, p, **more: metrics.equal_mass_ece(*_rare(y, p), **more),
    "in_the_large": lambda y, p, **more: metrics.calibration_in_the_large(*_rare(y, p), **more).ratio,
}
# Those that have bins of equal numbers, or draw among samples in the order of their confidence, too.
WITH_TIES = {
    "class_ace_noise_floor": lambda y, p, **more: metrics.class_ace_noise_floor(y, p, 1, n_draws=3, **more).mean,
    "macro_ace_noise_floor": lambda y, p, **more: metrics.macro_ace_noise_floor(y, p, n_draws=3, **more).mean,
    "precision_at a number": lambda y, p, **more: metrics.precision_at(y, p, 7, **more),
    "population_check": lambda y, p, **more: metrics.population_check(*_rare(y, p), **more).low,
    "share": lambda y, p, **more: metrics.calibration_in_the_large(*_rare(y, p), **more).upper,
}
# Bins of equal numbers of samples see weights, not copies.
NOT_COPIES = ("class_ace", "macro_ace")


def _rare(y, p):
    """Returns labels and probabilities of class 1."""
    return (y == 1) * 1, p[:, 1] if p.ndim == 2 else p


def example(kind: str, n: int = 150) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    if kind == "multiclass":
        p = rng.dirichlet([0.8, 0.8, 0.8], n)
        return p, (rng.random(n)[:, None] >= (p**0.7 / (p**0.7).sum(1, keepdims=True)).cumsum(1)[:, :2]).sum(1)
    p = rng.beta(0.7, 1.1, n)
    return p, (rng.random(p.shape) < p**0.7).astype(np.int64)


@pytest.fixture(params=["binary", "multiclass"])
def kind(request) -> str:
    return request.param


@pytest.mark.parametrize("name", MEASURES)
def test_weights_are_copies_or_at_least_shares(name, kind):
    measure, (p, y) = MEASURES[name], example(kind)
    plain = float(measure(y, p))
    assert math.isfinite(plain)
    equal = float(measure(y, p, weights=np.full(len(y), 2.5)))
    assert equal == pytest.approx(plain, rel=1e-9, abs=1e-12)
    w = np.random.default_rng(0).integers(0, 3, len(y)).astype(float)
    weighted = float(measure(y, p, weights=w))
    assert weighted != pytest.approx(plain, rel=1e-6, abs=0)
    if name in NOT_COPIES:
        kept = w > 0
        assert float(measure(y, p, weights=kept * 1.0)) == pytest.approx(float(measure(y[kept], p[kept])), rel=1e-12)
        return
    copies = np.repeat(np.arange(len(y)), w.astype(int))
    assert weighted == pytest.approx(float(measure(y[copies], p[copies])), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("name", [*MEASURES, *WITH_TIES])
def test_the_order_of_rows_changes_nothing_where_probabilities_are_tied(name, kind):
    measure, (p, y) = (MEASURES | WITH_TIES)[name], example(kind)
    p = p.round(1)
    p = p / p.sum(1, keepdims=True) if kind == "multiclass" else p
    w = np.random.default_rng(0).integers(0, 4, len(y)) / 2
    order = np.lexsort((w, y))  # the worst one: sorted by what happened
    for as_kind in (np.asarray, torch.from_numpy):
        for given in ({}, {"weights": w}):
            rows = [{key: as_kind(each[kept]) for key, each in given.items()} for kept in (slice(None), order)]
            values = (
                measure(as_kind(y), as_kind(p), **rows[0]),
                measure(as_kind(y[order]), as_kind(p[order]), **rows[1]),
            )
            assert float(values[1]) == pytest.approx(float(values[0]), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("name", MEASURES)
def test_torch_and_devices_give_the_same_number(name, kind, device):
    measure, (p, y) = MEASURES[name], example(kind)
    w = np.random.default_rng(0).random(len(y))
    there = [torch.from_numpy(a).to(device) for a in (p, y, w)]
    for given in ({}, {"weights": w}):
        found = measure(there[1], there[0], **({} if not given else {"weights": there[2]}))
        assert float(found) == pytest.approx(float(measure(y, p, **given)), rel=1e-9, abs=1e-12)
        if isinstance(found, torch.Tensor):
            assert (found.shape, found.dtype) == ((), torch.float64)
    if name in ("ece", "classwise_ece", "macro_ace", "nll", "brier"):
        assert measure(there[1], there[0].float()).dtype == torch.float32


def test_the_interval_of_a_weighted_mean_is_the_textbook_one():
    rng = np.random.default_rng(0)
    y, w = (rng.random(400) < 0.3).astype(int), rng.integers(0, 4, 400).astype(float)

    def share(labels, _, weights):
        assert bool((weights > 0).all())
        return float((weights * labels).sum() / weights.sum())

    lower, upper = metrics.bootstrap_interval(share, y, y, n_draws=2000, weights=w)
    mean = (w * y).sum() / w.sum()
    half = 1.96 * math.sqrt((w**2 * (y - mean) ** 2).sum()) / w.sum()
    assert abs(lower - (mean - half)) < 0.1 * half
    assert abs(upper - (mean + half)) < 0.1 * half
    ends = metrics.bootstrap_interval(share, y, y, n_draws=50, weights=w, stratify=True)
    assert 0 < ends.lower < ends.upper < 1


def test_jackknife_measures_take_weights_and_labels():
    u, c, w = np.array([0.2, 0.5, 0.9]), np.array([0.6, 0.5, 0.8]), np.array([1.0, 0.0, 3.0])
    assert metrics.eice(u, c, weights=w) == pytest.approx((0.4 + 3 * 0.1) / 4, rel=1e-12, abs=0)
    both = metrics.eice(np.stack((u, c), 1), np.stack((c, c), 1), weights=w)
    assert both == pytest.approx((0.4 + 3 * 0.1) / 8, rel=1e-12, abs=0)
    assert metrics.coverage([0.5, 0.5, 2], [0, 0, 0], [1, 1, 1], weights=w) == pytest.approx(0.25, rel=1e-12, abs=0)
    with pytest.raises(ValueError, match="coverage: weights must have shape"):
        metrics.coverage([0.5], [0], [1], weights=[1, 2])


FUNCTIONS = {name: each for name, each in vars(metrics).items() if inspect.isfunction(each)}
# Measures of labels and probabilities.
PAIRS = {name for name, each in FUNCTIONS.items() if list(inspect.signature(each).parameters)[:2] == ["y_true", "p"]}
Y, P = np.array([0, 1, 1, 0]), np.array([0.2, 0.7, 0.4, 0.1])


def test_no_measure_is_left_out():
    others = {"bootstrap_interval", "coverage"}  # y_true, but not p next
    truth_not_needed = {"eice", "equal_mass_noise_floor", "noise_floor"}
    assert set(FUNCTIONS) == PAIRS | others | truth_not_needed
    for name in others:
        parameters = list(inspect.signature(getattr(metrics, name)).parameters)
        assert parameters[parameters.index("y_true") - 1] in ("metric", parameters[-1])
    assert list(inspect.signature(plots.confidence_panel).parameters)[:3] == ["title", "y_true", "p"]


@pytest.mark.parametrize("kind", [np.asarray, torch.as_tensor, lambda a: a.tolist()])
@pytest.mark.parametrize("name", sorted(PAIRS))
def test_the_two_in_each_others_place_are_told(name, kind):
    columns = np.stack((1 - P, P), 1)
    more = (1,) if name.startswith("class_ace") or name.endswith("_at") else ()
    measure = getattr(metrics, name)
    for swapped in ((P, Y), (columns, Y), (np.round(P), Y)):
        with pytest.raises((TypeError, ValueError), match=rf"^{name}: .*the order is \(y_true, p\), labels before"):
            measure(*(kind(array) for array in swapped), *more)


def test_scikit_learn_makes_scorers_of_them():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 2))
    y = (rng.random(200) < 1 / (1 + np.exp(-x[:, 0]))).astype(int)
    model = LogisticRegression().fit(x, y)
    scorer = make_scorer(metrics.ece, response_method="predict_proba", greater_is_better=False, n_bins=10)
    assert scorer(model, x, y) == -metrics.ece(y, model.predict_proba(x)[:, 1], n_bins=10)
