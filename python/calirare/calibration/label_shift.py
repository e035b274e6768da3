"""The prevalence among scored nodes that nobody labelled, where classes look as they do among labelled ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from calirare._util.errors import InputError
from calirare.calibration.base import check_logits
from calirare.calibration.prior_platt import PriorPlattCalibrator

WIDEST = 4.0  # ratio of an interval's ends above which a prevalence is not identified: twice too high or too low
DRAWS = 200
BINS = 400  # of equal numbers, which stand for the scored nodes
LOWEST = 1e-6  # share at which the search ends
HALVINGS = 40


@dataclass(frozen=True)
class Prevalence:
    """A share of the rare class, with a 95 % interval.

    Attributes:
        share: estimated, in (0, 1).
        low: lower end.
        high: upper end.
        method: how it was found.
    """

    share: float
    low: float
    high: float
    method: str

    def __str__(self) -> str:
        """Returns "3.1 % (2.0 % to 4.6 %), method"."""
        return f"{100 * self.share:.2g} % ({100 * self.low:.2g} % to {100 * self.high:.2g} %), {self.method}"


def prevalence_by_map(fitted: PriorPlattCalibrator, scored: Tensor, *, seed: int = 0) -> Prevalence:
    """Returns the prevalence of class 1 among scored nodes, from their logits and a fitted calibrator.

    Assumes label shift: within each class, scored nodes have the logits that labelled ones have; how common the classes
    are may differ. It cannot be seen from the scored nodes whether this holds.

    The prevalence pi maximises sum_i log(pi R_i + 1 - pi), R_i the likelihood ratio of the node's logit: where the EM
    of Saerens, Latinne & Decaestecker (2002) ends, found by halving since the function is concave. The calibrator's
    slope and alpha are the likelihood ratio; its lambda, the labels' own prevalence, is dropped. The interval samples
    the calibrator from its posterior and resamples the scored nodes.

    Args:
        fitted: the calibrator.
        scored: logits of the nodes whose prevalence is wanted, [n, 2].
        seed: of the samples.

    Raises:
        InputError: the prevalence cannot be identified: the ends of its interval lie further apart than a factor of 4.
        ValueError: the logits are not of two classes.
    """
    check_logits("prevalence_by_map", scored)
    fitted.check_classes(scored)
    if scored.shape[1] != 2 or not len(scored):
        raise ValueError("prevalence_by_map: logits must be of two classes, and some nodes scored")
    assert fitted.theta_ is not None
    away = np.sort(np.diff(fitted.sloped(scored.detach().cpu()).numpy())[:, 0])
    bins = np.array_split(away, min(BINS, len(scored)))
    sizes, middles = np.array([len(part) for part in bins]) / len(scored), np.array([part.mean() for part in bins])
    # Labels drawn at random tell alpha + lambda, and by their numbers lambda: the variance of the sum is then an
    # upper bound of alpha's. Labels drawn per class tell alpha by itself. The smaller variance is taken.
    whole = fitted.covariance_of_form().numpy()
    carried = [np.eye(2, len(whole)) for _ in range(2)]  # of (log s, alpha): the classes' own slopes stay
    carried[1][1, 2] = 1.0
    covariance = min((each @ whole @ each.T for each in carried), key=lambda c: c[1, 1])
    alpha, rng = float(fitted.theta_[1]), np.random.default_rng(seed)
    change = rng.multivariate_normal(np.zeros(2), covariance, DRAWS)
    moved = np.exp(change[:, :1]) * middles + alpha + change[:, 1:]
    point = float(_likeliest((middles + alpha)[None], sizes[None])[0])
    shares = _likeliest(moved, rng.multinomial(len(scored), sizes, DRAWS) / len(scored))
    low, high = (float(end) for end in np.quantile(shares, [0.025, 0.975]))
    if not point > 10 * LOWEST or not high < 1 - LOWEST or high > WIDEST * low:
        raise InputError(
            f"the prevalence cannot be identified from the scored nodes: by em any share from {low:.2g} to "
            f"{high:.2g} fits: give it (prevalence), or more labels"
        )
    return Prevalence(point, low, high, "em")


def _likeliest(log_ratios: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Returns the share of largest likelihood of each row, [d], of log-ratios and bin shares [d, b]."""
    ratios = np.exp(np.clip(log_ratios, -300, 300))
    low = np.full((len(ratios), 1), np.log(LOWEST) - np.log1p(-LOWEST))
    high = -low
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        share = 1 / (1 + np.exp(-middle))
        rising = (sizes * (ratios - 1) / (share * ratios + 1 - share)).sum(1, keepdims=True) > 0
        low, high = np.where(rising, middle, low), np.where(rising, high, middle)
    return 1 / (1 + np.exp(-low[:, 0]))
