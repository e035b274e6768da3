from __future__ import annotations

import pytest
import torch

from calirare.leave_one_out import class_sets, jackknife_plus


def ridge(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.linalg.solve(x.T @ x + 0.1 * torch.eye(x.shape[1], dtype=x.dtype), x.T @ y)


@pytest.mark.slow
@pytest.mark.parametrize("coverage", [0.8, 0.9])
def test_coverage_of_jackknife_plus_with_exact_leave_one_out(coverage: float) -> None:
    generator = torch.Generator().manual_seed(0)
    inside = []
    for _ in range(150):
        x = torch.randn(50, 8, generator=generator, dtype=torch.float64)
        y = x[:, 0] + torch.randn(50, generator=generator, dtype=torch.float64)
        m = 30
        models = [ridge(x[:m][torch.arange(m) != i], y[:m][torch.arange(m) != i]) for i in range(m)]
        theta = torch.stack(models, 1)
        scores = x[m:] @ theta
        residuals = (y[:m] - (x[:m] * theta.T).sum(1)).abs()
        lower, upper = jackknife_plus(scores, residuals, coverage)
        inside.append(((lower <= y[m:]) & (y[m:] <= upper)).double().mean())
    mean = float(torch.stack(inside).mean())
    assert mean >= 2 * coverage - 1  # the guarantee
    assert abs(mean - coverage) < 0.04  # what happens; standard error about .01


def test_order_statistics_by_hand() -> None:
    scores = torch.tensor([[1.0, 2.0, 3.0, 4.0]])
    residuals = torch.tensor([0.5, 0.1, 0.2, 0.3])
    lower, upper = jackknife_plus(scores, residuals, 0.6)  # rank 3 of 4 upwards
    assert float(upper) == pytest.approx(3.2)  # 1.5, 2.1, 3.2, 4.3
    assert float(lower) == pytest.approx(1.9)  # .5, 1.9, 2.8, 3.7: third from above
    lower, upper = jackknife_plus(scores, residuals, 0.9)  # rank 5 of 4
    assert float(upper) == float("inf")
    assert float(lower) == float("-inf")


@pytest.mark.parametrize("per_class", [True, False])
def test_sets_cover_each_class(per_class: bool) -> None:
    """Split conformal as a special case: one model that saw none of the labels, so exchangeability is exact."""
    generator = torch.Generator().manual_seed(1)
    covered = {0: [], 1: []}
    for _ in range(120):
        score = torch.randn(300, generator=generator, dtype=torch.float64)
        y = (torch.rand(300, generator=generator) < torch.sigmoid(2 * score - 2)).long()
        p1 = torch.sigmoid(1.0 * score - 1)  # miscalibrated on purpose
        probabilities = torch.stack([1 - p1, p1], 1)
        m = 200
        loo = probabilities[m:, :, None].expand(-1, -1, m)
        sets = class_sets(loo, probabilities[:m], y[:m], 0.9, per_class=per_class)
        for c in (0, 1):
            covered[c].append(sets[y[m:] == c, c].double())
    rare = float(torch.cat(covered[1]).mean())
    both = float(torch.cat(covered[0] + covered[1]).mean())
    assert both >= 0.88
    if per_class:
        assert abs(rare - 0.9) < 0.03
    else:
        assert rare < 0.85  # what the Mondrian variant is for


def test_coverage_out_of_range() -> None:
    with pytest.raises(ValueError, match="coverage must be in"):
        jackknife_plus(torch.ones(1, 2), torch.ones(2), 1.0)
