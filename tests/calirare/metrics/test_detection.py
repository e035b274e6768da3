"""Measures of detection: by hand, by scikit-learn, by simulation; weights as copies, ties in expectation."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, roc_auc_score

from calirare import metrics
from calirare._util.measure_tables import detection_rows
from calirare.metrics import detection_report
from calirare.metrics.ranked import Ranked, share_interval

AT = (metrics.precision_at, metrics.recall_at)


def example(n: int = 400, share: float = 0.15, seed: int = 0, ties: bool = False) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = (rng.random(n) < share).astype(np.int64)
    p = 1 / (1 + np.exp(-(rng.normal(size=n) + 1.5 * y - 2)))
    return y, np.round(p, 1) if ties else p


def test_by_hand():
    # From the highest: rare, rest, rare, rest. Precision at the two rare ones 1 and 2/3.
    y, p = [1, 0, 1, 0], [0.9, 0.8, 0.7, 0.1]
    assert metrics.auprc(y, p) == pytest.approx((1 + 2 / 3) / 2, rel=1e-12)
    assert metrics.auroc(y, p) == pytest.approx(3 / 4, rel=1e-12)
    assert [metrics.precision_at(y, p, k) for k in (1, 2, 3, 4)] == pytest.approx([1, 1 / 2, 2 / 3, 1 / 2], rel=1e-12)
    assert [metrics.recall_at(y, p, k) for k in (1, 2, 3, 4)] == [0.5, 0.5, 1, 1]
    assert metrics.recall_at(y, p, 0.5) == metrics.recall_at(y, p, 2) == 0.5
    assert metrics.recall_at(y, p, 0.625) == 0.75, "half of the third place, which is rare"
    assert metrics.recall_at(y, p, 1.0) == 1


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_class_0_keeps_the_order_of_probabilities_near_0(dtype):
    rng = np.random.default_rng(4)
    y = (rng.random(2000) < 0.05).astype(np.int64)
    odds = rng.normal(size=2000) + y - 40
    p = np.exp(odds).astype(dtype)  # 1 - p is 1 for nearly all
    assert metrics.auroc(y, p, 0) == pytest.approx(roc_auc_score(1 - y, -odds), abs=1e-6)
    assert metrics.auprc(y, p, 0) == pytest.approx(average_precision_score(1 - y, -odds), abs=1e-6)
    assert metrics.detection_report(y, p, cls=0, n_draws=2)["auroc"] == pytest.approx(metrics.auroc(y, p), rel=1e-6)


@pytest.mark.parametrize("budget", [1, 2, 3, 4])
def test_ties_count_as_a_random_order_is_expected_to(budget):
    y, p = np.array([0, 1, 0, 1, 1]), np.array([0.9, 0.5, 0.5, 0.5, 0.1])
    hits = []
    for order in itertools.permutations([1, 2, 3]):
        hits.append(y[[0, *order, 4]][:budget].sum())
    assert metrics.precision_at(y, p, budget) == pytest.approx(np.mean(hits) / budget, rel=1e-12)
    assert metrics.recall_at(y, p, budget) == pytest.approx(np.mean(hits) / 3, rel=1e-12)


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_formula_of_the_resamples_is_scikit_learns(ties, weighted):
    y, p = example(ties=ties)
    w = np.random.default_rng(1).random(len(y)) + 0.1 if weighted else None
    ranked = Ranked.of(y == 1, p, w)
    ranking = ranked.ranking()
    assert ranked.n_cells <= 2 * y.sum() + 1
    ap, auc = (f(y, p, sample_weight=w) for f in (average_precision_score, roc_auc_score))
    assert ranking.auprc() == pytest.approx(ap, rel=1e-12)
    assert ranking.auroc() == pytest.approx(auc, rel=1e-12)
    assert metrics.auprc(y, p, weights=w) == pytest.approx(ap, rel=1e-12)
    assert metrics.auroc(y, p, weights=w) == pytest.approx(auc, rel=1e-12)
    assert ranking.auprc() != pytest.approx(average_precision_score(y, -p, sample_weight=w), rel=0.1), "it can fail"


@pytest.mark.parametrize("measure", AT)
def test_a_budget_counts_copies_where_there_are_weights(measure):
    y, p = example(ties=True)
    w = np.random.default_rng(0).integers(0, 3, len(y))
    copies = np.repeat(np.arange(len(y)), w)
    assert measure(y, p, 30, weights=w) == pytest.approx(measure(y[copies], p[copies], 30), rel=1e-9)


@pytest.mark.parametrize("measure", [metrics.auprc, metrics.auroc, *AT])
def test_columns_and_the_other_class(measure):
    y, p = example()
    more = (20,) if measure in AT else ()
    columns = np.stack((1 - p, p), 1)
    assert measure(y, columns, *more) == measure(y, p, *more), "class 1 of two"
    assert measure(y, columns, *more, cls=0) == measure(1 - y, 1 - p, *more)


def test_several_classes_are_means():
    rng = np.random.default_rng(0)
    p = rng.dirichlet([1, 1, 1, 1], 200)
    y = rng.integers(0, 3, 200)  # class 3 does not occur
    for measure, more in ((metrics.auprc, ()), (metrics.auroc, ()), (metrics.recall_at, (0.1,))):
        each = [measure((y == c).astype(int), p[:, c], *more) for c in range(3)]
        assert measure(y, p, *more) == pytest.approx(np.mean(each), rel=1e-12)
        assert measure(y, p, *more, cls=2) == each[2]


def test_refusals():
    y, p = [1, 0, 0], [0.5, 0.2, 0.1]
    for measure in (metrics.auprc, metrics.auroc):
        with pytest.raises(ValueError, match=f"{measure.__name__}: y_true must contain class 1"):
            measure([0, 0], [0.1, 0.2])
    with pytest.raises(ValueError, match="auroc: y_true must also hold samples of another class"):
        metrics.auroc([1, 1], [0.1, 0.2])
    for measure in AT:
        name = measure.__name__
        with pytest.raises(ValueError, match=f"{name}: budget must be at most the 3 samples"):
            measure(y, p, 4)
        with pytest.raises(ValueError, match=f"{name}: budget must be at least 1"):
            measure(y, p, 0)
        with pytest.raises(ValueError, match=rf"{name}: budget must be a proportion in \(0, 1\]"):
            measure(y, p, 2.5)
        with pytest.raises(TypeError, match=f"{name}: budget must be a whole number or a proportion"):
            measure(y, p, "many")


def test_the_report_holds_the_measures_and_their_intervals():
    y, p = example()
    report = metrics.detection_report(y, p, budgets=(0.05, 30, 1000), n_draws=200)
    assert report == metrics.detection_report(y, np.stack((1 - p, p), 1), budgets=(0.05, 30, 1000), n_draws=200)
    assert (report["n"], report["n_rare"], report["prevalence"]) == (400, y.sum(), y.mean())
    assert report["auprc"] == metrics.auprc(y, p)
    assert report["auroc"] == metrics.auroc(y, p)
    for at in report["budgets"][:2]:
        for measure in AT:
            name = measure.__name__.removesuffix("_at")
            assert at[name] == pytest.approx(measure(y, p, at["budget"]), rel=1e-12)
            assert at[f"{name}_lower"] < at[name] < at[f"{name}_upper"]
        assert at["lift"] == pytest.approx(at["precision"] / y.mean(), rel=1e-12)
    assert [at["nodes"] for at in report["budgets"]] == [20, 30, 400]
    everything = report["budgets"][2]
    assert (everything["share"], everything["recall"], everything["recall_lower"]) == (1, 1, 1)
    assert report["auprc_lower"] < report["auprc"] < report["auprc_upper"]
    assert metrics.detection_report(y, p, n_draws=20, seed=1) != metrics.detection_report(y, p, n_draws=20)
    every = metrics.detection_report([1, 1], [0.2, 0.3], n_draws=5, budgets=(1,))
    assert (every["auprc"], every["auroc"], every["budgets"][0]["lift"]) == (1, None, 1)
    three = metrics.detection_report([0, 1, 2, 1], np.eye(3)[[0, 1, 2, 0]] * 0.7 + 0.1, n_draws=5)
    assert three["macro_auprc"] == metrics.auprc([0, 1, 2, 1], np.eye(3)[[0, 1, 2, 0]] * 0.7 + 0.1)


def test_a_small_budget_full_of_hits_is_not_certain():
    y, p = np.array([1] * 20 + [0] * 80), np.linspace(1, 0, 100)
    (at,) = metrics.detection_report(y, p, budgets=(3,), n_draws=50)["budgets"]
    assert (at["precision"], at["recall"]) == (1, 0.15)
    assert at["precision_lower"] < 0.4, "three of three"
    assert at["recall_lower"] == pytest.approx(at["precision_lower"] * 3 / 20, rel=1e-12)


@pytest.mark.slow
def test_intervals_hold_the_truth_as_often_as_they_say():
    rng, truth = np.random.default_rng(0), None
    held = {"auprc": 0, "auroc": 0}
    places = np.array([100_000] + [200] * 60)
    for size in places:
        y = np.zeros(size, dtype=np.int64)
        y[: size // 10] = 1
        p = 1 / (1 + np.exp(-(rng.normal(size=size) + 1.5 * y)))
        if truth is None:
            truth = {"auprc": metrics.auprc(y, p), "auroc": metrics.auroc(y, p)}
            continue
        report = metrics.detection_report(y, p, n_draws=100, budgets=())
        for name in held:
            held[name] += report[f"{name}_lower"] <= truth[name] <= report[f"{name}_upper"]
    for name, count in held.items():
        assert 0.87 <= count / 60 <= 0.99, name


def test_intervals_of_shares():
    assert share_interval(0.5, np.array([0.4, 0.6]), 0.95, 1, 1) == (0, 1), "one sample says nothing"
    assert share_interval(1.0, np.ones(9), 0.95, 10, 10) == pytest.approx((0.025 ** (1 / 10), 1), rel=1e-9)
    low, high = share_interval(0.3, np.array([0.2, 0.4]), 0.95, 20, 20)
    assert 0 < low < 0.3 < high < 1


WEIGHTED = (
    lambda y, p, w: metrics.detection_report(y, p, n_draws=20, budgets=(), weights=w)["auroc_lower"],
    lambda y, p, w: metrics.calibration_in_the_large(y, p, weights=w),
)


@pytest.mark.parametrize("measure", WEIGHTED, ids=["report", "in_the_large"])
def test_only_ratios_of_weights_count_however_large(measure):
    y, p = example(ties=False)
    w = np.random.default_rng(2).uniform(0.1, 1, len(y))
    for size in (1e90, 1e-90, 1e300, 1e307, 1e-300):
        assert measure(y, p, w * size) == pytest.approx(measure(y, p, w), rel=1e-9)


@pytest.mark.parametrize(("n", "shown"), [(73, False), (100, True)])
def test_a_budget_of_less_than_a_node_is_not_shown(n, shown):
    y = (np.arange(n) % 9 == 0).astype(int)
    rows = detection_rows(detection_report(y, np.linspace(0, 1, n), n_draws=20))
    assert any("top 1 %" in row[0] for row in rows) is shown
    assert rows[0][0] == "AUPRC"
