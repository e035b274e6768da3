"""Calibrators that tests of explanations share."""

from __future__ import annotations

from functools import cache

import torch

from calirare.calibration import PriorPlattCalibrator


@cache
def calibrator(k: int) -> PriorPlattCalibrator:
    """A calibrator; of more than two classes with a slope for each, which is not affine."""
    generator = torch.Generator().manual_seed(1)
    y = torch.randint(0, k, (200,), generator=generator)
    z = torch.randn(200, k, generator=generator).double() + 2.0 * torch.nn.functional.one_hot(y, k)
    return (PriorPlattCalibrator(form_sd=0.5) if k > 2 else PriorPlattCalibrator()).fit(z, y)
