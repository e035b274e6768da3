"""The copula families behind one face: fitted once, asked for E[y | f] row by row."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from calirare.multilabel.copula import LABEL_MODELS, LabelModel, fit_gaussian
from calirare.multilabel.dependence import Shrinkage
from calirare.multilabel.margins import CDF_RULES, CdfRule

Family = Literal["gaussian", "student", "vine"]
FAMILIES: tuple[Family, ...] = ("gaussian", "student", "vine")


@dataclass(frozen=True)
class CopulaOptions:
    """Which copula, and how it is fitted.

    Attributes:
        family: "gaussian" (the document's), "student" (t copula) or "vine" (regular vine of pair copulas; needs
            pyvinecopulib).
        cdf: "printed", "empirical" or "midrank"; they differ only where scores are tied, except that the printed,
            mirrored rule also changes what an asymmetric family such as a vine sees.
        label_model: "density" (the document's) or "threshold" (labels as thresholded latent normals: consistent where
            such a Gaussian copula holds); "threshold" needs the Gaussian family.
        shrinkage: weight of the identity in the correlation of the scores, "auto" or in [0, 1].
        degrees_of_freedom: of the t copula, > 0 and finite; None chooses them by pseudo-likelihood.

    Raises:
        ValueError: an option is unknown, or two do not go together.
    """

    family: Family = "gaussian"
    cdf: CdfRule = "printed"
    label_model: LabelModel = "density"
    shrinkage: Shrinkage = "auto"
    degrees_of_freedom: float | None = None

    def __post_init__(self) -> None:
        """Checks the options."""
        for name, value, known in (
            ("family", self.family, FAMILIES),
            ("cdf", self.cdf, CDF_RULES),
            ("label_model", self.label_model, LABEL_MODELS),
        ):
            if value not in known:
                raise ValueError(f"CopulaOptions: {name} must be one of {', '.join(known)}, got {value!r}")
        if self.label_model == "threshold" and self.family != "gaussian":
            raise ValueError(
                f'CopulaOptions: label_model must be "density" for family {self.family!r}, got "threshold"'
            )
        if self.degrees_of_freedom is not None and not 0 < self.degrees_of_freedom < math.inf:
            raise ValueError(
                "CopulaOptions: degrees_of_freedom must be positive and finite, got "
                f'{self.degrees_of_freedom}: for infinitely many take family "gaussian"'
            )


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

    Raises:
        ImportError: a vine was asked for and pyvinecopulib is not installed.
    """
    low, high = torch.aminmax(u, dim=0)
    constant = tuple((low == high).nonzero().flatten().tolist())
    if constant:
        if len(constant) == u.shape[1]:
            rates = labels.double().mean(0).expand(labels.shape)
            return Conditional(lambda rows: rates[rows].clone(), constant_scores=constant)
        u = u.T[low != high].T  # stored column by column as before
    if options.family == "vine":
        from calirare.multilabel.vine import fit_vine

        vine = fit_vine(u, labels)
        return Conditional(lambda rows: vine[rows].clone(), constant_scores=constant)
    if options.family == "student":
        from calirare.multilabel.student import fit_student

        student = fit_student(u, labels, degrees_of_freedom=options.degrees_of_freedom, shrinkage=options.shrinkage)
        part = student.dependence
        at = student.at
        dof: float | None = student.degrees_of_freedom
    else:
        z = torch.special.ndtri(u, out=u)
        gaussian = fit_gaussian(z, labels, shrinkage=options.shrinkage, label_model=options.label_model)
        part, dof = gaussian.dependence, None

        def at(rows: slice) -> Tensor:
            return gaussian.conditional_mean(z[rows])

    return Conditional(at, float(part.shrinkage), part.jitter, constant, dof)
