"""Influence functions: first-order leave-one-out without the leverage, for comparison and reproduction."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from calirare.leave_one_out.alo import alo_change
from calirare.leave_one_out.exact import ExactHessianMethod
from calirare.leave_one_out.method import Convention, Problem, check_one_of
from calirare.leave_one_out.result import Diagnostics, LooResult
from calirare.models import FittedNetwork

CONVENTIONS: tuple[Convention, ...] = ("corrected", "paper", "official")
OFFICIAL_DAMPING = 1e-2  # of the authors' code, in place of the weight decay


@dataclass(frozen=True, kw_only=True)
class Influence(ExactHessianMethod):
    """First-order influence (paper, Eq. 7); it leaves the leverage out and so sees 15-20 % of the true change.

    Attributes:
        convention: "corrected": the right sign; "paper": the sign Algorithm 1 prints, which correlates -.86 to -.98
            with retraining; "official": the authors' code: right sign, exact Hessian and damping .01, which sees about
            6 % of the change.
    """

    name: ClassVar[str] = "influence"

    convention: Convention = "corrected"

    def __post_init__(self) -> None:
        """Checks the options."""
        super().__post_init__()
        check_one_of(self.name, "convention", self.convention, CONVENTIONS)

    @property
    def prints(self) -> Convention:
        """The convention."""
        return self.convention

    def damping_for(self, fitted: FittedNetwork) -> tuple[float, str]:
        """See `LeaveOneOutMethod.damping_for`; of the authors' code .01."""
        if self.convention == "official" and self.damping is None:
            return OFFICIAL_DAMPING, "the authors' code"
        return super().damping_for(fitted)

    def run(self, problem: Problem) -> LooResult:
        """See `LeaveOneOutMethod.run`."""
        out = self._influence(problem)
        if self.convention == "paper":  # a copy of the largest tensor only where the sign needs it
            out = replace(out, change=-out.change, own=-out.own)
        return out

    def _influence(self, problem: Problem) -> LooResult:
        """Returns theta_-i = theta + (H + damping I)^-1 g_i / m as changes of logits."""
        linearised, field, damping = problem.linearised, problem.field, problem.damping
        if self.solver == "ggn":
            out = alo_change(linearised, field, damping, leverage_corrected=False)
            return replace(out, diagnostics=Diagnostics(self.name, "ggn", damping))
        _, error = linearised.loss_terms
        rows = linearised.jacobian
        seeds = error.to(rows.dtype)
        gradients = torch.einsum("iap,ia->ip", rows.view(linearised.n_nodes, -1, rows.shape[1]), seeds)
        directions, facts = self.solve(linearised, gradients, torch.block_diag(*error), damping)
        change = linearised.change_along(field, directions)
        own = linearised.change_along(linearised.field, directions).diagonal(dim1=0, dim2=2).T
        leverage = torch.full((linearised.n_nodes,), float("nan"), dtype=torch.float64)
        return LooResult(change, own, leverage, facts.damping, diagnostics=facts)
