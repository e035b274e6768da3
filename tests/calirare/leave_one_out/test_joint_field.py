"""Labelled nodes and others in one field give what each gives alone."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from calirare.graph import Propagation, propagation
from calirare.leave_one_out import alo_change, pre_activation
from calirare.leave_one_out.eice import joint_change, joint_field
from calirare_ext import Csr
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
