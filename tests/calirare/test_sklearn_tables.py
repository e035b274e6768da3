"""calirare.sklearn on tables without a graph: what is refused, and what is told."""

from __future__ import annotations

import datetime

import numpy as np
import pandas as pd
import pytest

from calirare._util.errors import LONGEST, InputError
from calirare.sklearn import GraphClassifier
from tests.helpers.tolerance import assert_alike

N = 60
Y = np.arange(N) % 3 == 0
DAYS = pd.date_range("2024-01-31", periods=N)


def quick() -> GraphClassifier:
    return GraphClassifier(model="gcn", epochs=3, folds=0)


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (pd.DataFrame({"b": range(N), "a": ["1"] * 7 + ["x"] * (N - 7)}), "column 'a' has 'x' in row 7 "),
        (pd.DataFrame({"a": pd.Categorical(["x", "y"] * (N // 2)), "b": range(N)}), "column 'a' has 'x' in row 0 "),
        (pd.DataFrame({"a": DAYS}), "column 'a' has '2024-01-31T00:00:00"),
        (
            pd.DataFrame({"a": DAYS.tz_localize("UTC"), "b": range(N)}),
            "column 'a' has '2024-01-31 00:00:00+00:00' in row 0 ",
        ),
        (pd.DataFrame({"a": [datetime.date(2024, 1, 31)] * N, "b": range(N)}), "column 'a' has '2024-01-31' in row 0 "),
        (pd.DataFrame({"a": pd.to_timedelta(range(N), unit="D"), "b": range(N)}), "column 'a' has "),
        (pd.DataFrame([["x", 1.0]] * N, columns=["a", "a"]), "column 'a' has 'x' in row 0 "),
        (np.array([[1.0, "x" * 400]] * N, dtype=object), "column 1 has 'xxxxxx"),
        ([["1", "x"]] * N, "column 1 has 'x' in row 0 "),
    ],
)
def test_what_is_no_number_is_named_with_its_column(table, words):
    with pytest.raises(InputError, match=r"^GraphClassifier: X must hold numbers, but ") as error:
        quick().fit(table, Y)
    assert words in str(error.value)
    assert "or take Graph.from_tables, which reads categories and dates" in str(error.value)
    assert len(str(error.value)) <= LONGEST


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


def test_rows_to_predict_are_checked_too():
    table = pd.DataFrame({"a": np.random.default_rng(0).normal(size=N), "b": range(N)})
    fitted = quick().fit(table, Y)
    with pytest.raises(InputError, match="column 'a' has 'x' in row 0 "):
        fitted.predict(table.assign(a="x"))
