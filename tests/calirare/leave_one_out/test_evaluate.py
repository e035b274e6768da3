from __future__ import annotations

import pytest
import torch

from calirare.jackknife import jackknife
from calirare.leave_one_out.methods import leave_one_out
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
