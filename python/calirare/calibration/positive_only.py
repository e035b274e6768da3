"""P(rare) where rare nodes alone are labelled: the share of rare ones among the others, and the map that follows."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from calirare._util.errors import InputError
from calirare.calibration.base import Target, balance_of, float64
from calirare.calibration.label_shift import Prevalence
from calirare.calibration.posterior import log_odds
from calirare.calibration.prevalence import NORMAL_95, with_prevalence
from calirare.calibration.prior_platt import PriorPlattCalibrator

FEWEST = 10  # labelled nodes from which the prevalence can be estimated
STEADY = 5  # of them beyond a threshold, at least
# Standard errors that a threshold's ratio is judged with: on few nodes the lowest is so by chance, on many not pure.
CAUTIOUS = np.arange(2.0, 4.01, 0.25)
REACH = 2.6  # standard errors of the interval: 1.96, and a third for the search (benchmarks/results/positive_only.json)
BELOW = 1.645  # standard errors of the lower end at any threshold: 95 % on one side
WIDEST = 20.0  # ratio of the interval's ends above which the share is not identified
RARE = 0.5  # share above which labelled nodes look like all others
SUREST = 0.99  # P(rare) from which on it rises but half the way to 1: no label is there to say more
MOST = math.log(SUREST)
LEAST_REACH = 1e-3  # of log P, over which its slope is taken
FLAT = 0.05  # slope of the log share by the map's intercept below which P is all but cut everywhere
SCAR = "the known rare nodes are assumed to be a random sample of all rare ones"


def rare_among_unlabelled(known: Tensor, others: Tensor) -> Prevalence:
    """Returns the share of rare nodes among those without a label, with a 95 % interval.

    Scores of known rare nodes have the distribution of all rare ones if they are a random sample of them (selected
    completely at random). Then beyond every threshold t

        share <= P(score of an unlabelled node > t) / P(score of a known rare node > t),

    with equality where only rare nodes have such scores. The ratio is taken whose upper bound is lowest (the best bin
    of Garg et al. 2021; Blanchard, Lee & Scott 2010), the mean over bounds of 2 to 4 standard errors. Where even the
    likeliest nodes are of both classes the truth is lower: the lower end is that of any threshold with some nodes, 95 %
    on one side.

    Args:
        known: scores of the labelled nodes by models without their labels, [m].
        others: scores of nodes without a label, drawn at random, by models that did not learn them as the rest, [n].

    Raises:
        InputError: there are too few labelled nodes, or the share cannot be identified.
    """
    m, n = len(known), len(others)
    check_known(m)
    thresholds = np.sort(known.detach().double().cpu().numpy())[::-1]
    own = np.searchsorted(-thresholds, -thresholds, side="right")  # of tied scores all are beyond
    beyond = n - np.searchsorted(np.sort(others.detach().double().cpu().numpy()), thresholds, side="left")
    usable = (own >= STEADY) & (beyond >= 1)
    if not usable.any():
        raise InputError(
            "positive-only labels: no unlabelled node looks like the known rare ones, so the base rate cannot be "
            "estimated. Pass it with --prevalence (in Python prevalence)."
        )
    own, beyond = own[usable], beyond[usable]
    ratio = (beyond / n) / (own / m)
    error = np.sqrt((1 - own / m) / own + (1 - beyond / n) / beyond)
    best = np.argmin(np.log(ratio) + CAUTIOUS[:, None] * error, 1)
    share, reach = float(np.exp(np.log(ratio[best]).mean())), float(np.exp(REACH * error[best].mean()))
    steady = beyond >= min(STEADY, int(beyond.max()))
    low, high = min(share / reach, float((ratio * np.exp(-BELOW * error))[steady].min())), share * reach
    if high > RARE or reach**2 > WIDEST:
        alike = f"the {m} known ones look too much like the others or are too few"
        apart = f"the {m} known ones are too few, or hardly any other node looks like them"
        raise InputError(
            "positive-only labels: the proportion of rare nodes among the unlabelled ones cannot be estimated. Values "
            f"from {low:.2g} to {min(high, 1):.2g} fit, because {alike if high > RARE else apart}. Pass the base rate "
            "with --prevalence (in Python prevalence), or label more."
        )
    return Prevalence(share, low, high, "known rare nodes")


def check_known(m: int) -> None:
    """Checks that m known rare nodes are enough to estimate the proportion of rare nodes among the others.

    Raises:
        InputError: they are too few.
    """
    if m < FEWEST:
        raise InputError(
            f"positive-only labels: {m} known rare nodes are too few to estimate the base rate, at least {FEWEST} are "
            "needed. Pass it with --prevalence (in Python prevalence)."
        )


def unlabelled_share(prevalence: float, known: int, nodes: int) -> float:
    """Returns the share of rare nodes among those without a label from that among all.

    Args:
        prevalence: share of rare nodes among all, in (0, 1).
        known: number of known rare nodes.
        nodes: number of nodes.

    Raises:
        InputError: more are known than there should be, or every other node should be rare.
    """
    share = (prevalence * nodes - known) / (nodes - known)
    if not 0 < share < 1:
        raise InputError(
            f"prevalence {prevalence:g} of {nodes:,} nodes makes {prevalence * nodes:,.0f} rare nodes, but {known:,} "
            "are known, and some must be left to find. Give another prevalence, or leave it out"
        )
    return share


def bent(log_p: Tensor) -> Tensor:
    """Returns log P, which e above log `SUREST` = m is m (1 + 1 / (1 + e)) / 2: below 1, and in the order it has."""
    above = (log_p - MOST).clamp(min=0)
    return log_p.clamp(max=MOST) - MOST / 2 * above / (1 + above)


class PositiveOnlyCalibrator(PriorPlattCalibrator):
    r"""Maps logits of "known to be rare" against "not labelled" to P(rare) of a node without a label.

    If known rare nodes are a random sample of the rare ones, and o(z) are the odds, known against drawn, that Platt
    scaling with a prior reads off the logits, Bayes' rule gives of a node without a label

        P(rare | z) = share * (n drawn / n known) * o(z) = exp(eta(z) + lift)

    (Elkan & Noto 2008), which is no odds but a probability; from `SUREST` on it is bent to below 1 (`bent`). Its
    log-odds less those of the share stand for a balanced world, and lambda adds the share's. `fit` alone gives the map
    of the labels that are seen.

    Attributes:
        lift_: lift, and the log-odds that are taken off, float64 [2]; None: P(known), as it is fitted.
        sentence_: what was assumed, and what came out.
    """

    fitted: ClassVar = {**PriorPlattCalibrator.fitted, "lift": float64, "sentence": str}
    lift_: Tensor | None = None
    sentence_: str = ""

    def fit(self, logits: Any, labels: Any, **how: Any) -> Self:
        """Fits P(known to be rare); see `PriorPlattCalibrator.fit`."""
        self.lift_, self.sentence_ = None, ""
        return super().fit(logits, labels, **how)

    @classmethod
    def fit_known(
        cls,
        logits: Tensor,
        known: Tensor,
        share: Prevalence,
        *,
        target: Target,
        trained_shares: list[float],
        sentence: str,
    ) -> PositiveOnlyCalibrator:
        """Returns the map of P(rare).

        Args:
            logits: of known rare nodes and of drawn nodes without a label, each by models without it, [m, 2].
            known: 1 for a known rare node, 0 for a drawn one, int64 [m].
            share: of rare nodes among those without a label; its interval enters the map's covariance, as wide on
                either side as it is on the wider one: as a factor of P, which is what it is.
            target: population the probabilities shall be right for.
            trained_shares: as of `PriorPlattCalibrator`.
            sentence: what was assumed.

        Raises:
            InputError: the share cannot be reached.
        """
        out = cls(target=target, trained_shares=trained_shares).fit(logits, known)
        number = torch.bincount(known, minlength=2).double().cpu()
        odds = np.log(share.share) - np.log1p(-share.share)
        assert out.theta_ is not None
        assert out.covariance_ is not None
        theta, covariance = out.theta_.clone(), out.covariance_.clone()
        theta[1], theta[2] = theta[1] + theta[2], odds
        together = torch.eye(len(covariance), dtype=torch.float64)
        together[1:3, 2] = torch.tensor([1.0, 0.0])
        out.theta_, out.covariance_ = theta, together @ covariance @ together.T
        out.move_ = None if out.move_ is None else together @ out.move_
        out.lift_ = torch.tensor([np.log(share.share * float(number[0] / number[1])), odds], dtype=torch.float64)
        out.sentence_ = sentence
        out = with_prevalence(out, logits[known == 0], share.share)
        assert out.covariance_ is not None
        sd = max(np.log(share.share / share.low), np.log(share.high / share.share)) / NORMAL_95
        if sd > 0:
            of_map = float(out.covariance_[1, 1])
            out.covariance_[1, 1] = of_map + sd**2  # over which the slope is taken
            out.covariance_[1, 1] = of_map + (sd / out._share_moved(logits[known == 0])) ** 2
        return out

    def _share_moved(self, logits: Tensor) -> float:
        """Returns the slope of the log of the mean P by the intercept, less than 1 where P is cut."""
        odds, gradient = log_odds(self, logits, cut=False)
        p = torch.sigmoid(odds)
        return max(float((p * (1 - p)) @ gradient[:, 1] / p.sum()), FLAT)

    def seen(self) -> PriorPlattCalibrator:
        """Returns an unfitted map of the labels that are seen, known or not, for what can be judged by them."""
        return PriorPlattCalibrator(**self.get_params())

    @property
    def scales_p(self) -> bool:
        """Whether the map is P(rare): the share, of which the labels leave most open, multiplies it."""
        return self.lift_ is not None

    def bend(self, logits: Tensor, *, cut: bool = True) -> Tensor:
        """Returns the derivative of the log-odds by those of being known, [n]: that of `bent` over 1 - P.

        Where doubt is weighed (no `cut`) the slope is the mean one over a standard deviation of the intercept on either
        side: with a smaller share some nodes whose P is bent would lie below, and none above.
        """
        if self.lift_ is None:
            return super().bend(logits)
        log_p = self._known_odds(logits) + float(self.lift_[0])
        slope = 1 / -torch.expm1(bent(log_p))
        if cut:
            above = (log_p - MOST).clamp(min=0)
            return torch.where(above > 0, -MOST / 2 / (1 + above).square(), 1.0) * slope
        assert self.covariance_ is not None
        reach = max(float(self.covariance_[1, 1]) ** 0.5, LEAST_REACH)
        ends = [bent(log_p + side * reach) for side in (-1, 1)]
        return (ends[1] - ends[0]) / (2 * reach) * slope

    def calibrated_logits(self, logits: Tensor) -> Tensor:
        """Returns logits 0 and log-odds of P(rare), [n, 2], in the dtype of the logits."""
        if self.lift_ is None:
            return super().calibrated_logits(logits)
        self.check_classes(logits)
        log_p = bent(self._known_odds(logits.double()) + float(self.lift_[0]))
        odds = log_p - torch.log(-torch.expm1(log_p)) - float(self.lift_[1])
        odds = odds + (1 - balance_of(self.target)) * self._theta()[2].to(odds)
        return torch.stack([torch.zeros_like(odds), odds], 1).to(logits.dtype)

    def _known_odds(self, logits: Tensor) -> Tensor:
        """Returns the log-odds of being known, [n]."""
        theta, pivot = self._theta(), self.pivot(2)
        return self.scale_ * (logits[:, 1] - logits[:, 0] - self.unit_ * float(pivot[1])) + float(theta[1])
