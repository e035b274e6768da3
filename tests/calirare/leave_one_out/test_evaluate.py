from __future__ import annotations

import pytest
import torch

from calirare.leave_one_out import alo_change, jackknife, leave_one_out, left_out, messages
from calirare_ext import propagate
from tests.calirare.leave_one_out.cases import trained


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
