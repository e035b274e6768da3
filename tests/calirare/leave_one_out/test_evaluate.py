from __future__ import annotations

import pytest
import torch

from calirare.jackknife import jackknife
from calirare.leave_one_out.alo import alo
from calirare.leave_one_out.evaluate import change_of_logits, fits, known_products, left_out, messages
from calirare.leave_one_out.methods import field_at, leave_one_out
from calirare_ext import propagate
from tests.calirare.leave_one_out.cases import trained


@pytest.mark.parametrize("some", [False, True])
def test_fused_intervals_equal_those_from_every_logit(some: bool) -> None:
    fit, graph = trained(2, 2)
    nodes = torch.tensor([5, 3, 77, 40]) if some else None
    plain = jackknife(fit, graph, nodes=nodes, change=leave_one_out(fit, graph, nodes=nodes))
    fused = jackknife(fit, graph, nodes=nodes)
    for name in ("lower", "upper", "uncertainty", "confidence", "residuals", "own_loo_logits"):
        assert float((getattr(plain, name) - getattr(fused, name)).abs().max()) < 1e-12
    assert fused.diagnostics.keys() == plain.diagnostics.keys()


@pytest.mark.parametrize("form", ["auto", "dual", "primal"])
def test_changes_from_messages_equal_those_of_the_gram_form(form: str) -> None:
    fit, graph = trained(2, 2)
    tape, everywhere = fit.tape(), field_at(fit, graph, None)
    wanted = alo(tape, everywhere, fit.weight_decay, form="gram")
    left = left_out(tape, fit.weight_decay, form=form, n_rows=everywhere.rows[0].numel())
    sent = messages(left, tape.layers, everywhere.inputs)
    change = propagate(everywhere.blocks[0], sent) + left.shift
    scale = float(wanted.change.abs().max())
    assert float((change - wanted.change[:, 0]).abs().max()) < 1e-10 * scale
    assert float((left.own - wanted.own).abs().max()) < 1e-10 * scale
    assert float((left.leverage - wanted.leverage).abs().max()) < 1e-10


def test_known_products_change_nothing_but_the_order_of_sums() -> None:
    fit, graph = trained(2, 2)
    tape, everywhere = fit.tape(), field_at(fit, graph, torch.arange(5, 90))
    products = known_products(tape.field, everywhere)
    plain = change_of_logits(tape, everywhere, fit.weight_decay).change
    assert (products is None) == isinstance(everywhere.inputs, torch.Tensor)
    known = change_of_logits(tape, everywhere, fit.weight_decay, products).change
    assert float((plain - known).abs().max()) < 1e-10 * float(plain.abs().max())


def test_networks_the_fused_evaluation_is_not_for_are_refused() -> None:
    for case in (trained(3, 2), trained(2, 1)):
        assert not fits(case[0].tape())
        with pytest.raises(ValueError, match="two layers and two classes"):
            left_out(case[0].tape(), 0.1)
    with pytest.raises(ValueError, match="damping must be positive"):
        left_out(trained(2, 2)[0].tape(), 0.0)
