"""The interval of P(class 1) that labels leave open of a calibrator alone."""

from __future__ import annotations

from statistics import NormalDist

import torch
from torch import Tensor

from calirare.calibration import PriorPlattCalibrator
from calirare.calibration.base import check_logits
from calirare.calibration.posterior import BLOCK, COVERAGE, log_odds, scaled


def probability_interval(
    fitted: PriorPlattCalibrator, logits: Tensor, coverage: float = COVERAGE
) -> tuple[Tensor, Tensor]:
    """Returns the ends of each node's interval of P(class 1), from what the calibration labels leave open of the map.

    The log-odds of the class are taken as normal about those of the map, with the variance that the map's covariance
    gives them (Laplace). The interval holds the uncertainty of slope, class ratio, prevalence and form; not that of the
    network's logits, and not whether the node is of the class, which is the probability itself.

    Args:
        fitted: the fitted map.
        logits: [n, k].
        coverage: in (0, 1).

    Returns:
        Lower and upper ends, float64 [n].

    Raises:
        ValueError: the coverage is out of range, or the logits have other classes.
    """
    check_logits("interval", logits)
    fitted.check_classes(logits)
    if not 0 < coverage < 1:
        raise ValueError(f"interval: coverage must be in (0, 1), got {coverage}")
    reach = NormalDist().inv_cdf(0.5 + coverage / 2)
    assert fitted.covariance_ is not None
    ends, covariance = [], fitted.covariance_.to(logits.device)
    for block in logits.split(BLOCK):
        odds, gradient = log_odds(fitted, block, cut=False)
        sd = ((gradient @ covariance) * gradient).sum(1).clamp(min=0).sqrt()
        sides = reach * torch.stack([-sd, sd])
        ends.append(scaled(odds, sides).exp().clamp(max=1) if fitted.scales_p else torch.sigmoid(odds + sides))
    both = torch.cat(ends, 1) if ends else logits.new_zeros(2, 0, dtype=torch.float64)
    return both[0], both[1]
