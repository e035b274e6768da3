"""Maps of one scale and biases: many classes, and logits of any size."""

from __future__ import annotations

import pytest
import torch

from calirare.calibration import platt_scaling
from calirare.calibration.affine import _derivatives


def test_curvature_keeps_its_digits_where_the_network_is_certain():
    scaled = torch.tensor([[-50.0, 0.0], [0.0, -50.0]], dtype=torch.float64)
    _, hessian = _derivatives(scaled, torch.zeros(2, dtype=torch.float64), torch.tensor([1, 0]), torch.ones(2).double())
    assert float(hessian[1, 1]) == pytest.approx(2 * torch.tensor(-50.0).double().exp().item(), rel=1e-12, abs=0)


def test_equal_logits_leave_a_map_that_can_be_used():
    labels = torch.tensor([0, 1, 1])
    for z in (torch.zeros(3, 2).double(), torch.tensor([[0.0, 1e-310]]).double().expand(3, 2)):
        p = platt_scaling("population").fit(z, labels).transform(z)
        assert float((p[:, 1] - 2 / 3).abs().max()) < 0.01
