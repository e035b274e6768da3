"""`calirare metrics`: budgets, and the rare class of a table."""

from __future__ import annotations

import argparse

import numpy as np
import pandas as pd
import pytest

from calirare._util.errors import InputError
from calirare.cli.options import budget
from calirare.cli.tables import TableColumns, load_table


@pytest.mark.parametrize(("text", "value"), [("100", 100), ("1", 1), ("1%", 0.01), ("0.02", 0.02), ("1.0", 1.0)])
def test_a_budget_is_a_number_or_a_share(text, value):
    assert budget(text) == value
    assert type(budget(text)) is type(value), "1 is one sample, 1.0 are all"


@pytest.mark.parametrize("text", ["0", "-3", "2.5", "0%", "101%", "many", "nan", "inf"])
def test_other_budgets_are_refused(text):
    with pytest.raises(argparse.ArgumentTypeError, match="must be a number of samples such as 100, or a share"):
        budget(text)


def test_names_of_classes_that_a_table_shows_as_numbers_are_found(tmp_path):
    p = np.tile([0.9, 0.2, 0.6, 0.3], 10)
    names = np.tile(["007", "1e5", "007", "1e5"], 10)
    pd.DataFrame({"y": names, "p_007": p, "p_1e5": 1 - p}).to_csv(tmp_path / "t.csv", index=False)
    pd.DataFrame({"y": names == "1e5", "p": 1 - p}).to_csv(tmp_path / "plain.csv", index=False)
    one = TableColumns(probabilities=("p_1e5",), minority="1e5")
    both = TableColumns(probabilities=("p_007", "p_1e5"), minority="1e5")
    want = load_table(tmp_path / "plain.csv")
    for columns in (one, both):
        found = load_table(tmp_path / "t.csv", columns)
        assert found.labels.tolist() == want.labels.tolist()
        assert found.minority == 1
    twice = pd.DataFrame({"y": [7, 7, 100000], "p_007": 0.5, "p_07": 0.25, "p_1e5": 0.25})
    twice.to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(InputError, match=r"must hold classes that have a column, 007, 07, 1e5, got .*7"):
        load_table(tmp_path / "t.csv", TableColumns(probabilities=("p_007", "p_07", "p_1e5")))
