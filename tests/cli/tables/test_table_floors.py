"""Every binned error of a table has its noise floor beside it."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from calirare import metrics
from calirare.cli.tables import TableColumns, evaluate_table

NAMES = ["ece", "mce", "classwise_ece"]


@pytest.mark.slow
def test_each_binned_error_is_printed_with_its_floor_behind_it(tmp_path):
    rng = np.random.default_rng(1)
    p = rng.beta(0.5, 1.5, 300)
    y = (rng.random(300) < p).astype(int)
    pd.DataFrame({"y": y, "p": p, "q": 1 - p}).to_csv(tmp_path / "preds.csv", index=False)
    report = evaluate_table(tmp_path / "preds.csv", TableColumns(before=("q",)), n_draws=3)
    names = list(report.values)
    for name in [*NAMES, "macro_ace"]:
        assert names[names.index(name) + 1] == f"{name}_noise_floor"
    before = report.measures["before"].values
    assert list(before) == names
    assert before["mce_noise_floor"] != report.values["mce_noise_floor"]
    assert report.values["mce_noise_floor"] == metrics.noise_floor(metrics.mce, p, n_draws=3).mean
