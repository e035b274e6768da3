"""Leave-group-out: each label's model is the one without its whole group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from calirare.curvature import Linearisation, closed_form, dual_system
from calirare.leave_one_out.method import LeaveOneOutMethod, Problem, check_at_least
from calirare.leave_one_out.result import Diagnostics, LooResult, closed_bytes
from calirare.models import fold_of


@dataclass(frozen=True, kw_only=True)
class Grouped(LeaveOneOutMethod):
    """Groups of labels left out together, classes spread evenly over them (CV+).

    Attributes:
        n_groups: groups, >= 2.
        seed: of the groups; None: the run's.
    """

    name: ClassVar[str] = "grouped"

    n_groups: int = 20
    seed: int | None = None

    def __post_init__(self) -> None:
        """Checks the options."""
        super().__post_init__()
        check_at_least("grouped", "n_groups", self.n_groups, 2)

    def estimate_bytes(self, problem: Problem) -> int:
        """See `LeaveOneOutMethod.estimate_bytes`."""
        form = "gram" if closed_form(problem.linearised) else "jacobian"
        return closed_bytes(problem.size, form, min(self.n_groups, problem.n_labels))

    def run(self, problem: Problem) -> LooResult:
        """See `LeaveOneOutMethod.run`."""
        groups = fold_of(problem.fitted.targets, min(self.n_groups, problem.n_labels), self.seed or 0)
        return grouped(problem.linearised, problem.field, problem.damping, groups)


def grouped(linearised: Linearisation, field: object, damping: float, groups: Tensor) -> LooResult:
    """Returns what leaving each group of labels out does: node i's model is the one without its whole group (CV+).

    One damped Gauss-Newton step without the group G: dz[v, -G] = K[v, T] M^-1[:, G] (damping M^-1[G, G])^-1 e_G, see
    `alo`, whose formula it is for groups of one.

    Args:
        linearised: the network at the labelled nodes.
        field: the evaluation field of the nodes v.
        damping: mu > 0.
        groups: group of each labelled node, int64 [m], 0 to g - 1, each used.

    Returns:
        Changes with one model per group.

    Raises:
        ValueError: the groups do not fit.
    """
    m, k = linearised.n_nodes, linearised.n_classes - 1
    n_groups = int(groups.max()) + 1 if groups.numel() else 0
    if groups.shape != (m,) or int(torch.unique(groups).numel()) != n_groups or int(groups.min()) != 0:
        raise ValueError(f"grouped: groups must name groups 0 .. g - 1 for each of {m} labels, all of them used")
    kernels = linearised.kernels(field)
    curvature, error = linearised.loss_terms
    inverse = torch.linalg.inv(dual_system(curvature, kernels.own, damping))
    columns = torch.zeros(m * k, n_groups, dtype=torch.float64, device=groups.device)
    leverage = torch.zeros(m, dtype=torch.float64, device=groups.device)
    flat = torch.arange(m * k, device=groups.device).view(m, k)
    for g in range(n_groups):
        members = (groups == g).nonzero().flatten()
        place = flat[members].flatten()
        block = damping * inverse[place[:, None], place]
        columns[:, g] = inverse[:, place] @ torch.linalg.solve(block, error[members].flatten())
        leverage[members] = (1 - block.diagonal()).view(-1, k).mean(1)
    moved = (kernels.own.double() @ columns).view(m, k, n_groups)
    own = moved.gather(2, groups[:, None, None].expand(m, k, 1)).squeeze(2)
    change = linearised.change_of(field, kernels, columns)
    facts = Diagnostics("grouped", kernels.form, damping)
    return LooResult(change, own.to(change.dtype), leverage, damping, groups, facts)
