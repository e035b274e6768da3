"""The copula families behind one face: fitted once, asked for E[y | f] row by row."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from calirare.multilabel.copula import LABEL_MODELS, LabelModel, fit_gaussian
from calirare.multilabel.dependence import Shrinkage
from calirare.multilabel.margins import CDF_RULES, CdfRule


@dataclass(frozen=True, eq=False)
class Conditional:
    """E[y | f] of a fitted copula at the rows it was fitted on.

    Attributes:
        at: rows -> float64 [rows, K], a new tensor each time.
        shrinkage: weight of the identity in the correlation of the scores.
        jitter: what was added to its diagonal.
        constant_scores: columns without spread.
        degrees_of_freedom: of a t copula, else None.
    """

    at: Callable[[slice], Tensor]
    shrinkage: float = 0.0
    jitter: float = 0.0
    constant_scores: tuple[int, ...] = ()
    degrees_of_freedom: float | None = None


class Family(Protocol):
    """Another copula family than the document's Gaussian one, such as those of calirare-lab."""

    def fit(self, u: Tensor, labels: Tensor, shrinkage: Shrinkage) -> Conditional:
        """Fits the copula to pseudo-observations, float64 [n, k] in (0, 1), with spread, and labels, bool [n, K]."""


@dataclass(frozen=True)
class CopulaOptions:
    """Which copula, and how it is fitted.

    Attributes:
        family: None is the document's Gaussian one.
        cdf: "printed", "empirical" or "midrank"; they differ only where scores are tied, except that the printed,
            mirrored rule also changes what an asymmetric family such as a vine sees.
        label_model: "density" (the document's) or "threshold" (labels as thresholded latent normals: consistent where
            such a Gaussian copula holds); "threshold" needs the Gaussian family.
        shrinkage: weight of the identity in the correlation of the scores, "auto" or in [0, 1].

    Raises:
        TypeError: the family is none.
        ValueError: an option is unknown, or two do not go together.
    """

    family: Family | None = None
    cdf: CdfRule = "printed"
    label_model: LabelModel = "density"
    shrinkage: Shrinkage = "auto"

    def __post_init__(self) -> None:
        """Checks the options."""
        for name, value, known in (("cdf", self.cdf, CDF_RULES), ("label_model", self.label_model, LABEL_MODELS)):
            if value not in known:
                raise ValueError(f"CopulaOptions: {name} must be one of {', '.join(known)}, got {value!r}")
        if self.family is None:
            return
        if not hasattr(self.family, "fit"):
            raise TypeError(f"CopulaOptions: family must be None (Gaussian) or have a fit, got {self.family!r}")
        if self.label_model == "threshold":
            raise ValueError(f'CopulaOptions: label_model must be "density" for {self.family}, got "threshold"')


def fit_conditional(u: Tensor, labels: Tensor, options: CopulaOptions) -> Conditional:
    """Fits a copula to pseudo-observations and labels.

    Columns without spread say nothing of the labels: they are left out, whatever the family (in a t copula no column is
    independent of the others).

    Args:
        u: pseudo-observations of the scores, float64 [n, k], in (0, 1); overwritten by the Gaussian family.
        labels: multi-hot, bool [n, K].
        options: family and fit.

    Returns:
        The conditional expectation.
    """
    low, high = torch.aminmax(u, dim=0)
    constant = tuple((low == high).nonzero().flatten().tolist())
    if constant:
        if len(constant) == u.shape[1]:
            rates = labels.double().mean(0).expand(labels.shape)
            return Conditional(lambda rows: rates[rows].clone(), constant_scores=constant)
        u = u.T[low != high].T  # stored column by column as before
    if options.family is not None:
        return dataclasses.replace(options.family.fit(u, labels, options.shrinkage), constant_scores=constant)
    z = torch.special.ndtri(u, out=u)
    fit = fit_gaussian(z, labels, shrinkage=options.shrinkage, label_model=options.label_model)
    part = fit.dependence
    return Conditional(lambda rows: fit.conditional_mean(z[rows]), float(part.shrinkage), part.jitter, constant)
