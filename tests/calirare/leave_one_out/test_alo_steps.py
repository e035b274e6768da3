"""Quasi-Newton steps from `alo`'s models: retraining as the judge."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from calirare.leave_one_out import ALO, leave_one_out
from calirare.leave_one_out.retrain import near_start
from tests.calirare.leave_one_out.cases import SOME, agreement, retrained, trained


def test_starts_whose_loss_is_far_above_the_fits_are_moved_back() -> None:
    fit, _ = trained()
    theta = fit.theta
    along = torch.zeros_like(theta)
    along[3] = 1.0
    least = fit.objective(theta)[0]
    for size in (0.1, 10.0, 1e6):
        moved = near_start(fit, size * along) - theta
        assert fit.objective(theta + moved)[0] <= 1.5 * least
        assert float(moved[3]) in (size, *(size / 2**i for i in range(1, 6)), 0.0)
    assert float(moved.norm()) == 0.0


@pytest.mark.slow
@pytest.mark.parametrize(("n_classes", "n_layers"), [(2, 2), (3, 2)])
def test_steps_come_nearer_to_retraining(n_classes: int, n_layers: int) -> None:
    fit, graph = trained(n_classes, n_layers)
    truth = retrained(n_classes, n_layers)
    plain = leave_one_out(fit, graph)
    found = leave_one_out(fit, graph, ALO(steps=30), chosen=SOME)
    own, start = (agreement(x.own[SOME], truth.own[SOME]) for x in (found, plain))
    away, start_away = (agreement(x, truth.change) for x in (found.change, plain.change[:, :, SOME]))
    assert own[0] > 0.999
    assert away[0] > 0.98
    assert own[1] < min(0.05, max(start[1], 1e-3))
    assert away[1] < min(0.2, max(start_away[1], 1e-3))
    assert found.diagnostics is not None
    assert (found.diagnostics.method, found.diagnostics.form) == ("alo", "30 steps")
    assert torch.allclose(found.leverage, plain.leverage)


@pytest.mark.slow
def test_steps_of_some_labels_are_some_columns() -> None:
    fit, graph = trained()
    nodes, chosen = torch.arange(0, 150, 9), torch.tensor([31, 4])
    every = leave_one_out(fit, graph, ALO(steps=2), nodes=nodes)
    told: list[int] = []
    some = leave_one_out(fit, graph, ALO(steps=2), nodes=nodes, chosen=chosen, progress=told.append)
    assert told[-1] == 2
    assert torch.allclose(some.change, every.change[:, :, chosen], rtol=1e-6, atol=1e-9)
    assert torch.allclose(some.own[chosen], every.own[chosen], rtol=1e-6, atol=1e-9)
    assert int(torch.isfinite(some.own).sum()) == 2
    places, models = some.samples()
    assert (places.tolist(), models.tolist()) == ([4, 31], [1, 0])
    drawn = leave_one_out(fit, graph, ALO(steps=2, n_models=3), nodes=nodes)
    assert drawn.change.shape[2] == 3
    with pytest.raises(ValueError, match="chosen must come with a method that leaves out one label after the other"):
        leave_one_out(fit, graph, nodes=nodes, chosen=chosen)


def test_steps_must_have_a_weight_decay() -> None:
    fit, graph = trained()
    without = dataclasses.replace(fit, weight_decay=0.0)
    with pytest.raises(ValueError, match="steps must have a positive weight decay"):
        leave_one_out(without, graph, ALO(steps=2, damping=1e-3))
