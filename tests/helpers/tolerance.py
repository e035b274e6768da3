"""The one rule for how far a computed number may be off (no rtol, no atol).

For a sum of t terms, |error| <= u_out |y| + t u_acc S: u_out rounds the result once into its dtype, u_acc is the unit
roundoff of the arithmetic in between, and S is the same operator on absolute values in float64. S is zero only where
the result must be exactly zero, so a result of zeros never passes for small numbers (Higham 2002, section 3.1, with
gamma_t = t u / (1 - t u) and the denominator kept).

Chains of sums are one sum with the lengths added and S the chain on absolute values: (1 + g_s)(1 + g_t) - 1 <= g_{s+t}.
The expected result is a float64 sum of as many terms, and is allowed its own rounding.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def unit_roundoff(dtype: torch.dtype) -> float:
    """Returns u: a number rounded to nearest is off by at most u times its size."""
    return torch.finfo(dtype).eps / 2


def sum_bound(
    y: Tensor, terms: int | Tensor, magnitude: Tensor, *, out: torch.dtype, accumulate: torch.dtype | None = None
) -> Tensor:
    """Returns the bound on |error| of each element, float64.

    Args:
        y: the exact result, or the best known, float64.
        terms: t, how many roundings an element goes through; a number or a tensor that broadcasts to y.
        magnitude: S, float64, the shape of y.
        out: dtype of the result under test.
        accumulate: dtype its sums run in; None: `out`.
    """
    assert y.dtype == magnitude.dtype == torch.float64, "expected and magnitude are computed in float64"
    count = torch.as_tensor(terms, dtype=torch.float64, device=y.device)
    t = count * (unit_roundoff(accumulate or out) + unit_roundoff(torch.float64))
    assert bool((t < 0.1).all()), "a bound above a tenth of S would accept anything"
    underflow = torch.finfo(out).smallest_normal * unit_roundoff(out) * count * (magnitude > 0)
    return unit_roundoff(out) * y.abs() + t / (1 - t) * magnitude + underflow


def assert_within(actual: Tensor, expected: Tensor, bound: Tensor, what: str = "result") -> None:
    """Asserts |actual - expected| <= bound everywhere (expected and bound on the CPU), same shape, numbers finite."""
    assert actual.shape == expected.shape, f"{what}: shape {tuple(actual.shape)}, expected {tuple(expected.shape)}"
    if actual.numel() == 0:
        return
    assert bool(torch.isfinite(expected).all()), f"{what}: the expected result is not finite"
    assert bool(torch.isfinite(actual).all()), f"{what}: not finite"
    error = (actual.detach().cpu().double() - expected).abs()
    over = error > bound
    if bool(over.any()):
        worst = int((error - bound).flatten().argmax())
        place = tuple(int(i) for i in np.unravel_index(worst, error.shape))
        raise AssertionError(
            f"{what}: {int(over.sum())} of {over.numel()} elements are off; at {place} got {float(actual[place])!r}, "
            f"expected {float(expected[place])!r}, off by {float(error[place]):.3g}, allowed "
            f"{float(bound.expand_as(error)[place]):.3g}"
        )


TWICE = 1e-5  # of 1 + |expected|: rounding of float32 that training has carried on


def assert_alike(actual: Tensor | np.ndarray, expected: Tensor | np.ndarray, what: str = "result") -> None:
    """Asserts that what was trained or computed twice is the same but for rounding.

    Equal bits cannot be had: sums of a library depend on the address of a matrix and on the number of threads.
    """
    want = torch.as_tensor(expected).detach().cpu().double()
    assert_within(torch.as_tensor(actual), want, TWICE * (1 + want.abs()), what)


def assert_telling(expected: Tensor, bound: Tensor) -> None:
    """Asserts that the bound is a small part of the result, so that passing it proves something."""
    assert float(bound.norm()) <= 0.05 * float(expected.norm()), "the bound is too wide to judge by"


def assert_identical(actual: Tensor, expected: Tensor, what: str = "result") -> None:
    """Asserts the same dtype, shape and numbers, without any tolerance; a NaN equals a NaN."""
    assert actual.dtype == expected.dtype, f"{what}: {actual.dtype}, expected {expected.dtype}"
    assert actual.shape == expected.shape, f"{what}: shape {tuple(actual.shape)}, expected {tuple(expected.shape)}"
    same = (actual == expected) | ((actual != actual) & (expected != expected))
    if not bool(same.all()):
        place = tuple(int(i) for i in (~same).nonzero()[0])
        raise AssertionError(
            f"{what}: {int((~same).sum())} of {same.numel()} elements differ; at {place} got "
            f"{float(actual[place])!r}, expected {float(expected[place])!r}"
        )
