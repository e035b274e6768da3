"""The benchmark's plain torch.func baseline computes what it is compared with."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from calirare.leave_one_out import Influence, Problem
from tests.calirare.leave_one_out.cases import trained

BENCHMARKS = str(Path(__file__).resolve().parents[3] / "benchmarks")


@pytest.mark.slow
def test_torch_func_baseline_agrees_with_the_exact_influence(monkeypatch) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    from baselines.torch_func_jackknife import Baseline, TwoLayers

    fit, _ = trained()
    (w1, b1), (w2, b2) = fit.model.layers()
    model = TwoLayers(*w1.shape, w2.shape[1]).double()
    with torch.no_grad():
        for layer, weight, bias in ((model.first, w1, b1), (model.second, w2, b2)):
            layer.weight.copy_(weight.T)
            layer.bias.copy_(bias)
    inputs = fit.field.inputs
    dense = inputs if isinstance(inputs, torch.Tensor) else inputs.to_dense()
    block = fit.field.blocks[0].to_dense()
    baseline = Baseline(model, dense, block, fit.targets, fit.sample_weights, 0.5)
    directions, done, residual = baseline.solve(baseline.gradients(), 1e-10)
    assert done > 1
    assert residual <= 1e-10
    scores = baseline.changed_scores(directions, dense, lambda hidden: block @ hidden)
    settings = Influence(solver="cg", tolerance=1e-10, automatic_damping=False, forward="full")
    ours = settings.run(Problem(fit, fit.field, 0.5))
    z = fit.linearisation.logits
    expected = torch.sigmoid((z[:, 1] - z[:, 0])[:, None] + ours.change[:, 0])
    assert float((scores - expected).abs().max()) < 1e-8
