from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import norm, rankdata

from calirare_multilabel import margins
from calirare_multilabel.margins import _sorted, pseudo_observations, smooth_cdf


@pytest.fixture
def tied() -> np.ndarray:
    rng = np.random.default_rng(1)
    return np.column_stack([rng.random(60), np.round(rng.random(60), 1), np.full(60, 0.25)])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_each_rule_counts_what_it_says(tied, dtype):
    f = tied.astype(dtype)
    with pytest.raises(ValueError, match="rule must be one of printed, empirical, midrank, got 'max'"):
        pseudo_observations(torch.from_numpy(f), "max")
    n = len(f)
    brute = {
        "printed": [[np.sum(f[i, j] <= f[:, j]) for j in range(3)] for i in range(n)],
        "empirical": [[np.sum(f[:, j] <= f[i, j]) for j in range(3)] for i in range(n)],
        "midrank": rankdata(f, method="average", axis=0),
    }
    for rule, ranks in brute.items():
        u, share = pseudo_observations(torch.from_numpy(f), rule)
        np.testing.assert_array_equal(u.numpy(), np.asarray(ranks) / (n + 1))
        assert share.tolist() == [0.0, 1.0, 1.0]


@pytest.mark.parametrize("rule", margins.CDF_RULES)
def test_the_path_for_other_devices_gives_the_same_numbers(tied, rule):
    for column in tied.T:
        expected = np.empty(len(column))
        share = margins._column_numpy(np.ascontiguousarray(column), rule, expected)
        u, torch_share = margins._column_torch(torch.from_numpy(column.copy()), rule)
        np.testing.assert_array_equal(u.numpy(), expected)
        assert float(torch_share) == share


def test_smooth_cdf_is_the_kernel_sum():
    x = np.random.default_rng(0).normal(size=(20, 2)) * [1.0, 30.0]
    h = 0.7 * x.std(0) * 20**-0.2
    expected = norm.cdf((x[:, None] - x[None]) / h).mean(1)
    np.testing.assert_allclose(smooth_cdf(torch.from_numpy(x), 0.7).numpy(), expected, rtol=1e-13, atol=0)


def test_smooth_cdf_has_the_right_gradient_where_the_step_function_has_none():
    x = torch.randn(12, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    weights = torch.randn(12, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    assert torch.autograd.gradcheck(lambda v: smooth_cdf(v, 1.0), (x,))
    (gradient,) = torch.autograd.grad((smooth_cdf(x, 1.0) * weights).sum(), x)
    assert float(gradient.abs().min()) > 1e-6
    moved, still = (pseudo_observations(x.detach() + step)[0] for step in (1e-7 * weights, 0.0))
    assert torch.equal(moved, still)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_smooth_cdf_of_a_constant_column_is_one_half_with_a_finite_gradient(dtype):
    x = torch.cat([torch.full((9, 1), 7.0), torch.arange(9.0)[:, None]], 1).to(dtype).requires_grad_()
    u = smooth_cdf(x, 1.0)
    assert u[:, 0].tolist() == [0.5] * 9
    (u * torch.arange(18.0).reshape(9, 2)).sum().backward()
    assert bool(torch.isfinite(x.grad).all())


def one_step_apart(n: int, dtype: type) -> np.ndarray:
    """Numbers whose upper bits are all the same, in falling order."""
    values = np.full(n, 0.7, dtype=dtype)
    for i in range(1, n):
        values[i] = np.nextafter(values[i - 1], dtype(0))
    return values


SORTED = {
    "uniform": np.random.default_rng(0).random(5000),
    "float32 ties": np.random.default_rng(2).integers(0, 9, 1000).astype(np.float32) / 8,
    "zeros and ones": np.array([1.0, 0.0, -0.0, 1.0, 0.5, 0.0, 5e-324, 2.2e-308, 1 - 1e-16, 0.0]),
    "many one step apart": one_step_apart(300, np.float64),
    "many one step apart, float32": one_step_apart(300, np.float32),
    "saturated": 1 - np.random.default_rng(4).random(2000) * 1e-13,
    "constant": np.full(40, 0.3),
}


@pytest.mark.parametrize("name", SORTED)
def test_sorting_value_and_place_as_one_number_is_exact(name):
    values = SORTED[name]
    order, ordered = _sorted(values)
    assert np.array_equal(ordered, np.sort(values))
    assert np.array_equal(values[order], ordered)
    assert np.array_equal(np.sort(order), np.arange(len(values)))
