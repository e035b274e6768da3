from __future__ import annotations

import dataclasses

import pytest
import torch
from torch.nn import functional as F

from calirare.leave_one_out import (
    ALO,
    Diagnostics,
    Influence,
    OwnLogits,
    choose_damping,
    leave_one_out,
    quality,
)
from calirare.models import GcnTraining, fit
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
    plain = leave_one_out(fitted, graph, Influence())
    assert quality(fitted, plain).verdict == "do not trust"
    far = quality(fitted, change, held_out_logits=10 * torch.randn(40, 2, generator=torch.Generator().manual_seed(0)))
    assert (far.verdict, "factor of two" in far.reason) == ("do not trust", True)
    some = leave_one_out(fitted, graph, ALO(n_models=3))
    assert "level may be off" in quality(fitted, some).reason
    early = fit(graph, fitted.nodes, GcnTraining(epochs=3, hidden=4, weight_decay=5e-3))
    assert "stopped far from a minimum" in quality(early, leave_one_out(early, graph)).reason
    for lowest, verdict in ((-0.0050001, "trust"), (-0.0055, "caution"), (-0.01, "do not trust")):
        bent = dataclasses.replace(change, diagnostics=Diagnostics("newton", "lowrank", 5e-3, lowest_curvature=lowest))
        said = quality(fitted, bent)
        assert said.verdict == verdict
        assert ("saddle" in said.reason) == (verdict != "trust")
    odd = dataclasses.replace(change, leverage=change.leverage.clone().index_fill_(0, torch.tensor([2]), -3.0))
    assert quality(fitted, odd).reason.startswith("leverages lie in [-3.00,")
