"""What many columns held is what each alone did."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from calirare.drift import Reference, reference
from calirare.drift.numbers import NumbersThen
from calirare.features import FeatureMap
from calirare.graph import default_names, number_columns
from tests.helpers.tasks import rare_task
from tests.helpers.tolerance import assert_within, sum_bound


@pytest.mark.parametrize("n", [1, 2, 40, 700])
@pytest.mark.parametrize("n_patches", [1, 6, 1000])
def test_columns_together_are_those_of_each_alone(n, n_patches):
    rng = np.random.default_rng(n)
    rows, patch = rng.normal(size=(5, n)), rng.integers(0, n_patches, n)
    rows[1], rows[2], rows[3] = np.round(rows[1]), 7.5, patch + 0.1 * rows[3]
    for row, found in zip(rows, NumbersThen.of_rows(rows, patch), strict=True):
        alone = NumbersThen.of(row, patch)
        np.testing.assert_array_equal(found.quantiles, alone.quantiles)
        assert (found.n, found.gaps, found.gap_effect) == (alone.n, alone.gaps, alone.gap_effect)
        for name in ("effect", "tail_effect"):
            wanted = torch.tensor(getattr(alone, name), dtype=torch.float64)
            bound = sum_bound(wanted, 4 * n + 9, 1 + wanted.abs(), out=torch.float64)
            assert_within(torch.tensor(getattr(found, name), dtype=torch.float64), wanted, bound)


def test_a_summary_is_that_of_columns_one_by_one(monkeypatch):
    graph = rare_task()
    assert isinstance(graph.x, torch.Tensor)
    x = graph.x.clone()
    x[3, 2] = torch.nan
    graph = dataclasses.replace(graph, x=x, columns=number_columns(default_names(x.shape[1])), trusted=True)
    features = FeatureMap.fit(graph)
    given = graph, features, torch.rand(graph.n_nodes), torch.arange(20)
    together = Reference.of(*given)
    monkeypatch.setattr(reference, "TOGETHER", 1)
    alone = Reference.of(*given)
    assert list(together.columns) == list(alone.columns)
    for found, wanted in zip(together.columns.values(), alone.columns.values(), strict=True):
        assert isinstance(found, NumbersThen)
        assert isinstance(wanted, NumbersThen)
        np.testing.assert_array_equal(found.quantiles, wanted.quantiles)
        assert found.gaps == wanted.gaps
