"""calirare.sklearn on tables without a graph: what is refused, and what is told."""

from __future__ import annotations

import datetime

import numpy as np
import pandas as pd
import pytest

from calirare.sklearn import GraphClassifier
from tests.helpers.tolerance import assert_alike

N = 60
Y = np.arange(N) % 3 == 0
DAYS = pd.date_range("2024-01-31", periods=N)


def quick() -> GraphClassifier:
    return GraphClassifier(model="gcn", epochs=3, folds=0)


@pytest.mark.parametrize(
    "table",
    [
        pd.DataFrame({"b": range(N), "a": ["1"] * 7 + ["x"] * (N - 7)}),
        pd.DataFrame({"a": DAYS}),
        pd.DataFrame({"a": DAYS.tz_localize("UTC"), "b": range(N)}),
        pd.DataFrame({"a": [datetime.date(2024, 1, 31)] * N, "b": range(N)}),
        pd.DataFrame({"a": pd.to_timedelta(range(N), unit="D"), "b": range(N)}),
        [["1", "x"]] * N,
    ],
)
def test_what_is_no_number_is_refused(table):
    with pytest.raises((TypeError, ValueError), match=r"(?i)number|numeric|convert|float"):
        quick().fit(table, Y)


def test_numbers_in_any_dress_are_taken():
    draw = np.random.default_rng(0).normal(size=N)
    dressed = pd.DataFrame(
        {
            "a": [*map(str, draw[:-1]), None],
            "b": pd.array([*range(N - 1), None], dtype="Int64"),
            "c": Y,
        }
    )
    plain = pd.DataFrame({"a": [*draw[:-1], np.nan], "b": [*map(float, range(N - 1)), np.nan], "c": Y.astype(float)})
    want = quick().fit(plain, Y).predict_proba(plain)
    assert_alike(quick().fit(dressed, Y).predict_proba(dressed), want)
