"""Targets of the compiled operators: what Python hands over is refused, or gives the numbers of plain torch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from calirare_ext import (
    Csr,
    LayerFactors,
    NodeGradients,
    confidence_bins,
    gcn_norm,
    jackknife_interval,
    propagate,
    row_sums,
)
from tests.fuzz.mutate import NUMBERS, REALS, odd_numbers, some
from tests.fuzz.oracles import refused


class Operators:
    """Targets on matrices of a few rows."""

    def __init__(self, folder: Path) -> None:
        del folder

    def fuzz_csr(self, rng: np.random.Generator) -> bool:
        indices = whole(rng, rng.integers(0, 5)).to(torch.int32)
        indptr = ends(rng, indices.numel())

        def multiply() -> None:
            n_cols = int(some(rng, NUMBERS if rng.random() < 0.2 else (3, 4, 5)))
            a = Csr(indptr, indices, torch.ones(indices.numel()), n_cols)
            if a.n_cols < 100:
                x = torch.randn(a.n_cols, 3, generator=torch.Generator().manual_seed(0))
                torch.testing.assert_close(propagate(a, x), a.to_dense() @ x)

        return refused(multiply, (ValueError,))

    def fuzz_factors(self, rng: np.random.Generator) -> bool:
        nodes = whole(rng, rng.integers(0, 4)).to(torch.int32)
        entry_ptr = ends(rng, nodes.numel())
        inputs, delta = torch.ones(4, 2), torch.ones(int(some(rng, [nodes.numel(), 2])), 1, 3)

        def pull_back() -> None:
            assert bool(torch.isfinite(NodeGradients((LayerFactors(entry_ptr, nodes, delta, inputs),)).dense()).all())

        return refused(pull_back, (ValueError,))

    def fuzz_interval(self, rng: np.random.Generator) -> bool:
        scores = torch.as_tensor(odd_numbers(rng, rng.normal(size=(4, 5)), native=True))
        residuals = torch.as_tensor(odd_numbers(rng, rng.random(5), native=True))
        ends = sorted((float(some(rng, (0, 0.05, 0.5, 0.95, 1))), float(some(rng, (*REALS, 0.9, 0.95)))))

        def work() -> None:
            found = jackknife_interval(scores, residuals, *ends)
            if bool(torch.isfinite(scores).all()) and bool(torch.isfinite(residuals).all()):
                for end, sign, q in ((found.lower, -1, ends[0]), (found.upper, 1, ends[1])):
                    samples = (scores + sign * residuals).double().numpy()
                    if not samples.size or not np.isfinite(samples).all() or np.abs(samples).max() > 1e30:
                        continue
                    expected = np.quantile(samples, q, axis=1)
                    error = np.abs(end.double().numpy() - expected)
                    assert (error <= 1e-5 * (1 + np.abs(samples).max())).all(), "numpy's quantile"

        return refused(work, (ValueError, TypeError))

    def fuzz_bins(self, rng: np.random.Generator) -> bool:
        p = torch.as_tensor(odd_numbers(rng, rng.dirichlet(np.ones(3), 8), native=True))
        labels = torch.as_tensor(odd_numbers(rng, rng.integers(0, 3, 8), native=True))
        n_bins = some(rng, (1, 2, 7, 15, 0, -1, 2**31, 2**62))

        def work() -> None:
            sums, left_out = confidence_bins(p, labels, n_bins)
            assert bool(torch.isfinite(sums).all())
            assert int(sums[0].sum()) + left_out == len(p), "every row is in a bin or left out"

        return refused(work, (ValueError, TypeError))

    def fuzz_norm(self, rng: np.random.Generator) -> bool:
        dense = (rng.random((4, 4)) < 0.5) * rng.random((4, 4))
        a = Csr.from_dense(torch.from_numpy(dense + dense.T))
        values = torch.as_tensor(odd_numbers(rng, a.values.numpy(), native=True))

        def work() -> None:
            b = Csr(a.indptr, a.indices, values, 4)
            if bool(torch.isfinite(values).all()) and values.is_floating_point() and bool((values >= 0).all()):
                assert bool(torch.isfinite(gcn_norm(b).values).all()), "finite"
            torch.testing.assert_close(row_sums(b), b.to_dense().double().sum(1), equal_nan=True)

        return refused(work, (ValueError, TypeError))


def whole(rng: np.random.Generator, size: int) -> Tensor:
    """A vector of whole numbers that begins at 0 and is small more often than not."""
    values = [0, *(int(some(rng, NUMBERS if rng.random() < 0.2 else (0, 1, 2, 3))) for _ in range(int(size)))]
    return torch.tensor(sorted(values) if rng.random() < 0.7 else values, dtype=torch.int64)


def ends(rng: np.random.Generator, total: int) -> Tensor:
    """Ends of rows, which mostly rise from 0 to the number of entries."""
    values = whole(rng, rng.integers(1, 5))
    if rng.random() < 0.7:
        values[-1] = total
    return values
