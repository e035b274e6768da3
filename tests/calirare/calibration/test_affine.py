"""Maps of one scale and biases: many classes, and logits of any size."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from calirare.calibration import AffineCalibrator, platt_scaling
from calirare.calibration.affine import _derivatives


def problem(n: int, k: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, k, (n,), generator=draw)
    z = torch.randn(n, k, generator=draw, dtype=torch.float64)
    return z + 1.5 * F.one_hot(labels, k), labels


def test_curvature_keeps_its_digits_where_the_network_is_certain():
    scaled = torch.tensor([[-50.0, 0.0], [0.0, -50.0]], dtype=torch.float64)
    _, hessian = _derivatives(scaled, torch.zeros(2, dtype=torch.float64), torch.tensor([1, 0]), torch.ones(2).double())
    assert float(hessian[1, 1]) == pytest.approx(2 * torch.tensor(-50.0).double().exp().item(), rel=1e-12, abs=0)


@pytest.mark.slow
def test_two_hundred_classes_take_no_array_of_classes_cubed():
    z, labels = problem(2000, 200)  # the curvature by an array [n, k, k, k] would take 128 GB
    fitted = platt_scaling().fit(z, labels)
    assert fitted.scale_ != 1.0
    assert fitted.bias_ is not None
    assert len(fitted.bias_) == 200


@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("k", [2, 5])
def test_the_map_does_not_depend_on_the_unit_of_tiny_or_huge_logits(with_bias, k):
    z, labels = problem(500, k)
    usual = AffineCalibrator(with_bias=with_bias).fit(z, labels).transform(z)
    for ends in ((1e-3, 1e-4, 1e-12, 1e-200), (1e5, 1e30)):
        maps = [AffineCalibrator(with_bias=with_bias).fit(unit * z, labels) for unit in ends]
        found = [fitted.transform(unit * z) for fitted, unit in zip(maps, ends, strict=True)]
        for p in found:
            assert float((p - found[0]).abs().max()) < 1e-9
            assert float((p - usual).abs().max()) < 0.02  # the prior stands a little elsewhere, no more


def test_equal_logits_leave_a_map_that_can_be_used():
    labels = torch.tensor([0, 1, 1])
    for z in (torch.zeros(3, 2).double(), torch.tensor([[0.0, 1e-310]]).double().expand(3, 2)):
        p = platt_scaling("population").fit(z, labels).transform(z)
        assert float((p[:, 1] - 2 / 3).abs().max()) < 0.01
