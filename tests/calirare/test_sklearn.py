"""calirare.sklearn: scikit-learn's own checks, and what they cannot see of nodes given by number."""

from __future__ import annotations

import dataclasses
import doctest
import re
from functools import cache, reduce
from operator import getitem
from pathlib import Path

import joblib
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch
from sklearn.datasets import make_classification
from sklearn.metrics import average_precision_score
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import estimator_checks
from sklearn.utils.estimator_checks import (
    check_dict_unchanged,
    check_estimators_pickle,
    check_fit2d_1feature,
    check_methods_sample_order_invariance,
    check_methods_subset_invariance,
    parametrize_with_checks,
)

import calirare
from calirare import Settings, Split
from calirare._util.errors import InputError
from calirare.leave_one_out import ALO
from calirare.run.schema import options_of
from calirare.sklearn import GraphClassifier
from tests.helpers.command import few_candidates, rough_runs
from tests.helpers.tasks import rare_task
from tests.helpers.tolerance import TWICE, assert_alike

ROOT = Path(__file__).resolve().parents[2]
QUICK = {"model": "gcn", "epochs": 12, "folds": 0}
GRAPH = rare_task()
Y = GRAPH.y.numpy()
SEEN, HELD_OUT = np.arange(0, 200), np.arange(200, 260)


@cache
def plain():
    """The quick classifier that tests compare with, and do not change."""
    return fitted()


@pytest.fixture
def of_float32(monkeypatch):
    """Scikit-learn compares a row with the same row of a batch to 1e-7, less than float32 rounds."""
    for name in ("assert_allclose", "assert_allclose_dense_sparse"):
        theirs = getattr(estimator_checks, name)
        of_ours = lambda *given, theirs=theirs, **more: theirs(*given, **(more | {"rtol": TWICE, "atol": TWICE}))  # noqa: E731
        monkeypatch.setattr(estimator_checks, name, of_ours)


def fitted(graph=GRAPH, y=Y, nodes=SEEN, **settings):
    return GraphClassifier(graph, **(QUICK | settings)).fit(nodes, y[nodes])


@pytest.mark.slow
@parametrize_with_checks([GraphClassifier(model="gcn", epochs=20, learning_rate=0.03, folds=0)])
def test_without_a_graph_every_check_of_scikit_learn_passes(estimator, check, of_float32):
    check(estimator)


# Of the default, an average of detectors, those checks that a row's own prediction, its gaps and a copy can break.
@pytest.mark.slow
@pytest.mark.parametrize(
    "check",
    [
        check_methods_subset_invariance,
        check_methods_sample_order_invariance,
        check_estimators_pickle,
        check_fit2d_1feature,
        check_dict_unchanged,
    ],
)
def test_the_default_passes_checks_of_scikit_learn(check, of_float32):
    with rough_runs(), few_candidates():
        check("GraphClassifier", GraphClassifier())


def test_defaults_are_those_of_the_library():
    plain = Settings.of().to_mapping()
    known = {option.name: reduce(getitem, option.path, plain) for option in options_of(Settings)}
    known |= {"loo": "alo", "preset": "default"}
    given = GraphClassifier().get_params()
    assert {name for name, value in given.items() if value != known.get(name, value)} == {"model", "scale"}
    assert given["model"] is given["scale"] is None, "that of the preset"
    assert given.keys() - known.keys() == {"graph", "random_state"}
    assert given["random_state"] == known["seed"]


@pytest.mark.parametrize("model", ["gcn", "trees"])
def test_the_prevalence_of_a_table_is_that_of_the_population_it_was_drawn_from(model):
    rng = np.random.default_rng(0)

    def drawn(common, rare):
        x = np.r_[rng.normal(0, 1, (common, 5)), rng.normal(0.8, 1, (rare, 5))]
        return x, np.r_[np.zeros(common, int), np.ones(rare, int)]

    (x, y), (all_x, all_y) = drawn(200, 200), drawn(9500, 500)
    how = {"model": model} | ({"folds": 0, "epochs": 40, "hidden": 8} if model == "gcn" else {})
    p = GraphClassifier(prevalence=0.05, **how).fit(x, y).predict_proba(all_x)[:, 1]
    plain = GraphClassifier(**how).fit(x, y)
    as_drawn = plain.predict_proba(all_x)[:, 1]
    assert as_drawn.mean() > 0.25
    assert p.mean() == pytest.approx(0.05, abs=0.015)
    odds = p / (1 - p) * (1 - as_drawn) / as_drawn
    assert odds == pytest.approx(np.full(10_000, 0.05 / 0.95), rel=1e-9)
    assert average_precision_score(all_y, p) == pytest.approx(average_precision_score(all_y, as_drawn))
    if model == "trees":
        return  # the rest is calibration, whatever the model
    told = GraphClassifier(prevalence=0.05, calibrate_for="balanced", **how).fit(x, y).predict_proba(all_x)
    of_none = GraphClassifier(calibrate_for="balanced", **how).fit(x, y).predict_proba(all_x)
    assert_alike(told, of_none)


