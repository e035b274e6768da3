"""LightGBM on raw columns and on window aggregates: as it is, and calibrated in two ways."""

from __future__ import annotations

from collections.abc import Callable

import lightgbm
import numpy as np
import pandas as pd
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import average_precision_score

from transacting import windows
from transacting.sets import Table

LEAVES, MOST_TREES, PATIENCE = (7, 15, 63), 400, 40


def model(trees: int, leaves: int) -> lightgbm.LGBMClassifier:
    """Returns an untrained model."""
    rules = {"learning_rate": 0.05, "min_child_samples": 30, "subsample": 0.8, "subsample_freq": 1}
    return lightgbm.LGBMClassifier(
        n_estimators=trees, num_leaves=leaves, colsample_bytree=0.7, random_state=0, n_jobs=1, verbose=-1, **rules
    )


def tuned(x: pd.DataFrame, y: np.ndarray, train: slice, validation: slice) -> tuple[int, int]:
    """Returns the number of trees and leaves with the highest AUPRC of the validation part."""
    best = (-1.0, 1, LEAVES[0])
    for leaves in LEAVES:
        stop = lightgbm.early_stopping(PATIENCE, first_metric_only=True, verbose=False)
        fitted = model(MOST_TREES, leaves).fit(
            x[train],
            y[train],
            eval_set=[(x[validation], y[validation])],
            eval_metric=["average_precision"],
            callbacks=[stop],
        )
        trees = max(fitted.best_iteration_ or MOST_TREES, 10)
        found = average_precision_score(y[validation], fitted.predict_proba(x[validation], num_iteration=trees)[:, 1])
        best = max(best, (float(found), trees, leaves))
    return best[1], best[2]


def scores(table: Table, x: pd.DataFrame, calibration: str) -> np.ndarray:
    """Returns P(fraud) of the test part.

    Args:
        table: the table.
        x: its columns.
        calibration: "raw", trained on 80 %; "cross-validated", CalibratedClassifierCV with five folds of these;
            "newest block", trained on the first 60 % and calibrated (sigmoid) on the next 20 %.
    """
    y, (first, second) = table.frame["label"].to_numpy(), table.ends
    train, validation, both, test = slice(0, first), slice(first, second), slice(0, second), slice(second, None)
    fresh = model(*tuned(x, y, train, validation))
    if calibration == "raw":
        fitted = fresh.fit(x[both], y[both])
    elif calibration == "cross-validated":
        fitted = CalibratedClassifierCV(fresh, cv=5).fit(x[both], y[both])
    else:
        frozen = FrozenEstimator(fresh.fit(x[train], y[train]))
        fitted = CalibratedClassifierCV(frozen).fit(x[validation], y[validation])
    return fitted.predict_proba(x[test])[:, 1]


COLUMNS: dict[str, Callable[[Table], pd.DataFrame]] = {
    "raw columns": windows.raw,
    **{f"windows, {mode}": (lambda table, mode=mode: windows.windows(table, mode)) for mode in windows.MODES},
}
CALIBRATIONS = ("raw", "cross-validated", "newest block")
PEERS = {
    f"lightgbm, {columns}, {calibration}": (columns, calibration)
    for columns in COLUMNS
    for calibration in CALIBRATIONS
    if columns != "raw columns" or calibration == "raw"
}
