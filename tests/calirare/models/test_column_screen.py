"""Columns that trees are grown on where there are tens of thousands."""

from __future__ import annotations

import re

import numpy as np
import pytest
from scipy.stats import mannwhitneyu

from calirare.models import TreesTraining, column_screen
from calirare.models.column_screen import screened
from tests.calirare.models.test_trees import grown_on

RNG = np.random.default_rng


def wide(monkeypatch: pytest.MonkeyPatch, above: int, kept: int) -> None:
    monkeypatch.setattr(column_screen, "WIDE", above)
    monkeypatch.setattr(column_screen, "KEPT", kept)


def table(seed: int = 0, m: int = 60, d: int = 40) -> tuple[np.ndarray, np.ndarray]:
    rng = RNG(seed)
    targets = (rng.random(m) < 0.3).astype(np.int64)
    columns = rng.normal(size=(m, d)).astype(np.float32)
    columns[:, 7] += 2 * targets
    columns[:, 3] = np.exp(5 * (columns[:, 3] - 2 * targets))  # by rank as telling as the other, by its mean not
    return columns, targets


def test_columns_are_kept_by_wilcoxons_statistic(monkeypatch: pytest.MonkeyPatch) -> None:
    wide(monkeypatch, above=20, kept=5)
    monkeypatch.setattr(column_screen, "BLOCK", 700)  # eleven columns at a time
    columns, targets = table()
    (kept,) = screened(columns, targets, [np.arange(60)])
    p = [mannwhitneyu(c[targets == 1], c[targets == 0], method="asymptotic").pvalue for c in columns.T]
    assert kept is not None
    assert set(np.flatnonzero(kept)) == set(np.argsort(p)[:5])
    assert {3, 7} <= set(np.flatnonzero(kept))


def test_of_many_classes_each_has_its_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    wide(monkeypatch, above=20, kept=3)
    rng = RNG(1)
    targets = np.repeat([0, 1, 2], 20)
    columns = rng.normal(size=(60, 40)).astype(np.float32)
    for c, column in enumerate((5, 11, 30)):
        columns[:, column] += 3 * (targets == c)
    (kept,) = screened(columns, targets, [np.arange(60)])
    assert kept is not None
    assert np.flatnonzero(kept).tolist() == [5, 11, 30]


@pytest.mark.parametrize("kind", ["boosting", "extra"])
def test_trees_split_kept_columns_alone(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    wide(monkeypatch, above=20, kept=4)
    columns, targets = table()
    model = grown_on(TreesTraining(kind=kind, rounds=8, patience=0), columns, targets, 2)  # type: ignore[arg-type]
    kept = screened(columns, targets, [np.arange(60), *(np.flatnonzero(model.fold != f) for f in range(5))])
    for ensemble, own in zip((model.all_labels, *model.without), kept, strict=True):
        assert own is not None
        found = [re.findall(r"split_feature=([\d ]+)", text) for text in [ensemble.text]]
        split = {int(i) for each in found for part in each for i in part.split()}
        assert split
        assert split <= set(np.flatnonzero(own))


def test_a_label_does_not_choose_the_columns_of_its_own_logit(monkeypatch: pytest.MonkeyPatch) -> None:
    wide(monkeypatch, above=20, kept=4)
    columns, targets = table()
    fold = np.arange(60) % 5
    training = TreesTraining(rounds=6, patience=0)
    before = grown_on(training, columns, targets, 2, fold=fold).own_logits[10]
    other = targets.copy()
    other[fold == fold[10]] = 1 - other[fold == fold[10]]
    after = grown_on(training, columns, other, 2, fold=fold).own_logits[10]
    np.testing.assert_array_equal(before, after)
