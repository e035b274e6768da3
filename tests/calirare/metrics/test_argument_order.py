"""Every measure takes (y_true, p), as scikit-learn's do, and says so to whoever does otherwise."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import make_scorer

from calirare import metrics, plots

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
    assert list(inspect.signature(plots.interval_diagram).parameters)[:4] == ["y_true", "p", "lower", "upper"]


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
