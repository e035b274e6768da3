"""Every binned error of a table has its noise floor beside it."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from calirare import metrics
from calirare.cli.tables import TableColumns, evaluate_table
from calirare.cli.tables.noise_floors import table_noise_floors

NAMES = ["ece", "mce", "classwise_ece", "ace"]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("task", ["binary", "multiclass", "multilabel", "fewer rows than bins"])
def test_a_floor_is_what_the_measure_reads_on_drawn_labels(task, weighted):
    rng = np.random.default_rng(0)
    n = 7 if task == "fewer rows than bins" else 211
    p = {"multiclass": rng.dirichlet(np.ones(3), n), "multilabel": rng.random((n, 4))}.get(task, rng.beta(0.5, 2, n))
    weights = rng.integers(0, 3, n).astype(float) if weighted else None
    options = {"n_draws": 9, "seed": 5, "multilabel": task == "multilabel", "weights": weights}
    found = table_noise_floors(NAMES, p, 12, **options)
    for name in NAMES:
        bins = 20 if name == "ace" else 12

        def metric(y, q, *, name=name, bins=bins, **given):
            return getattr(metrics, name)(y, q, bins, **given)

        wanted = metrics.noise_floor(metric, p, **options).mean
        assert found[name] == pytest.approx(wanted, rel=1e-13, abs=0), name


@pytest.mark.slow
@pytest.mark.parametrize(
    "columns", [TableColumns(before=("q",)), TableColumns(labels=("y", "z"), probabilities=("p", "q"))]
)
def test_each_binned_error_is_printed_with_its_floor_behind_it(tmp_path, columns):
    rng = np.random.default_rng(1)
    p = rng.beta(0.5, 1.5, 300)
    y = (rng.random(300) < p).astype(int)
    pd.DataFrame({"y": y, "z": 1 - y, "p": p, "q": 1 - p}).to_csv(tmp_path / "preds.csv", index=False)
    report = evaluate_table(tmp_path / "preds.csv", columns, n_draws=3)
    names = list(report.values)
    for name in [*NAMES, "macro_ace"]:
        assert names[names.index(name) + 1] == f"{name}_noise_floor"
    if columns.before:
        assert list(report.before) == names
        assert report.before["mce_noise_floor"] != report.values["mce_noise_floor"]


@pytest.mark.slow
def test_chance_alone_reads_near_the_floor(tmp_path):
    rng = np.random.default_rng(2)
    p = rng.beta(0.5, 1.5, 2000)
    pd.DataFrame({"y": (rng.random(2000) < p).astype(int), "p": p}).to_csv(tmp_path / "preds.csv", index=False)
    values = evaluate_table(tmp_path / "preds.csv", n_draws=20).values
    for name in NAMES:
        assert 0.5 < values[name] / values[f"{name}_noise_floor"] < 2
