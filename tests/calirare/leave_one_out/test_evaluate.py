from __future__ import annotations

import dataclasses

import pytest
import torch

from calirare.curvature import match_rows
from calirare.leave_one_out import alo_change, fits, jackknife, leave_one_out, left_out, messages
from calirare.leave_one_out.ends import evaluate
from calirare.models import GcnFit
from calirare_ext import Csr, ReceptiveField, propagate
from tests.calirare.leave_one_out.cases import trained


def sparse(field: ReceptiveField) -> ReceptiveField:
    """The same field with its inputs as a sparse matrix."""
    assert isinstance(field.inputs, torch.Tensor)
    return ReceptiveField(field.rows, Csr.from_dense(field.inputs), field.blocks)


def sparse_case(n_classes: int, nodes: torch.Tensor | None = None) -> tuple[GcnFit, ReceptiveField]:
    fit, graph = trained(n_classes, 2)
    return dataclasses.replace(fit, field=sparse(fit.field)), sparse(fit.evaluation_field(graph, nodes))


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


def test_messages_made_once_serve_the_kernel_and_the_evaluation() -> None:
    fit, everywhere = sparse_case(2)
    tape = fit.linearisation
    residuals, levels = torch.rand(tape.n_nodes, generator=torch.Generator().manual_seed(0)).double(), (0.05, 0.95)
    once = left_out(tape, fit.weight_decay, at=everywhere)
    twice = left_out(tape, fit.weight_decay)
    assert once.form == twice.form == "factors"
    assert once.seen is not None
    assert twice.seen is None
    for a, b in zip(
        evaluate(once, tape, everywhere, residuals, levels),
        evaluate(twice, tape, everywhere, residuals, levels),
        strict=True,
    ):
        assert float((a - b).abs().max()) < 1e-12
    _, other = sparse_case(2, torch.arange(0, 30))  # a field those messages are not of
    ends = [evaluate(left, tape, other, residuals, levels)[1] for left in (once, twice)]
    assert float((ends[0] - ends[1]).abs().max()) < 1e-12
    assert left_out(tape, fit.weight_decay, at=other).seen is None  # it lacks labelled rows


def test_rows_of_another_graph_are_not_taken_for_the_labelled_ones() -> None:
    fit, everywhere = sparse_case(2)
    assert match_rows(everywhere, fit.field) is not None
    inputs = everywhere.inputs
    assert isinstance(inputs, Csr)
    doubled = Csr(inputs.indptr, inputs.indices, inputs.values * 2, inputs.n_cols)
    assert match_rows(ReceptiveField(everywhere.rows, doubled, everywhere.blocks), fit.field) is None


@pytest.mark.slow
def test_networks_the_fused_evaluation_is_not_for_are_refused() -> None:
    for case in (trained(3, 2), trained(2, 1)):
        assert not fits(case[0].linearisation)
        with pytest.raises(ValueError, match="two layers and two classes"):
            left_out(case[0].linearisation, 0.1)
    with pytest.raises(ValueError, match="damping must be positive"):
        left_out(trained(2, 2)[0].linearisation, 0.0)
