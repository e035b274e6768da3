"""Quasi-Newton steps from `alo`'s models, judged by retraining; changes of two fields and of messages."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from calirare.curvature import GgnInverse
from calirare.graph import Propagation, propagation
from calirare.leave_one_out import ALO, alo_change, jackknife, leave_one_out, left_out, messages, pre_activation
from calirare.leave_one_out.eice import joint_change, joint_field
from calirare.leave_one_out.retrain import near_start
from calirare_ext import Csr, propagate
from tests.calirare.leave_one_out.cases import SOME, agreement, retrained, trained
from tests.calirare.leave_one_out.test_modules import both


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
def test_steps_of_a_module_share_one_inverse_and_come_nearer_too(monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, module = both(2, 2)
    made = list[object]()
    for name in ("calirare.leave_one_out.retrain", "calirare.models.convergence"):
        monkeypatch.setattr(f"{name}.GgnInverse", lambda *how: made.append(how) or GgnInverse(*how))
    plain, found = leave_one_out(module), leave_one_out(module, method=ALO(steps=10), chosen=SOME)
    assert len(made) == 1, "a label's own would cost a Jacobian"
    truth = retrained(2, 2)
    before, after = (agreement(x, truth.change) for x in (plain.change[:, :, SOME], found.change))
    assert after[0] > max(0.999, before[0])
    assert after[1] < 0.5 * before[1]


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


NODES = {
    "others": torch.tensor([70, 5, 66, 89]),
    "some of both": torch.tensor([3, 88, 41, 0, 12]),
    "the labelled ones": None,
    "every node": torch.arange(90),
}


@pytest.mark.slow
@pytest.mark.parametrize("nodes", NODES)
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(("n_classes", "n_layers"), [(2, 2), (3, 2), (2, 1), (2, 3)])
def test_changes_are_those_of_two_fields(nodes: str, sparse: bool, n_classes: int, n_layers: int) -> None:
    fit, graph = trained(n_classes, n_layers)
    known = propagation(graph).to(torch.float64)
    if sparse:
        assert isinstance(known.inputs, torch.Tensor)
        known = Propagation(known.a_hat, Csr.from_dense(known.inputs))
        fit = dataclasses.replace(fit, field=known.field(fit.nodes, n_layers))
    judged = fit.nodes if NODES[nodes] is None else NODES[nodes]
    both = joint_field(known, fit.field, judged)
    assert torch.equal(both.field.nodes[both.evaluated], judged)
    assert torch.equal(both.field.nodes[: fit.nodes.numel()], fit.nodes)
    assert torch.equal(both.field.rows[0][both.rows], fit.field.rows[0])
    assert (both.products is not None) == (sparse and n_layers == 2)
    wanted = alo_change(fit.linearisation, known.field(judged, n_layers), fit.weight_decay)
    first = pre_activation(fit.model.layers(), both.field.inputs).detach()
    for found in (
        joint_change(fit.linearisation, both, fit.weight_decay),
        joint_change(fit.linearise(first[both.rows]), both, fit.weight_decay, first),
    ):
        for a, b in ((found.change, wanted.change), (found.own, wanted.own), (found.leverage, wanted.leverage)):
            assert a.shape == b.shape
            assert float((a - b).abs().max()) < 1e-10 * float(b.abs().max())


@pytest.mark.slow
@pytest.mark.parametrize("some", [False, True])
def test_fused_intervals_equal_those_from_every_logit(some: bool) -> None:
    fit, graph = trained(2, 2)
    nodes = torch.tensor([5, 3, 77, 40]) if some else None
    plain = jackknife(fit, graph, nodes=nodes, result=leave_one_out(fit, graph, nodes=nodes))
    fused = jackknife(fit, graph, nodes=nodes)
    for name in ("lower", "upper", "uncertainty", "confidence", "residuals", "own_loo_logits"):
        assert float((getattr(plain, name) - getattr(fused, name)).abs().max()) < 1e-12
    assert fused.diagnostics.keys() == plain.diagnostics.keys()


@pytest.mark.parametrize("form", ["auto", "dual", "primal"])
def test_changes_from_messages_equal_those_of_the_gram_form(form: str) -> None:
    fit, graph = trained(2, 2)
    tape, everywhere = fit.linearisation, fit.evaluation_field(graph, None)
    wanted = alo_change(tape, everywhere, fit.weight_decay, form="gram")
    left = left_out(tape, fit.weight_decay, form=form, n_rows=everywhere.rows[0].numel())
    sent = messages(left, tape.layers, everywhere.inputs)
    change = propagate(everywhere.blocks[0], sent) + left.shift
    scale = float(wanted.change.abs().max())
    assert float((change - wanted.change[:, 0]).abs().max()) < 1e-10 * scale
    assert float((left.own - wanted.own).abs().max()) < 1e-10 * scale
    assert float((left.leverage - wanted.leverage).abs().max()) < 1e-10
