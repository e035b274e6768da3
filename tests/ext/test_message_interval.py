from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from calirare_ext import Csr, message_interval, reference
from tests.helpers.tolerance import assert_within

LEVELS = [(0.05, 0.95), (0.5, 0.3), (0.0, 1.0), (0.95, 0.05)]
# The link and the sums: roundings of a score in [0, 1], in units of the dtype's epsilon, with logits below 30.
ROUNDINGS = 60


def problem(
    n: int, r: int, m: int, dtype: torch.dtype, device: torch.device | str = "cpu"
) -> tuple[Csr, Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(n + r + m)
    a = torch.rand(n, r, generator=generator) * (torch.rand(n, r, generator=generator) < 0.2)
    parts = (torch.randn(r, m, generator=generator), torch.randn(n, generator=generator) * 3)
    parts += (torch.randn(m, generator=generator), torch.rand(m, generator=generator))
    messages, logits, shift, residuals = (part.to(dtype).to(device) for part in parts)
    return Csr.from_dense(a.to(dtype)).to(device), messages, logits, shift, residuals


@pytest.mark.parametrize("levels", LEVELS)
@pytest.mark.parametrize(("n", "m"), [(1, 1), (15, 2), (33, 80), (17, 140), (9, 1500)])
def test_ends_against_numpy_quantiles(dtype, levels, n, m, device) -> None:
    there = problem(n, 21, m, dtype, device)
    got = message_interval(*there, *levels, scale=1.3, bias=-0.2)
    assert all(ends.device == there[1].device for ends in got)
    a, messages, logits, shift, residuals = problem(n, 21, m, dtype)
    wide = Csr(a.indptr, a.indices, a.values.double(), a.n_cols)
    scores = reference.message_scores(wide, messages.double(), logits.double(), shift.double(), 1.3, -0.2).numpy()
    r = residuals.double().numpy()
    for ends, samples, level in zip(got, (scores - r, scores + r), levels, strict=True):
        want = torch.from_numpy(np.quantile(samples, level, axis=1))
        assert_within(ends, want, torch.full_like(want, ROUNDINGS * torch.finfo(dtype).eps))


def test_order_statistics_are_exact_for_ties_and_equal_scores(device) -> None:
    a = Csr.from_dense(torch.eye(3, dtype=torch.float64)).to(device)
    messages = torch.zeros(3, 7, dtype=torch.float64, device=device)  # every score is 1/2
    residuals = torch.tensor([0.25, 0.0, 0.25, 0.5, 0.0, 0.5, 0.125], dtype=torch.float64)
    logits, shift = messages.new_zeros(3), messages.new_zeros(7)
    ends = message_interval(a, messages, logits, shift, residuals.to(device), 0.3, 0.8)
    lower, upper = (end.cpu() for end in ends)
    assert torch.equal(lower, torch.full_like(lower, float(np.quantile(0.5 - residuals.numpy(), 0.3))))
    assert torch.equal(upper, torch.full_like(upper, float(np.quantile(0.5 + residuals.numpy(), 0.8))))


@pytest.mark.parametrize("m", [30, 1200])
def test_one_nan_gives_nan_ends_of_its_nodes_alone(m, device) -> None:
    a, messages, logits, shift, residuals = problem(40, 21, m, torch.float64, device)
    messages[4, 11] = float("nan")
    lower, upper = message_interval(a, messages, logits, shift, residuals, 0.1, 0.9)
    touched = a.to_dense()[:, 4] != 0
    assert 0 < int(touched.sum()) < 40
    assert torch.equal(lower.isnan(), touched)
    assert torch.equal(upper.isnan(), touched)


def test_columns_of_a_wider_matrix_and_two_runs_that_agree(dtype, device) -> None:
    a, messages, logits, shift, residuals = problem(17, 21, 70, dtype, device)
    wide = torch.full((21, 75), float("nan"), dtype=dtype, device=device)
    wide[:, 3:73] = messages
    first = message_interval(a, messages, logits, shift, residuals, 0.1, 0.9)
    again = message_interval(a, wide[:, 3:73], logits, shift, residuals, 0.1, 0.9)
    assert all(torch.equal(one, other) for one, other in zip(first, again, strict=True))


def test_bad_arguments_name_themselves() -> None:
    a, messages, logits, shift, residuals = problem(4, 5, 3, torch.float32)
    with pytest.raises(ValueError, match=r"q_upper must be in \[0.0, 1.0\], got 1.5"):
        message_interval(a, messages, logits, shift, residuals, 0.1, 1.5)
    with pytest.raises(ValueError, match=r"messages must have shape \[5, any\], got \[5\]"):
        message_interval(a, messages[:, 0], logits, shift, residuals, 0.1, 0.9)
    with pytest.raises(ValueError, match="messages must have at least one column"):
        message_interval(a, messages[:, :0], logits, shift[:0], residuals[:0], 0.1, 0.9)
    with pytest.raises(TypeError, match="logits must be float32"):
        message_interval(a, messages, logits.double(), shift, residuals, 0.1, 0.9)
    with pytest.raises(ValueError, match="contiguous rows"):
        message_interval(a, messages.T.contiguous().T, logits, shift, residuals, 0.1, 0.9)
