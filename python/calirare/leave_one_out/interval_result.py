"""What Algorithm 1 returns, and what it says of other probabilities and of what a human should look at first."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from calirare.leave_one_out.result import Diagnostics
from calirare.leave_one_out.trust import Quality

if TYPE_CHECKING:
    from calirare.leave_one_out.choice import Choice


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
        calibration: whether the network's own probabilities are right on average, and on which labels that was seen;
            None where `account` is.
        choice: the method of `account`'s network and why; None where it is.
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
    own_loo_logits: Tensor
    coverage: float
    diagnostics: dict[str, float]
    estimate: Tensor | None
    note: str
    leverage: Tensor
    facts: Diagnostics
    ends_of: Tensor | None = None
    account: Quality | None = None
    calibration: tuple[str, str] | None = None
    choice: Choice | None = None

    def __repr__(self) -> str:
        """Whether leave-one-out can be relied on, whether the network is calibrated, and what there is."""
        lines = []
        if self.account is not None:
            words = {"trust": "can be relied on", "caution": "can be relied on in part"}
            lines.append(
                f"Leave-one-out {words.get(self.account.verdict, 'cannot be relied on')}: {self.account.reason}."
            )
        if self.calibration is not None:
            words = {"trust": "is calibrated on average", "do not trust": "is not calibrated"}
            lines.append(f"The network {words.get(self.calibration[0], 'may be calibrated')}: {self.calibration[1]}.")
        if self.choice is not None:
            lines.append(f"Method: {self.choice.reason}.")
        lines.append(
            f"{len(self.nodes):,} nodes, {len(self.own_loo_logits):,} labels; EICE {self.eice:.3g}; intervals of "
            f"coverage {self.coverage:g}: lower, upper; uncertainty, confidence, ice, estimate, own_loo_logits."
        )
        return "\n".join(lines + ([f"Note: {self.note}."] if self.note else []))

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


def class_sets(loo_probabilities: Tensor, own_probabilities: Tensor, targets: Tensor, coverage: float) -> Tensor:
    """Returns which classes each node may have: cross-conformal sets, with the guarantee for every class by itself.

    A class c is in v's set unless the score 1 - P_-i(c | v) is above the score 1 - P_-i(c | i) of too many labelled
    nodes i of class c: sum_i 1[s_v > s_i] < coverage (m_c + 1). For exchangeable nodes the true class is inside with
    probability at least 2 coverage - 1 (Romano, Sesia & Candes 2020, theorem 3, by the argument of jackknife+), within
    each class (Mondrian). A class with few labels is always in.

    Args:
        loo_probabilities: class probabilities of node v in the model without i, [n, k, m].
        own_probabilities: those of the labelled nodes without themselves, [m, k].
        targets: int64 [m].
        coverage: in (0, 1).

    Returns:
        bool [n, k].

    Raises:
        ValueError: the coverage is out of range.
    """
    if not 0 < coverage < 1:
        raise ValueError(f"coverage must be in (0, 1), got {coverage}")
    n, k, _ = loo_probabilities.shape
    out = torch.zeros(n, k, dtype=torch.bool, device=targets.device)
    known = 1 - own_probabilities.gather(1, targets[:, None]).squeeze(1)
    for c in range(k):
        chosen = targets == c
        scores = 1 - loo_probabilities[:, c, chosen]
        above = (scores > known[chosen]).sum(1)
        out[:, c] = above < coverage * (int(chosen.sum()) + 1) - 1e-9
    return out