def test_a_prevalence_is_of_two_classes_and_in_range():
    x, y = make_classification(90, 4, n_informative=3, n_redundant=0, n_classes=3, random_state=0)
    with pytest.raises(InputError, match="prevalence is of one of two classes, y has 3: leave it out"):
        GraphClassifier(model="gcn", prevalence=0.2).fit(x, y)
    with pytest.raises(InputError, match=r"prevalence must be in \(0, 1\), got 1.5"):
        GraphClassifier(model="gcn", prevalence=1.5).fit(x, y > 0)


def test_nodes_that_carry_edges_alone_are_not_of_the_population():
    scored = torch.arange(260) < 200  # the others are devices, say, and unlike accounts
    x = GRAPH.x + 1.5 * (~scored[:, None]).float()
    graph = dataclasses.replace(
        GRAPH, x=x, y=None, original_y=None, minority=None, split=None, scored=scored, notes=("told",)
    )
    nodes = SEEN[:120]
    classifier = GraphClassifier(graph, prevalence=0.3, **QUICK).fit(nodes, Y[nodes])
    assert classifier.predict_proba(SEEN)[:, 1].mean() == pytest.approx(0.3, rel=1e-6)
    assert classifier.outcome_.to_frame()["node"].tolist() == SEEN.tolist()
    assert classifier.outcome_.graph.notes == ("told",)
    for ask in (lambda: classifier.fit(HELD_OUT, Y[HELD_OUT]), lambda: classifier.predict([7, 231])):
        with pytest.raises(InputError, match=r"X must hold target nodes, but node '2(00|31)' is an auxiliary node"):
            ask()


@pytest.mark.slow
@pytest.mark.parametrize("model", ["gcn", "trees"])
def test_a_row_may_be_sparse_where_those_of_fit_were_dense_and_the_other_way_round(model):
    X, y = make_classification(90, 4, n_informative=3, n_redundant=0, random_state=0)
    X[np.abs(X) < 0.5] = 0
    sparse = scipy.sparse.csr_array(X)
    for learnt in (X, sparse):
        classifier = GraphClassifier(**(QUICK if model == "gcn" else {"model": model})).fit(learnt, y)
        assert_alike(classifier.predict_proba(X), classifier.predict_proba(sparse))


@pytest.mark.slow
def test_gaps_of_a_table_are_missing_values():
    X, y = make_classification(300, 5, n_informative=3, n_redundant=0, class_sep=2.0, random_state=0)
    X[np.random.default_rng(0).random(X.shape) < 0.1] = np.nan
    classifier = GraphClassifier(model="gcn", epochs=100, folds=0).fit(X[:200], y[:200])
    p = classifier.predict_proba(X[200:])[:, 1]
    assert np.isfinite(p).all()
    assert average_precision_score(y[200:], p) > 0.85
    with pytest.raises(ValueError, match="infinity"):
        classifier.predict(np.full((1, 5), np.inf))


def test_it_learns_what_train_learns_with_all_labels_for_training_and_calibration():
    classifier = fitted(loo=ALO(damping=0.01), random_state=3)
    none = torch.zeros(0, dtype=torch.int64)
    graph = GRAPH.with_split(Split(torch.from_numpy(SEEN), none, none))
    outcome = calirare.train(graph, **QUICK, calibrate_for="population", loo=ALO(damping=0.01), seed=3)
    want = outcome.calibrators["population"].transform(outcome.logits.double())
    assert_alike(classifier.predict_proba(np.arange(260)), want.numpy())
    assert_alike(classifier.outcome_.jackknife.ice, outcome.jackknife.ice)
    assert np.array_equal(classifier.predict(HELD_OUT), want.argmax(1).numpy()[HELD_OUT])


