"""Interval ends from sorted residuals of each model are those of all samples."""

from __future__ import annotations

import pytest
import torch

from calirare.leave_one_out.ends import shared_interval
from calirare_ext import jackknife_interval


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("levels", [(0.0, 1.0), (0.5, 0.5), (0.031, 0.977)])
@pytest.mark.parametrize(("n_samples", "n_models", "kinds"), [(1, 1, 9), (7, 3, 9), (60, 5, 3), (331, 5, 10**6)])
def test_equal_to_all_samples(
    n_samples: int, n_models: int, kinds: int, levels: tuple[float, float], dtype: torch.dtype
) -> None:
    generator = torch.Generator().manual_seed(n_samples)
    scores = torch.rand(50, n_models, generator=generator, dtype=torch.float64).to(dtype)
    scores[0], scores[1], scores[2] = 0.0, 1.0, torch.nan
    residuals = (torch.randint(0, kinds, (n_samples,), generator=generator) / kinds).to(dtype)  # with ties
    models = torch.randint(0, n_models, (n_samples,), generator=generator)  # a model may have no label
    expected = jackknife_interval(scores[:, models], residuals, *levels)
    lower, upper = shared_interval(scores, residuals, models, levels)
    assert lower.dtype == dtype
    tolerance = 3e-7 if dtype == torch.float32 else 1e-14
    torch.testing.assert_close(lower, expected.lower, atol=tolerance, rtol=0, equal_nan=True)
    torch.testing.assert_close(upper, expected.upper, atol=tolerance, rtol=0, equal_nan=True)


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    scores, residuals, models = torch.rand(30, 2), torch.rand(40), torch.arange(40) % 2
    whole = shared_interval(scores, residuals, models, (0.1, 0.9))
    monkeypatch.setattr("calirare.leave_one_out.ends.BLOCK_NODES", 7)
    assert all(map(torch.equal, shared_interval(scores, residuals, models, (0.1, 0.9)), whole))
