"""Changes of two fields at once, and of messages."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from calirare.graph import Propagation, propagation
from calirare.leave_one_out import alo_change, jackknife, leave_one_out, left_out, messages, pre_activation
from calirare.leave_one_out.eice import joint_change, joint_field
from calirare_ext import Csr, propagate
from tests.calirare.leave_one_out.cases import trained

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