@pytest.mark.slow
def test_labels_of_held_out_nodes_have_no_effect():
    other = torch.from_numpy(np.concatenate([Y[SEEN], np.random.default_rng(0).permutation(Y[HELD_OUT])]))
    assert not torch.equal(other, GRAPH.y)
    blind = dataclasses.replace(GRAPH, y=None, original_y=None, minority=None, split=None)
    want = plain().predict_proba(HELD_OUT)
    for graph in (dataclasses.replace(GRAPH, y=other), blind):
        assert_alike(fitted(graph).predict_proba(HELD_OUT), want)
    y = Y.copy()
    y[SEEN[:20]] = 1 - y[SEEN[:20]]
    assert not np.array_equal(fitted(y=y).predict_proba(HELD_OUT), want), "the labels of X have one"


@pytest.mark.slow
def test_cross_validation_predicts_each_node_without_its_label():
    folds = StratifiedKFold(3, shuffle=True, random_state=0)
    got = cross_val_predict(GraphClassifier(GRAPH, **QUICK), SEEN, Y[SEEN], cv=folds, method="predict_proba")
    for kept, held in folds.split(SEEN, Y[SEEN]):
        assert_alike(got[held], fitted(nodes=SEEN[kept]).predict_proba(SEEN[held]))
    assert average_precision_score(Y[SEEN], got[:, 1]) > Y.mean() + 0.2


@pytest.mark.slow
def test_a_grid_search_by_pr_auc_takes_numpys_numbers_and_refits():
    grid = {"weight_decay": np.array([5e-4, 0.5]), "hidden": np.array([8])}
    search = GridSearchCV(GraphClassifier(GRAPH, **QUICK), grid, scoring="average_precision", cv=2)
    search.fit(SEEN, Y[SEEN])
    scores = search.cv_results_["mean_test_score"]
    assert scores[0] != scores[1]
    best = fitted(**search.best_params_)
    assert_alike(search.predict_proba(HELD_OUT), best.predict_proba(HELD_OUT))
    assert best.outcome_.model.hidden == 8
    assert search.score(HELD_OUT, Y[HELD_OUT]) > Y[HELD_OUT].mean() + 0.1


def test_a_classifier_mapped_from_a_file_predicts_the_same_without_a_warning(tmp_path):
    classifier = plain()
    joblib.dump(classifier, tmp_path / "it")
    read = joblib.load(tmp_path / "it", mmap_mode="r")  # arrays that must not be written to
    assert_alike(read.predict_proba(HELD_OUT), classifier.predict_proba(HELD_OUT))
    assert not [key for key, value in vars(read).items() if isinstance(value, np.memmap) and key != "classes_"]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_tensors_of_any_precision_with_a_gradient_or_without(dtype):
    X, y = make_classification(90, 4, n_informative=3, n_redundant=0, random_state=0)
    X = torch.from_numpy(X).to(dtype)
    want = GraphClassifier(**QUICK).fit(X.double().numpy(), y).predict_proba(X.double().numpy())
    got = GraphClassifier(**QUICK).fit(X.requires_grad_(), torch.from_numpy(y)).predict_proba(X)
    assert_alike(got, want)
    nodes = torch.from_numpy(HELD_OUT)
    assert_alike(plain().predict_proba(nodes.to(torch.int32)), plain().predict_proba(HELD_OUT))


@pytest.mark.slow
def test_columns_of_a_frame_keep_their_names_in_the_run():
    X, y = make_classification(90, 4, n_informative=3, n_redundant=0, random_state=0)
    frame = pd.DataFrame(X, columns=["amount", "age", "calls", "days"])
    named, plain = GraphClassifier(**QUICK).fit(frame, y), GraphClassifier(**QUICK).fit(X, y)
    assert [column.name for column in named.outcome_.features.columns] == list(frame)
    assert_alike(named.predict_proba(frame), plain.predict_proba(X))
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        assert_alike(named.predict_proba(X), plain.predict_proba(X))
    assert named.fit(X, y).outcome_.graph.feature_names == ()


@pytest.mark.parametrize(
    "setting", ["preset", "calibrate_for", "epochs", "hidden", "dropout", "folds", "loo", "device"]
)
def test_a_setting_that_cannot_be_left_out_is_not_none(setting):
    with pytest.raises(InputError, match=f"{setting}.*got None"):
        GraphClassifier(GRAPH, **(QUICK | {setting: None})).fit(SEEN, Y[SEEN])


