"""Labels of the rare class alone: what share of the rare nodes is labelled, and P(rare) of the others."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import torch
from torch import Tensor

from calirare._util.arrays import brief, to_tensor
from calirare._util.errors import InputError


@dataclass(frozen=True, eq=False)
class PositiveUnlabelled:
    """What positive labels and unlabelled nodes say under the assumption of `positive_unlabelled`.

    Attributes:
        labelled_share: c = P(labelled | rare), in (0, 1].
        labelled_share_low: lower end of its interval.
        labelled_share_high: upper end.
        p_rare: P(rare) of each unlabelled node, float64 [n].
        prevalence: share of rare nodes among all, labelled ones too.
        sentence: what was assumed.
    """

    labelled_share: float
    labelled_share_low: float
    labelled_share_high: float
    p_rare: Tensor
    prevalence: float
    sentence: str

    __repr__ = brief


def positive_unlabelled(
    p_labelled_of_positives: Tensor, p_labelled: Tensor, coverage: float = 0.9
) -> PositiveUnlabelled:
    """Returns P(rare) where only rare nodes are labelled, and not all of them (Elkan & Noto 2008).

    A network that tells labelled from unlabelled nodes gives g(x) = P(labelled | x). If rare nodes are labelled
    completely at random, with probability c whatever they look like, g(x) = c P(rare | x), so that c is the mean of g
    over rare nodes. Of an unlabelled node

        P(rare | x, unlabelled) = (1 - c) / c  g(x) / (1 - g(x)),  at most 1.

    The mean over labelled nodes is c only where rare nodes are told apart from the rest beyond doubt: where the classes
    overlap it is below c and P(rare) too high. Neither assumption can be checked on such labels: a few random nodes,
    looked at by a person, can.

    Args:
        p_labelled_of_positives: g of the labelled nodes, from a network without their labels, [m], in (0, 1].
        p_labelled: g of the unlabelled nodes, calibrated so that its mean over all nodes is the share of labelled
            ones, [n], in [0, 1].
        coverage: of the interval of c, normal.

    Raises:
        InputError: there are fewer than 2 labelled nodes, or a probability is out of range.
        TypeError: these are no numbers.
    """
    given = (("p_labelled_of_positives", p_labelled_of_positives), ("p_labelled", p_labelled))
    own, rest = (to_tensor("positive_unlabelled", name, p).detach().double() for name, p in given)
    if own.dim() != 1 or rest.dim() != 1 or len(own) < 2:
        raise InputError(f"positive_unlabelled: needs at least 2 labelled nodes, got shape {list(own.shape)}")
    for p in (own, rest):
        if p.numel() and not bool(((p >= 0) & (p <= 1)).all()):
            raise InputError("positive_unlabelled: probabilities must lie in [0, 1]")
    c = float(own.mean())
    if c == 0:
        raise InputError("positive_unlabelled: labelled nodes must have some probability to be labelled, got 0 for all")
    reach = NormalDist().inv_cdf(0.5 + coverage / 2) * float(own.std()) / len(own) ** 0.5
    odds = rest / (1 - rest).clamp(min=torch.finfo(torch.float64).tiny)
    p_rare = ((1 - c) / c * odds).clamp(max=1.0)
    prevalence = (len(own) + float(p_rare.sum())) / (len(own) + len(rest))
    low, high = np.clip([c - reach, c + reach], 0, 1)
    sentence = (
        f"positive labels alone: taken to be {100 * c:.0f} % ({100 * low:.0f} to {100 * high:.0f} %) of the rare nodes,"
        " chosen completely at random, from classes that do not overlap; where they do, P(rare) is too high"
    )
    return PositiveUnlabelled(c, float(low), float(high), p_rare, prevalence, sentence)
