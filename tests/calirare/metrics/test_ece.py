from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from sklearn.calibration import calibration_curve

from calirare import metrics
from calirare.metrics.binning import adaptive_statistics, equal_frequency_bins, equal_width_bins


def brute_bin(p: float, n_bins: int, dtype=np.float64) -> int:
    """(m-1)/M < p <= m/M by trying every m."""
    if p == 0:
        return 0
    edges = (np.arange(n_bins + 1) / n_bins).astype(dtype)
    return next(m for m in range(n_bins) if edges[m] < p <= edges[m + 1])


def brute_error(scores, outcomes, n_bins: int, norm: float = 1, weights=None) -> float:
    weights = np.ones(len(scores)) if weights is None else np.asarray(weights)
    bins = np.array([brute_bin(s, n_bins) for s in scores])
    terms = []
    for m in set(bins.tolist()):
        w = weights[bins == m]
        gap = (
            abs(np.average(outcomes[bins == m], weights=w) - np.average(scores[bins == m], weights=w)) if w.sum() else 0
        )
        terms.append((w.sum() / weights.sum(), gap))
    if math.isinf(norm):
        return max(gap for _, gap in terms)
    return math.fsum(share * gap**norm for share, gap in terms) ** (1 / norm)


def shared(scores, outcomes) -> np.ndarray:
    """Returns the outcomes with the mean of its tie for each sample."""
    return np.array([outcomes[scores == score].mean() for score in scores])


