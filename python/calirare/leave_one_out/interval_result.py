"""What Algorithm 1 returns, and what it says of other probabilities and of what a human should look at first."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from calirare._util.arrays import brief
from calirare.leave_one_out.result import Diagnostics
from calirare.leave_one_out.trust import Quality


@dataclass(frozen=True, eq=False)
class JackknifeResult:
    """Algorithm 1's outcome for some nodes.

    f(v) is the probability of class 1 (the rare class) with two classes, and of the predicted class with more.

    Attributes:
        nodes: the nodes v, int64 [n].
        lower: C-minus(v) [n] (Eq. 8). Ends may lie outside [0, 1]: they bound f -/+ residual, as in the paper.
        upper: C-plus(v) [n].
        uncertainty: uncer(v) [n], an estimate of P(predicted class is right): by the map on leave-one-out logits, or
            the interval's midpoint (Eq. 8).
        confidence: conf(v) [n], the network's probability of its predicted class; with the midpoint under the same map
            as the interval.
        ice: ICE(v) = |uncertainty - confidence| [n] (Eq. 9).
        eice: EICE, the mean of ice (Eq. 10).
        residuals: r_i = |y_i - f(i; theta_-i)| of the labelled nodes that have a model, [m].
        loo_differences: z_c - z_0 at v without node i, before any map, [n, k - 1, m]; None unless they were asked for.
        own_loo_logits: logits of labelled node i without i, class 0 at 0, before any map, [m, k].
        coverage: target coverage.
        diagnostics: damping, leverages, losses, gradient norm, seconds; of exact-Hessian methods `lowest_curvature`.
        estimate: P(y | v) by the map on leave-one-out logits, [n, k], of which `uncertainty` is one column; None with
            the midpoint.
        note: where the map was a fallback, or a bare network was hardly trained as is assumed of it; else empty.
        leverage: h_i, float64 [m], see `LooResult`.
        facts: how the labels were left out.
        account: how far the leave-one-out models can be trusted, of a network that was trained elsewhere (a bare
            module, `fit_of`, `ModuleFit`); None of our own detectors, whose run says it.
        ends_of: places of the nodes whose interval ends were made, int64; NaN are those of others; None: all were.
    """

    nodes: Tensor
    lower: Tensor
    upper: Tensor
    uncertainty: Tensor
    confidence: Tensor
    ice: Tensor
    eice: float
    residuals: Tensor
    loo_differences: Tensor | None
    own_loo_logits: Tensor
    coverage: float
    diagnostics: dict[str, float]
    estimate: Tensor | None
    note: str
    leverage: Tensor
    facts: Diagnostics
    ends_of: Tensor | None = None
    account: Quality | None = None

    __repr__ = brief

    def cpu(self) -> JackknifeResult:
        """Returns the same on the CPU."""
        parts = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        there: dict[str, Any] = {name: part.cpu() for name, part in parts.items() if isinstance(part, Tensor)}
        return dataclasses.replace(self, **there)

    @property
    def method(self) -> str:
        """Name of the leave-one-out method."""
        return self.facts.method

    def about(self, probabilities: Tensor, rows: slice | Tensor = slice(None)) -> tuple[Tensor, Tensor]:
        """Returns uncertainty and ICE of other probabilities than the network's own, such as calibrated ones.

        Args:
            probabilities: of the nodes `rows`, [r, k].
            rows: which of the result's nodes, places; by default all.

        Returns:
            P(the class they predict is right) [r], by the map on leave-one-out logits, and its distance to their
            confidence. With the midpoint, which knows one decision only, the result's own uncertainty.
        """
        confidence, predicted = probabilities.max(1)
        if self.estimate is None:
            right = self.uncertainty[rows]
        else:
            right = self.estimate[rows].gather(1, predicted[:, None]).squeeze(1)
        return right, (right - confidence).abs()

    def review(self, probabilities: Tensor, known: Tensor | None = None) -> Tensor:
        """Returns the nodes in the order in which a human should look at their predictions.

        First the prediction that is most likely wrong, by the uncertainty of `about`: of a tenth of the test nodes
        chosen so more are wrong than by confidence or by the width of the interval (docs/jackknife.md).

        Args:
            probabilities: what decides, of the result's nodes, [n, k].
            known: nodes that need no look, such as those whose labels trained the network; None: none.

        Returns:
            Numbers of nodes, int64; of equal ones the first of the result comes first.
        """
        order = torch.argsort(self.about(probabilities)[0], stable=True)
        nodes = self.nodes[order]
        return nodes if known is None else nodes[~torch.isin(nodes, known)]
