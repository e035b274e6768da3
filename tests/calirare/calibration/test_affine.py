"""Maps of one scale and biases: many classes, and logits of any size."""

from __future__ import annotations

import torch

from calirare.calibration import platt_scaling


def test_equal_logits_leave_a_map_that_can_be_used():
    labels = torch.tensor([0, 1, 1])
    for z in (torch.zeros(3, 2).double(), torch.tensor([[0.0, 1e-310]]).double().expand(3, 2)):
        p = platt_scaling("population").fit(z, labels).transform(z)
        assert float((p[:, 1] - 2 / 3).abs().max()) < 0.01
