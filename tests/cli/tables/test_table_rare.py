"""`calirare metrics`: budgets, and the rare class of a table."""

from __future__ import annotations

import argparse

import numpy as np
import pandas as pd
import pytest

from calirare import metrics
from calirare.cli.options import budget
from calirare.cli.tables import TableColumns, evaluate_table


@pytest.mark.parametrize(("text", "value"), [("100", 100), ("1", 1), ("1%", 0.01), ("0.02", 0.02), ("1.0", 1.0)])
def test_a_budget_is_a_number_or_a_share(text, value):
    assert budget(text) == value
    assert type(budget(text)) is type(value), "1 is one sample, 1.0 are all"


@pytest.mark.parametrize("text", ["0", "-3", "2.5", "0%", "101%", "many", "nan", "inf"])
def test_other_budgets_are_refused(text):
    with pytest.raises(argparse.ArgumentTypeError, match="must be a number of samples such as 100, or a share"):
        budget(text)


@pytest.mark.slow
def test_a_table_has_the_librarys_numbers(tmp_path):
    rng = np.random.default_rng(0)
    p = rng.beta(0.5, 3, 200)
    y = (rng.random(200) < p).astype(int)
    pd.DataFrame({"y": y, "p": p, "p0": 1 - p}).to_csv(tmp_path / "t.csv", index=False, float_format="%.17g")
    report = evaluate_table(tmp_path / "t.csv", n_draws=5, budgets=(10, 0.1))
    assert report.rare.detection == metrics.detection_report(y, p, budgets=(10, 0.1))
    assert report.rare.p_rare == metrics.rare_report(y, p, n_draws=5)
    other = evaluate_table(tmp_path / "t.csv", TableColumns(probabilities=("p0", "p"), minority=0), n_draws=5)
    assert other.rare.detection["prevalence"] == pytest.approx(1 - y.mean(), rel=1e-12)
