"""Trees: what LightGBM itself says of the same labels, honesty of held-out logits, storage, and edge cases."""

from __future__ import annotations

import lightgbm
import numpy as np
import pytest
import torch
from sklearn.datasets import make_classification
from sklearn.ensemble import ExtraTreesClassifier

from calirare._util.errors import InputError
from calirare.models import class_weights, fold_of
from calirare.models.tree_ensembles import PSEUDO, SHRINKAGE, widened
from calirare.models.tree_growth import settings_of
from calirare.models.trees import TreesModel, TreesTraining
from tests.helpers.tolerance import assert_within, sum_bound

BOOSTING = TreesTraining("boosting", rounds=12, patience=0, leaves=5, folds=3)
FOREST = TreesTraining("extra", rounds=15, leaves=31, folds=3)
EARLY = TreesTraining("boosting", rounds=40, patience=3, leaves=5, folds=3)
KINDS = pytest.mark.parametrize("training", [BOOSTING, EARLY, FOREST], ids=["boosting", "early", "extra"])


def labels(m: int = 120, d: int = 6, k: int = 2, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Returns columns [m, d] that tell the classes apart, though not entirely, and the classes."""
    shares = [0.75] + [0.25 / (k - 1)] * (k - 1)
    x, y = make_classification(
        m, d, n_informative=d - 2, n_redundant=0, n_classes=k, weights=shares, flip_y=0.05, random_state=seed
    )
    return x.astype(np.float32), y.astype(np.int64)


def grown_on(training, columns, targets, n_classes, *, sample_weights=None, fold=None) -> TreesModel:
    found = training.labels_of(columns, targets, n_classes)
    return training.grow(found if sample_weights is None else found.weighed(sample_weights), fold=fold)


def all_logits(model: TreesModel, columns: np.ndarray) -> np.ndarray:
    return np.concatenate([model.logits(columns)[None], model.logits_without(columns)])


def within(actual: np.ndarray, expected: np.ndarray, magnitude: np.ndarray, terms: int, single: bool = False) -> None:
    """Asserts that numbers agree; `single`: where LightGBM had labels and weights in float32."""
    expected, magnitude = torch.from_numpy(expected), torch.from_numpy(magnitude)
    sums = torch.float32 if single else torch.float64
    bound = sum_bound(expected, terms, magnitude, out=torch.float64, accumulate=sums)
    assert_within(torch.from_numpy(actual), expected, bound)


class TestLightGbm:
    def test_boosted_log_odds_are_the_prior_and_the_trees_of_its_own_prediction(self):
        x, y = labels()
        model = grown_on(BOOSTING, x, y, 2)
        totals = np.bincount(y) + PSEUDO
        booster = lightgbm.Booster(model_str=model.all_labels.text)
        start, raw = np.log(totals[1] / totals[0]), booster.predict(x, raw_score=True)
        expected = np.stack([np.zeros(len(y)), start + raw], 1)
        within(model.logits(x), expected, np.abs(start) + np.abs(expected) + 1, 8)

    def test_the_logits_are_those_of_its_scikit_learn_interface(self):
        x, y = labels()
        weights = class_weights(torch.from_numpy(y), 2).numpy()[y]
        totals = np.bincount(y, weights) + PSEUDO
        start = np.log(totals[1] / totals[0])
        given = {"min_child_samples": 3, "min_child_weight": 1e-2, "reg_lambda": 5.0, "colsample_bytree": 0.5}
        given |= {
            "subsample": 0.7,
            "subsample_freq": 1,
            "max_bin": 63,
            "min_data_in_bin": 1,
            "deterministic": True,
            "force_col_wise": True,
            "n_jobs": 1,
        }
        twin = lightgbm.LGBMClassifier(
            n_estimators=12, num_leaves=5, learning_rate=0.08, random_state=0, verbosity=-1, **given
        )
        twin.fit(x, y, sample_weight=weights, init_score=np.full(len(y), start))
        logits = grown_on(BOOSTING, x, y, 2, sample_weights=weights).logits(x)[:, 1]
        want = start + twin.booster_.predict(x, raw_score=True)
        within(logits, want, np.abs(want) + 1, 8)


class TestForest:
    @pytest.mark.parametrize("k", [2, 3])
    def test_a_leaf_is_its_share_with_the_prior_as_further_labels(self, k):
        x, y = labels(k=k)
        model = grown_on(TreesTraining("extra", rounds=1, leaves=8, folds=2), x, y, k, sample_weights=np.ones(len(y)))
        prior = (np.bincount(y) + PSEUDO) / (len(y) + k * PSEUDO)
        z = model.logits(x)
        shares = torch.softmax(torch.from_numpy(z), 1).numpy() if k == 2 else np.exp(z)
        found = model.all_labels.leaves(x)[:, 0]
        assert len(np.unique(found)) > 3
        for leaf in np.unique(found):
            inside = found == leaf
            expected = (np.bincount(y[inside], minlength=k) + SHRINKAGE * prior) / (inside.sum() + SHRINKAGE)
            within(shares[inside], np.repeat(expected[None], inside.sum(), 0), np.ones((inside.sum(), k)), 24)

    @pytest.mark.parametrize("k", [2, 3])
    def test_it_is_the_mean_of_trees_that_lightgbm_reads(self, k):
        x, y = labels(k=k)
        model = grown_on(TreesTraining("extra", rounds=9, folds=2), x, y, k, sample_weights=np.ones(len(y)))
        prior = (np.bincount(y) + PSEUDO) / (len(y) + k * PSEUDO)
        shares = torch.softmax(torch.from_numpy(model.logits(x)), 1).numpy() if k == 2 else np.exp(model.logits(x))
        for c in range(k):
            booster = model.all_labels.booster_of(c)
            trees = np.stack([booster.predict(x, start_iteration=i, num_iteration=1) for i in range(9)])
            within(shares[:, c], prior[c] + trees.mean(0), prior[c] + np.abs(trees).mean(0) + 1, 24)

    @pytest.mark.parametrize("k", [2, 3])
    def test_rows_part_as_in_the_forest_of_scikit_learn(self, k):
        x, y = labels(k=k)
        model = grown_on(TreesTraining("extra", rounds=5, leaves=20, folds=2, seed=4), x, y, k)
        weights = class_weights(torch.from_numpy(y), k).numpy()[y]
        twin = ExtraTreesClassifier(5, min_samples_leaf=2, max_features=0.3, max_leaf_nodes=20, random_state=4)
        twin.fit(x, y, sample_weight=weights)
        rows = np.random.default_rng(0).normal(scale=2, size=(500, x.shape[1])).astype(np.float32)
        for mine, theirs in zip(model.all_labels.leaves(rows).T, twin.apply(rows).T, strict=True):
            assert len(np.unique(mine)) == len(np.unique(theirs)) == len(np.unique(np.stack([mine, theirs]), axis=1).T)


@KINDS
@pytest.mark.parametrize("k", [2, 3])
def test_logits_have_their_shapes_and_tell_the_classes_apart(training, k):
    x, y = labels(300, k=k)
    model = grown_on(training, x, y, k)
    assert (model.logits(x).shape, model.own_logits.shape) == ((300, k), (300, k))
    assert model.logits_without(x[:7]).shape == (3, 7, k)
    assert (k > 2) or not model.own_logits[:, 0].any()
    share = np.bincount(y, minlength=k).max() / 300
    shares = np.bincount(y, minlength=k) if training.kind == "boosting" else np.ones(k)
    even = model.own_logits - np.log(shares)  # in a world of equal classes
    balanced = [(even.argmax(1) == y)[y == c].mean() for c in range(k)]
    assert np.mean(balanced) > 1 / k + 0.15, (balanced, share)


@KINDS
def test_own_logits_are_those_of_the_trees_without_the_fold(training):
    x, y = labels()
    model = grown_on(training, x, y, 2)
    np.testing.assert_array_equal(model.fold, fold_of(torch.from_numpy(y), 3, 0).numpy())
    np.testing.assert_array_equal(model.own_logits, model.logits_without(x)[model.fold, np.arange(len(y))])
    assert np.abs(model.own_logits - model.logits(x)).max() > 0.1


@pytest.mark.parametrize("training", [BOOSTING, FOREST], ids=["boosting", "extra"])
def test_a_class_does_not_reach_the_logits_of_its_own_fold(training):
    x, y = labels()
    weights, fold = np.ones(len(y)), fold_of(torch.from_numpy(y), 3, 0).numpy()
    before = grown_on(training, x, y, 2, sample_weights=weights, fold=fold)
    flipped = np.where(fold == 1, 1 - y, y)
    after = grown_on(training, x, flipped, 2, sample_weights=weights, fold=fold)
    np.testing.assert_array_equal(before.logits_without(x)[1], after.logits_without(x)[1])
    np.testing.assert_array_equal(before.own_logits[fold == 1], after.own_logits[fold == 1])
    for other in (0, 2):  # and those of the others change: the comparison can fail
        assert (before.own_logits[fold == other] != after.own_logits[fold == other]).any()


def test_rounds_are_those_of_the_lowest_held_out_loss():
    x, y = labels(300)
    weights = np.random.default_rng(1).uniform(0.5, 2, len(y))
    model = grown_on(EARLY, x, y, 2, sample_weights=weights)
    assert model.rounds == int(np.argmin(model.losses)) + 1 < len(model.losses) <= EARLY.rounds
    z = model.own_logits[:, 1] * np.where(y == 1, -1, 1)
    loss = (weights * np.logaddexp(0, z)).sum() / weights.sum()
    within(np.array(model.losses[model.rounds - 1]), np.array(loss), np.array(loss + 1), 8, single=True)


@KINDS
@pytest.mark.parametrize("k", [2, 3])
def test_a_stored_model_predicts_to_the_last_bit(training, k):
    x, y = labels(k=k)
    model = grown_on(training, x, y, k)
    tensors, facts = model.state()
    again = TreesModel.from_state({name: t.clone() for name, t in tensors.items()}, facts)
    assert all_logits(model, x).tobytes() == all_logits(again, x).tobytes()
    assert (model.own_logits.tobytes(), model.fold.tobytes()) == (again.own_logits.tobytes(), again.fold.tobytes())
    assert (model.rounds, model.losses) == (again.rounds, again.losses)
    del tensors["trees.1"]
    with pytest.raises(InputError, match="train again"):
        TreesModel.from_state(tensors, facts)


@KINDS
def test_growing_side_by_side_changes_nothing_and_says_nothing(training, capfd, monkeypatch):
    """LightGBM keeps its level of words for each thread, and warns of trees that cannot grow, as here."""
    x, y = labels(60, 5)[0], np.arange(60) % 3
    found = []
    for threads in (1, 3):
        monkeypatch.setattr(torch, "get_num_threads", lambda n=threads: n)
        found.append(all_logits(grown_on(training, x, y, 3), x).tobytes())
    assert found[0] == found[1]
    assert capfd.readouterr() == ("", "")


@KINDS
@pytest.mark.parametrize("k", [2, 3])
def test_six_labels_two_of_them_rare(training, k):
    x, y = labels(6)[0], np.array([0, 0, 1, 0, 1, 0])
    model = grown_on(TreesTraining(**vars(training) | {"folds": 5}), x, y, k)
    assert model.logits_without(x).shape == (5, 6, k)
    assert np.isfinite(all_logits(model, x)).all()


@KINDS
def test_a_class_with_one_label_or_none_at_all_has_finite_logits(training):
    x, y = labels(40, k=2)
    y = np.where(np.arange(40) == 7, 2, y)  # absent from the trees without label 7; class 3 from all
    model = grown_on(training, x, y, 4)
    logits = all_logits(model, x)
    assert np.isfinite(logits).all()
    assert (logits.argmax(2) != 3).all()


@KINDS
def test_one_column_a_constant_one_and_nothing_but_constants(training):
    x, y = labels()
    assert np.isfinite(all_logits(grown_on(training, x[:, :1].copy(), y, 2), x[:, :1].copy())).all()
    with_constant = np.hstack([x, np.full((len(x), 1), 3, np.float32)])
    assert np.isfinite(all_logits(grown_on(training, with_constant, y, 2), with_constant)).all()
    constants = np.ones_like(x)
    logits = all_logits(grown_on(training, constants, y, 2), constants)
    assert np.isfinite(logits).all()
    assert (logits == logits[:, :1]).all()


def test_labels_weigh_alike_in_boosting_and_classes_in_a_forest():
    y = torch.from_numpy(labels()[1])
    assert BOOSTING.label_weights(y, 2).tolist() == [1.0] * 120
    assert torch.equal(FOREST.label_weights(y, 2), class_weights(y, 2)[y])


class TestRefused:
    @pytest.mark.parametrize("value", [np.nan, np.inf])
    def test_numbers_that_are_not_finite(self, value):
        x, y = labels()
        model = grown_on(BOOSTING, x, y, 2)
        x[3, 2] = value
        for call in (lambda: grown_on(BOOSTING, x, y, 2), lambda: model.logits(x), lambda: model.logits_without(x)):
            with pytest.raises(InputError, match=r"row 3 of column 2 is (nan|inf): fill missing values"):
                call()

    @pytest.mark.parametrize(
        "setting",
        [
            *({"rounds": 0}, {"patience": -1}, {"leaves": 1}, {"folds": 1}, {"seed": -1}),
            *({"learning_rate": 0.0}, {"learning_rate": 1.5}, {"kind": "bagging"}),
        ],
    )
    def test_settings(self, setting):
        with pytest.raises(ValueError, match=f"TreesTraining: {next(iter(setting))} must be"):
            TreesTraining(**setting)


@KINDS
def test_two_labels_are_too_few_to_hold_one_out_and_three_are_not(training):
    x, _ = labels(3)
    with pytest.raises(InputError, match="at least 2 labels must be left to learn from, got 2 labels in 2 folds"):
        grown_on(training, x[:2], np.array([0, 1]), 2)
    assert np.isfinite(grown_on(training, x, np.array([0, 1, 0]), 2).own_logits).all()


@KINDS
def test_no_threshold_lies_between_roundings_of_one_number(training):
    x, y = labels()
    third = np.float32(1) / np.float32(3)
    above = np.nextafter(third, np.float32(1))
    x[:, 0] = np.where(y == 1, above, third)  # as if rounding told the classes
    x[::7, 0] = 0
    model = grown_on(training, x, y, 2)
    rows = np.repeat(x[:10], 2, axis=0)
    rows[::2, 0], rows[1::2, 0] = third, above
    logits = model.logits(rows)
    np.testing.assert_array_equal(logits[::2], logits[1::2])


@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_text_is_that_of_trees_to_which_other_columns_are_constant(n_classes):
    rng = np.random.default_rng(n_classes)
    targets, columns = rng.integers(0, n_classes, 90), rng.normal(size=(90, 50)).astype(np.float32)
    columns[:, 12] += targets
    columns[:, 30] = 0.5  # used, and constant
    used = rng.random(50) < 0.5
    used[[12, 30]] = True
    given = {"num_leaves": 7, "learning_rate": 0.1, "seed": 3, "num_threads": 1}
    settings = settings_of(90, n_classes, **given)

    def grown(x):
        return lightgbm.train(settings, lightgbm.Dataset(x, targets, params=settings), 12)

    narrow, wide = grown(columns[:, used]), grown(np.where(used, columns, np.float32(0)))
    text = widened(narrow.model_to_string(), used)
    assert text == wide.model_to_string()
    again = lightgbm.Booster(model_str=text).predict(columns, num_threads=1)
    np.testing.assert_array_equal(again, narrow.predict(columns[:, used], num_threads=1))
