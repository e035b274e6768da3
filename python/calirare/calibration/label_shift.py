"""The prevalence among scored nodes that nobody labelled, where classes look as they do among labelled ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from calirare._util.errors import InputError
from calirare.calibration.base import check_logits
from calirare.calibration.prior_platt import PriorPlattCalibrator
from calirare.calibration.sampling import Sampling

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


def estimated_prevalence(
    logits: Tensor,
    labels: Tensor,
    scored: Tensor,
    *,
    trained_shares: Sequence[float] | None = None,
    seed: int = 0,
) -> Prevalence:
    """Returns the prevalence of class 1 among scored nodes, from their logits only.

    Assumes label shift: within each class, scored nodes have the logits that labelled ones have; how common the classes
    are may differ. It cannot be seen from the scored nodes whether this holds.

    The prevalence pi maximises sum_i log(pi R_i + 1 - pi), R_i the likelihood ratio of the node's logit: where the EM
    of Saerens, Latinne & Decaestecker (2002) ends, found by halving since the function is concave. R comes from a
    `PriorPlattCalibrator` fitted with the labels' numbers per class as given, which drops their own prevalence. The
    interval samples the calibrator from its posterior and resamples the scored nodes.

    Args:
        logits: out-of-fold or leave-one-out logits of labelled nodes, [m, 2].
        labels: int64 [m], 0 and 1, drawn in any numbers per class, at random within each.
        scored: logits of the nodes whose prevalence is wanted, [n, 2].
        trained_shares: as of `PriorPlattCalibrator`.
        seed: of the samples.

    Raises:
        InputError: a class has fewer than 2 labels, or the prevalence cannot be identified: the ends of its interval
            lie further apart than a factor of 4.
        ValueError: the logits are not of two classes.
    """
    check_logits("estimated_prevalence", logits, labels)
    if logits.shape[1] != 2:
        raise ValueError("estimated_prevalence: logits must be of two classes")
    counts = torch.bincount(labels, minlength=2)
    if int(counts.min()) < 2:
        raise InputError(
            f"estimated_prevalence: each class must have at least 2 labels, got {counts.tolist()}: give the prevalence"
        )
    whole = Sampling.at_random(len(labels), 2)
    sampling = Sampling(torch.ones_like(whole.draw), whole.log_rates, whole.elsewhere)
    fitted = PriorPlattCalibrator(trained_shares=trained_shares).fit(logits, labels, sampling=sampling)
    return prevalence_by_map(fitted, scored, seed=seed)


def prevalence_by_map(fitted: PriorPlattCalibrator, scored: Tensor, *, seed: int = 0) -> Prevalence:
    """Returns the prevalence of class 1 among scored nodes, from their logits and a fitted calibrator.

    As `estimated_prevalence`, where the labels that the calibrator was fitted on represent a population: their numbers
    per class are in its lambda, and slope and alpha are the likelihood ratio.

    Args:
        fitted: the calibrator.
        scored: logits of the nodes whose prevalence is wanted, [n, 2].
        seed: of the samples.

    Raises:
        InputError: the prevalence cannot be identified.
        ValueError: the logits are not of two classes.
    """
    check_logits("prevalence_by_map", scored)
    fitted.check_classes(scored)
    if scored.shape[1] != 2 or not len(scored):
        raise ValueError("prevalence_by_map: logits must be of two classes, and some nodes scored")
    return _identified(*_em(_Ratios.of(fitted, scored), np.random.default_rng(seed)))


def _identified(point: float, draws: np.ndarray) -> Prevalence:
    """Returns a share with its interval.

    Raises:
        InputError: the ends lie too far apart.
    """
    low, high = np.quantile(draws, [0.025, 0.975])
    if not point > 10 * LOWEST or not high < 1 - LOWEST or high > WIDEST * low:
        raise InputError(
            f"the prevalence cannot be identified from the scored nodes: by em any share from {low:.2g} to "
            f"{high:.2g} fits: give it (prevalence), or more labels"
        )
    return Prevalence(float(point), float(low), float(high), "em")


@dataclass(frozen=True, eq=False)
class _Ratios:
    """Logarithms of likelihood ratios, and what the map that gives them leaves open.

    Attributes:
        away: z_1 - z_0 less the pivot of the scored nodes, in bins, times the slope, [b].
        alpha: the map's log-ratio at the pivot.
        sizes: share of the scored nodes in each bin, [b].
        n: number of scored nodes.
        covariance: of (log s, alpha), [2, 2].
    """

    away: np.ndarray
    alpha: float
    sizes: np.ndarray
    n: int
    covariance: np.ndarray

    @classmethod
    def of(cls, fitted: PriorPlattCalibrator, scored: Tensor) -> _Ratios:
        """Returns the ratios by a fitted calibrator."""
        assert fitted.theta_ is not None
        bins = np.array_split(np.sort(_away(fitted, scored)), min(BINS, len(scored)))
        sizes = np.array([len(part) for part in bins]) / len(scored)
        middles = np.array([part.mean() for part in bins])
        # Labels drawn at random tell alpha + lambda, and by their numbers lambda: the variance of the sum is then an
        # upper bound of alpha's. Labels drawn per class tell alpha by itself. The smaller variance is taken.
        whole = fitted.covariance_of_form().numpy()
        carried = [np.eye(2, len(whole)) for _ in range(2)]  # the classes' own slopes stay what they are
        carried[1][1, 2] = 1.0
        covariance = min((each @ whole @ each.T for each in carried), key=lambda c: c[1, 1])
        return cls(middles, float(fitted.theta_[1]), sizes, len(scored), covariance)

    def scored_again(self, rng: np.random.Generator) -> np.ndarray:
        """Returns the bins' shares when the scored nodes are drawn again, [DRAWS, b]."""
        return rng.multinomial(self.n, self.sizes, DRAWS) / self.n


def _away(fitted: PriorPlattCalibrator, logits: Tensor) -> np.ndarray:
    """Returns log-odds of class 1 before alpha and lambda."""
    both = fitted.sloped(logits.detach().cpu()).numpy()
    return both[:, 1] - both[:, 0]


def _em(ratios: _Ratios, rng: np.random.Generator) -> tuple[float, np.ndarray]:
    """Returns the likeliest share, and those of the draws."""
    change = rng.multivariate_normal(np.zeros(2), ratios.covariance, DRAWS)
    moved = np.exp(change[:, :1]) * ratios.away + ratios.alpha + change[:, 1:]
    point = _likeliest((ratios.away + ratios.alpha)[None], ratios.sizes[None])[0]
    return float(point), _likeliest(moved, ratios.scored_again(rng))


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