@pytest.mark.parametrize(("rest", "rare"), [("genuine", "theft"), ("honest", "fraud"), (2, -1), (True, False)])
def test_labels_of_any_kind_rare_class_first_or_last(rest, rare):
    classifier, numbered = fitted(y=np.where(Y == 1, rare, rest)), plain()
    assert classifier.classes_.tolist() == sorted([rest, rare])
    order = [0, 1] if rest < rare else [1, 0]
    assert_alike(classifier.predict_proba(HELD_OUT), numbered.predict_proba(HELD_OUT)[:, order])
    sign = 1 if rest < rare else -1
    assert_alike(classifier.decision_function(HELD_OUT), sign * numbered.decision_function(HELD_OUT))
    assert np.array_equal(classifier.predict(HELD_OUT), np.where(numbered.predict(HELD_OUT) == 1, rare, rest))
    assert classifier.outcome_.graph.class_names == (str(rest), str(rare))


def test_three_classes():
    graph = rare_task(n_classes=3)
    names = np.array(["b", "c", "a"])[graph.y.numpy()]
    classifier = fitted(graph, names, epochs=60)
    assert classifier.classes_.tolist() == ["a", "b", "c"]
    assert classifier.decision_function(HELD_OUT).shape == (60, 3)
    assert classifier.score(HELD_OUT, names[HELD_OUT]) > 0.5
    assert np.abs(classifier.predict_proba(HELD_OUT).sum(1) - 1).max() < 1e-12


@pytest.mark.slow
def test_nodes_come_as_a_vector_a_column_a_list_or_whole_floats_in_any_order():
    want = plain().predict_proba(HELD_OUT)
    backwards = SEEN[::-1]
    for X in (backwards.tolist(), backwards[:, None], backwards.astype(float), pd.DataFrame({"node": backwards})):
        classifier = GraphClassifier(GRAPH, **QUICK).fit(X, Y[backwards])
        held_out = pd.DataFrame({"node": HELD_OUT}) if isinstance(X, pd.DataFrame) else HELD_OUT
        assert_alike(classifier.predict_proba(held_out), want)
        assert classifier.n_features_in_ == 1
    assert classifier.feature_names_in_.tolist() == ["node"]


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        (SEEN + 61, Y[SEEN], "X must hold node numbers from 0 to 259, got 260"),
        (SEEN - 1, Y[SEEN], "node numbers from 0 to 259, got -1"),
        (SEEN + 0.5, Y[SEEN], r"node numbers from 0 to 259, got 0\.5"),
        (SEEN // 2, Y[SEEN], "X must name a node once, got one twice"),
        (SEEN < 50, Y[SEEN], "one node number per row, got bool .*np.flatnonzero"),
        (GRAPH.x.numpy(), Y, r"one node number per row, got float32 of shape \(260, 6\)"),
        (SEEN, np.zeros(200), "y must have two classes or more, got 1 class, 0.0"),
        (
            np.array(["a7"] * 200),
            Y[SEEN],
            "X must hold node numbers, got the name 'a7': take the place of each name in",
        ),
    ],
)
def test_what_is_no_node_is_refused(X, y, message):
    with pytest.raises(ValueError, match=message):
        GraphClassifier(GRAPH, **QUICK).fit(X, y)


@pytest.mark.slow
def test_a_setting_that_plays_no_part_is_warned_about():
    with pytest.warns(UserWarning, match="hidden and folds changed nothing with model trees"):
        GraphClassifier(GRAPH, model="trees", hidden=8, folds=0).fit(SEEN, Y[SEEN])


@pytest.mark.slow
def test_random_state_is_the_seed_a_generator_or_none():
    first = fitted(random_state=np.random.RandomState(1)).predict_proba(HELD_OUT)
    assert_alike(first, fitted(random_state=np.random.RandomState(1)).predict_proba(HELD_OUT))
    for state in (np.random.RandomState(2), None, np.int64(4)):
        assert not np.array_equal(first, fitted(random_state=state).predict_proba(HELD_OUT))


@pytest.mark.slow
def test_a_table_dense_or_sparse_is_learned_and_new_rows_are_predicted():
    X, y = make_classification(600, 12, n_informative=6, weights=[0.85], class_sep=1.5, random_state=0)
    classifier = GraphClassifier(model="gcn", epochs=100, folds=0).fit(X[:400], y[:400])
    assert average_precision_score(y[400:], classifier.predict_proba(X[400:])[:, 1]) > 0.8
    assert make_pipeline(StandardScaler(), classifier).fit(X, y).score(X, y) > 0.9


@pytest.mark.slow
def test_the_page_shows_what_happens():
    page = ROOT / "docs" / "sklearn.md"
    assert re.search(r"^>>> ", page.read_text(), re.MULTILINE)
    with rough_runs(), few_candidates():
        assert doctest.testfile(str(page), module_relative=False).failed == 0