def confidence_of(p: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    p = np.stack((1 - p, p), 1) if p.ndim == 1 else p
    return p.max(1), p.argmax(1) == y


@pytest.mark.parametrize("n_bins", [1, 3, 10, 100])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_bins_follow_the_definition_on_and_beside_every_edge(n_bins, dtype):
    edges = (np.arange(n_bins + 1) / n_bins).astype(dtype)
    scores = np.concatenate((edges, np.nextafter(edges[1:], dtype(0)), np.nextafter(edges[:-1], dtype(1))))
    expected = [brute_bin(s, n_bins, dtype) for s in scores]
    assert equal_width_bins(torch.from_numpy(scores), n_bins).tolist() == expected


def test_ece_by_hand():
    # Bins of width .5: {.6 right, .8 wrong} and nothing below: |.5 - .7| = .2. Four bins: .4/2 + .8/2 = .6.
    p, y = np.array([0.6, 0.2]), np.array([1, 1])
    assert metrics.ece(y, np.stack((1 - p, p), 1), n_bins=2) == pytest.approx(0.2, rel=1e-15, abs=0)
    # Of P(class 1), a bin each: |1 - .6| and |1 - .2|, in two bins as in four.
    assert metrics.ece(y, p, n_bins=4) == pytest.approx(0.6, rel=1e-15, abs=0)
    assert metrics.mce(y, p, n_bins=4) == pytest.approx(0.8, rel=1e-15, abs=0)
    assert metrics.ece(y, p, n_bins=4, norm=2) == pytest.approx(math.sqrt((0.16 + 0.64) / 2), rel=1e-15, abs=0)


@pytest.mark.parametrize(("norm", "reduced"), [(1, "l1"), (2, "l2"), (math.inf, "max")])
def test_ece_of_one_column_is_that_of_torchmetrics_and_scikit_learn(norm, reduced):
    rng = np.random.default_rng(0)
    p = rng.beta(0.4, 3, 5000)
    y = (rng.random(5000) < p**1.3).astype(int)
    # torchmetrics' _binning_bucketize and _ce_compute.
    at = np.searchsorted(np.linspace(0, 1, 16), p, side="right") - 1
    share = np.bincount(at, minlength=15) / len(p)
    mean_p, rate = (np.bincount(at, v, 15) / np.maximum(np.bincount(at, minlength=15), 1) for v in (p, y))
    gap = np.abs(rate - mean_p)
    expected = {"l1": (gap * share).sum(), "max": gap.max(), "l2": np.sqrt((gap**2 * share).sum())}[reduced]
    assert metrics.ece(y, p, norm=norm) == pytest.approx(expected, rel=1e-12)
    if norm == 1:
        rates, means = calibration_curve(y, p, n_bins=15)
        assert (np.abs(rates - means) * share[share > 0]).sum() == pytest.approx(metrics.ece(y, p), rel=1e-12)
    try:
        from torchmetrics.functional.classification import binary_calibration_error
    except ImportError:
        return
    theirs = binary_calibration_error(torch.from_numpy(p), torch.from_numpy(y), n_bins=15, norm=reduced)
    assert float(theirs) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("norm", [1, 2, 3.5, math.inf])
@pytest.mark.parametrize("n_bins", [1, 10, 15])
def test_ece_and_mce_against_the_definition(task, n_bins, norm, within_rounding):
    p, y = task
    expected = brute_error(*((p, y) if p.ndim == 1 else confidence_of(p, y)), n_bins, norm)
    within_rounding(metrics.ece(y, p, n_bins, norm), expected, terms=2 * len(p))
    if math.isinf(norm):
        assert metrics.mce(y, p, n_bins) == metrics.ece(y, p, n_bins, norm)


def test_classwise_ece_against_the_definition(task, within_rounding):
    p, y = task
    columns = np.stack((1 - p, p), 1) if p.ndim == 1 else p
    expected = np.mean([brute_error(columns[:, c], y == c, 15) for c in range(columns.shape[1])])
    within_rounding(metrics.classwise_ece(y, p, 15), expected, terms=2 * len(p))


def test_bins_cut_like_array_split():
    for n, n_bins in ((130, 20), (7, 7), (5, 20), (40, 20), (41, 20)):
        expected = np.concatenate(
            [np.full(len(part), i) for i, part in enumerate(np.array_split(np.arange(n), n_bins))]
        )
        assert equal_frequency_bins(n, n_bins, torch.device("cpu")).tolist() == expected.tolist()


def test_class_ace_against_the_definition(task, within_rounding):
    p, y = task
    confidence, correct = confidence_of(p, y)
    values = []
    for cls in range(int(y.max()) + 1):
        conf, right = confidence[y == cls], shared(confidence[y == cls], correct[y == cls])
        expected = 0.0
        for part in np.array_split(np.argsort(conf, kind="stable"), 20):
            expected += len(part) / len(conf) * abs(right[part].mean() - conf[part].mean())
        values.append(expected)
        within_rounding(metrics.class_ace(y, p, cls), expected, terms=2 * len(p))
    within_rounding(metrics.macro_ace(y, p), np.mean(values), terms=2 * len(p))


def test_equal_probabilities_share_their_labels_by_hand():
    # Two bins of two of [.2, .2, .2, .4]; each .2 has the label 1/3: |1/3 - .2| and |(1/3 + 0) / 2 - .3|.
    y, p = np.array([1, 0, 0, 0]), np.array([0.2, 0.2, 0.2, 0.4])

    def error(order, scores, weights=None):
        given = None if weights is None else torch.tensor(weights, dtype=torch.float64)
        found = adaptive_statistics(torch.from_numpy(scores[order]), torch.from_numpy(y[order]), 2, given)
        return float(found.gap.mean())

    expected = (abs(1 / 3 - 0.2) + abs(1 / 6 - 0.3)) / 2
    for order in ([0, 1, 2, 3], [3, 2, 1, 0]):
        assert error(order, p) == pytest.approx(expected, rel=1e-12)
        assert error(order, np.where(np.arange(4) == 1, np.nextafter(p, 1), p)) == pytest.approx(expected, rel=1e-12)
    # With weights 2, 1, 1, 4 each .2 has the weight 4/3 and of it 2/3 with label 1.
    weighted = (abs(1 / 2 - 0.2) + abs((2 / 3) / (16 / 3) - (0.8 / 3 + 1.6) / (16 / 3))) / 2
    assert error([0, 1, 2, 3], p, [2, 1, 1, 4]) == pytest.approx(weighted, rel=1e-12)


def test_ties_for_the_maximum_predict_the_first_class():
    assert metrics.ece([0], np.array([[0.5, 0.5]])) == 0.5
    assert metrics.ece([1], np.array([[0.5, 0.5]])) == 0.5
    assert metrics.class_ace([1], np.array([[0.4, 0.4, 0.2]]), 1) == 0.4
    assert metrics.class_ace([0], np.array([[0.4, 0.4, 0.2]]), 0) == 0.6
    assert metrics.class_ace([0], np.array([0.5]), 0) == 0.5


def test_ece_gradient():
    p = torch.tensor([[0.3, 0.7], [0.2, 0.8], [0.9, 0.1]], dtype=torch.float64, requires_grad=True)
    y = torch.tensor([1, 0, 1])
    (gradient,) = torch.autograd.grad(metrics.ece(y, p, n_bins=10), p)
    # Bins (.6, .7], (.7, .8], (.8, .9] hold one sample each; only the predicted class's entry moves its gap.
    expected = torch.tensor([[0, -1], [0, 1], [1, 0]], dtype=torch.float64) / 3
    assert torch.equal(gradient, expected)


BAD = [
    ([0.5, 1.5], [0, 1], {}, ValueError, "p must lie in .*: of logits take the sigmoid"),
    ([0.5, math.nan], [0, 1], {}, ValueError, "p must lie in"),
    ([0.5, 0.5], [0, 2], {}, ValueError, "y_true must lie in 0..1"),
    (
        [0.5, 0.5],
        [0, -1],
        {},
        ValueError,
        "got values from -1 to 0: number the classes from 0",
    ),
    ([0.5, 0.5], [0.5, 1], {}, TypeError, "y_true must be integers"),
    ([0.5, 0.5], [0], {}, ValueError, "y_true must have shape"),
    ([], [], {}, ValueError, "must not be empty"),
    ([[0.5, 0.2]], [0], {}, ValueError, "sum to 1 in every row"),
    (0.5, [1], {}, ValueError, "1-dimensional or 2-dimensional"),
    ([[1.0]], [0], {}, ValueError, "at least 2 columns"),
    (["a"], [0], {}, TypeError, "must hold real numbers, got dtype <U1: number the classes where these are names"),
    ([0.5], [np.inf], {}, TypeError, "y_true must be integers, got inf"),
    (np.ma.array([0.5, 0.6], mask=[0, 1]), [0, 1], {}, ValueError, "p must not be masked"),
    (torch.tensor([0.5]).half(), [0], {}, TypeError, "float32 or float64"),
    ([0.2, 0.7], [0, 0], {"n_bins": 0}, ValueError, "n_bins must be at least 1"),
    ([0.2, 0.7], [0, 0], {"n_bins": 10**9}, ValueError, "n_bins must be at most 10,000,000, got 1,000,000,000"),
    ([0.2, 0.7], [0, 0], {"norm": 0.5}, ValueError, "norm must be at least 1"),
    ([0.2, 0.7], [0, 0], {"weights": [1.0]}, ValueError, "weights must have shape"),
    *(([0.2, 0.7], [0, 0], {"weights": [w, w]}, ValueError, "weights must be finite") for w in (0, -1, np.inf, np.nan)),
    ([0.2, 0.7], [0, 0], {"cls": 1}, ValueError, "must contain class 1"),
    ([0.2, 0.7], [0, 0], {"cls": 2}, ValueError, r"cls must lie in 0\.\.1, got 2"),
    ([0.2, 0.7], [0, 1], {"cls": "1"}, TypeError, "class_ace: cls must be an integer, got '1'"),
]


@pytest.mark.parametrize(("p", "y", "settings", "error", "message"), BAD)
def test_bad_input_is_named(p, y, settings, error, message):
    with pytest.raises(error, match=message):
        (metrics.class_ace if "cls" in settings else metrics.ece)(y, p, **settings)
