from __future__ import annotations

import dataclasses

import pytest
import torch
from torch.nn import functional as F

from calirare.leave_one_out import (
    ALO,
    OwnLogits,
    choose_damping,
    class_sets,
    leave_one_out,
    quality,
)
from calirare.models import GcnTraining, fit
from calirare_lab.leave_one_out import jackknife_plus
from tests.calirare.leave_one_out.cases import trained


def losses(tape, damping: float) -> torch.Tensor:
    return F.cross_entropy(OwnLogits(tape)(damping), tape.targets)


def losses_of_each(tape, damping: float) -> torch.Tensor:
    return F.cross_entropy(OwnLogits(tape)(damping), tape.targets, reduction="none")


def test_damping_is_raised_until_the_losses_agree() -> None:
    fitted, _ = trained()
    tape = fitted.linearisation
    every, ones = torch.ones(40, dtype=torch.bool), torch.ones(40)
    wanted = OwnLogits(tape)(3 * fitted.weight_decay)
    assert float(losses(tape, fitted.weight_decay)) > 1.1 * float(losses(tape, 3 * fitted.weight_decay))
    found = choose_damping(OwnLogits(tape), fitted.weight_decay, wanted, every, ones)
    assert found.verdict == "caution"
    assert found.damping == pytest.approx(3 * fitted.weight_decay, rel=0.01)
    assert found.loo == pytest.approx(found.held_out, rel=0.01)
    gaps = losses_of_each(tape, found.damping) - F.cross_entropy(wanted, tape.targets, reduction="none")
    assert found.standard_error == pytest.approx(float(gaps.std()) / 40**0.5, rel=1e-6)  # at the damping that is told
    assert f"standard error {found.standard_error:.3g}" in found.reason


def test_a_few_labels_that_overshoot_are_no_excuse() -> None:
    # One of three judges carries the gap: its size is the standard error's too, and twice that is above the gap.
    fitted, _ = trained()
    tape = fitted.linearisation
    wanted = OwnLogits(tape)(10 * fitted.weight_decay)
    gaps = losses_of_each(tape, fitted.weight_decay) - F.cross_entropy(wanted, tape.targets, reduction="none")
    judges = torch.zeros(40, dtype=torch.bool)
    judges[[int(gaps.argmax()), *gaps.abs().argsort()[:2].tolist()]] = True
    assert float(gaps[judges].mean()) < 2 * float(gaps[judges].std()) / 3**0.5
    found = choose_damping(OwnLogits(tape), fitted.weight_decay, wanted, judges, torch.ones(40))
    assert found.loo_at_weight_decay > 1.25 * found.held_out
    assert found.verdict == "caution"
    assert found.loo == pytest.approx(found.held_out, rel=0.01)


def test_agreement_at_the_weight_decay_is_left_alone() -> None:
    fitted, _ = trained()
    tape = fitted.linearisation
    every, ones = torch.ones(40, dtype=torch.bool), torch.ones(40)
    wanted = OwnLogits(tape)(fitted.weight_decay)
    found = choose_damping(OwnLogits(tape), fitted.weight_decay, wanted, every, ones)
    assert (found.verdict, found.damping) == ("trust", fitted.weight_decay)


def test_optimistic_leave_one_out_is_not_to_be_trusted() -> None:
    fitted, _ = trained()
    tape = fitted.linearisation
    every, ones = torch.ones(40, dtype=torch.bool), torch.ones(40)
    wrong = -3 * OwnLogits(tape)(fitted.weight_decay)
    found = choose_damping(OwnLogits(tape), fitted.weight_decay, wrong, every, ones)
    assert found.verdict == "do not trust"
    assert "optimistic" in found.reason


def test_quality_says_trust_and_why_not() -> None:
    fitted, graph = trained(2, 1)
    change = leave_one_out(fitted, graph)
    good = quality(fitted, change)
    assert good.verdict == "trust"
    assert good.stationarity < 1e-3
    assert good.in_sample_nll < good.loo_nll
    assert good.leverage_quantiles is not None
    assert good.leverage_quantiles[0] == pytest.approx(float(change.leverage.min()))
    far = quality(fitted, change, held_out_logits=10 * torch.randn(40, 2, generator=torch.Generator().manual_seed(0)))
    assert (far.verdict, "factor of two" in far.reason) == ("do not trust", True)
    some = leave_one_out(fitted, graph, ALO(n_models=3))
    assert "level may be off" in quality(fitted, some).reason
    early = fit(graph, fitted.nodes, GcnTraining(epochs=3, hidden=4, weight_decay=5e-3))
    assert "stopped far from a minimum" in quality(early, leave_one_out(early, graph)).reason
    odd = dataclasses.replace(change, leverage=change.leverage.clone().index_fill_(0, torch.tensor([2]), -3.0))
    assert quality(fitted, odd).reason.startswith("leverages lie in [-3.00,")


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


def test_sets_cover_each_class() -> None:
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
        sets = class_sets(loo, probabilities[:m], y[:m], 0.9)
        for c in (0, 1):
            covered[c].append(sets[y[m:] == c, c].double())
    rare = float(torch.cat(covered[1]).mean())
    both = float(torch.cat(covered[0] + covered[1]).mean())
    assert both >= 0.88
    assert abs(rare - 0.9) < 0.03


def test_coverage_out_of_range() -> None:
    with pytest.raises(ValueError, match="coverage must be in"):
        jackknife_plus(torch.ones(1, 2), torch.ones(2), 1.0)
