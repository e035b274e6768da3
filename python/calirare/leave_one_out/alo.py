"""Approximate leave-one-out: one damped Gauss-Newton step with leverage correction, for every label."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from calirare._util.errors import check_one_of
from calirare.curvature import GcnLinearisation, Kernels, Linearisation, closed_form, dual_system
from calirare.leave_one_out.formula import choose_form, loo_coefficients, own_change, primal_directions
from calirare.leave_one_out.method import LeaveOneOutMethod, Problem, check_at_least, drawn
from calirare.leave_one_out.result import Diagnostics, LooResult, closed_bytes, models_of
from calirare.models import fold_of

Form = Literal["auto", "gram", "jacobian", "primal"]
FORMS: tuple[Form, ...] = ("auto", "gram", "jacobian", "primal")
MOST_MODELS = 4000  # of intervals where no number is given: the level of a quantile over them is off by .02 at most
# Changes at all nodes that are kept (1.6 GB): on larger graphs fewer labels are drawn, though never fewer than this.
MOST_CHANGES, FEWEST_MODELS = 400_000_000, 1000


@dataclass(frozen=True, kw_only=True)
class ALO(LeaveOneOutMethod):
    """One damped Gauss-Newton step with leverage correction from the full fit (`alo`).

    Attributes:
        damping: mu, added to the curvature; None: the weight decay; "auto", of torch modules: where leave-one-out loss
            agrees with that of networks trained without folds of the labels, or of validation labels
            (`choose_method`), which `calirare.jackknife` and `influence` also take by default.
        form: "gram" (a GCN of up to two layers; nothing of the size of the parameters is made), "jacobian"
            (m (k - 1) x p), "primal" (a p x p system, for more labels than parameters) or "auto": the cheapest.
        n_models: how many labels are left out, drawn at random, with the error that a quantile over them may have;
            None: all, of the intervals of `calirare.jackknife` at most 4,000, and fewer of more than 100,000 nodes.
        seed: of that draw; None: the run's.
    """

    name: ClassVar[str] = "alo"

    damping: float | Literal["auto"] | None = None  # type: ignore[assignment]
    form: Form = "auto"
    n_models: int | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        """Checks the options."""
        if self.damping != "auto":
            super().__post_init__()
        check_one_of("alo", "form", self.form, FORMS)
        check_at_least("alo", "n_models", self.n_models, 1)

    def form_for(self, linearised: Linearisation) -> str:
        """Returns the form taken for a network.

        Raises:
            ValueError: the closed form is asked for and there is none.
        """
        if self.form == "gram" and not isinstance(linearised, GcnLinearisation):
            raise ValueError("leave_one_out: form gram must have a GCN, got another module: take form='auto'")
        return choose_form(linearised) if self.form == "auto" else self.form

    def n_models_of(self, m: int) -> int:
        """Returns how many of m labels are left out."""
        return min(self.n_models or m, m)

    def estimate_bytes(self, problem: Problem) -> int:
        """See `LeaveOneOutMethod.estimate_bytes`."""
        return closed_bytes(problem.size, self.form_for(problem.linearised), self.n_models_of(problem.n_labels))

    def run(self, problem: Problem) -> LooResult:
        """See `LeaveOneOutMethod.run`."""
        linearised, damping = problem.linearised, problem.damping
        form, chosen = self.form_for(linearised), self.chosen_of(linearised)
        out = alo_change(linearised, problem.field, damping, form=form, chosen=chosen)
        error = quantile_error(out.change.shape[2], problem.n_labels)
        return replace(out, diagnostics=Diagnostics("alo", form, damping, sampling_error=error))

    def chosen_of(self, linearised: Linearisation) -> Tensor | None:
        """Returns the positions of the labels to leave out where they are not all, int64 [s]."""
        m = linearised.n_nodes
        n_models = self.n_models_of(m)
        return None if n_models == m else drawn(m, n_models, self.seed).to(linearised.targets.device)

    @property
    def fused_form(self) -> str:
        """The form of `left_out` that makes intervals without keeping the models' logits."""
        return self.form if self.form in ("auto", "primal") else "dual"

    def for_labels(self, m: int, n_nodes: int = 0) -> tuple[LeaveOneOutMethod, str]:
        """See `LeaveOneOutMethod.for_labels`."""
        if self.form not in ("auto", "primal") or m <= (self.n_models or MOST_MODELS):
            return self, ""
        n_models = self.n_models or models_for(n_nodes)
        return replace(self, n_models=n_models), (
            f"intervals rest on {n_models:,} of the {m:,} leave-one-out models, sampled at random: the coverage of "
            f"each interval end is within {quantile_error(n_models, m):.2f} of nominal, with 95 % confidence (n_models "
            "of the method takes more of them)"
        )


def models_for(n_nodes: int) -> int:
    """Returns how many labels are drawn where no number is given and not all are left out of intervals of n nodes."""
    return min(MOST_MODELS, max(FEWEST_MODELS, MOST_CHANGES // max(n_nodes, 1)))


def quantile_error(s: int, m: int) -> float:
    """Returns how far the level of a quantile over s of m models may be off, with 95 % confidence, at most 1.

    Serfling's sharpening of the Dvoretzky-Kiefer-Wolfowitz bound for draws without replacement:
    sqrt((1 - (s - 1) / m) log(2 / .05) / (2 s)); 0 for all of them.
    """
    if s >= m:
        return 0.0
    return min(1.0, math.sqrt((1 - (s - 1) / m) * math.log(2 / 0.05) / (2 * s)))


def alo_change(
    linearised: Linearisation,
    field: object,
    damping: float,
    *,
    form: str = "auto",
    leverage_corrected: bool = True,
    chosen: Tensor | None = None,
) -> LooResult:
    """Returns the change of every logit for every labelled node left out, to first order in the logits.

    Solves, for each i, one Newton step of loss = sum_{j != i} w_j l_j / m + damping / 2 |theta|^2 with the
    Gauss-Newton curvature, from the full fit: with K = J J^T and M = damping I + D K (see `formula`),

        dz[v, -i] = K[v, T] M^-1[:, i] (damping M^-1[i, i])^-1 e_i

    The sign is that of removing a node, theta_-i = theta + H^-1 g_i / m: the paper's Algorithm 1, line 3 prints the
    opposite.

    Args:
        linearised: the network, near a stationary point of its loss with this weight decay.
        field: the evaluation field of the nodes v.
        damping: the weight decay mu of training, or more; > 0.
        form: see `ALO`.
        leverage_corrected: False gives the plain Gauss-Newton influence function.
        chosen: distinct positions of the labels to leave out, int64 [s]; None: all m.

    Returns:
        Changes with s models; own changes and leverages are those of all labels.

    Raises:
        ValueError: the damping is not positive, or a word is unknown.

    Precision: kernels in the dtype of the network, the systems in float64.
    Cost: Gram form n_u r (d + h) + n_v m^2 (k - 1)^2 multiply-adds for n_u rows and r rows in the two receptive fields;
    the others m n_u d h.
    """
    if not damping > 0:
        raise ValueError(f"alo: damping must be positive, got {damping}")
    check_one_of("alo", "form", form, FORMS)
    form = choose_form(linearised) if form == "auto" else form
    dtype, corrected = linearised.logits.dtype, leverage_corrected
    model_of = None if chosen is None else models_of(linearised.n_nodes, chosen)
    if form == "primal":
        directions, own, leverage = primal_directions(linearised, damping, corrected, chosen)
        change = linearised.change_along(field, directions.to(dtype))
    else:
        rows = linearised.jacobian if form == "jacobian" else None
        kernels = linearised.kernels(field) if rows is None else Kernels(rows @ rows.T, rows=rows)
        if rows is None and kernels.across is None:
            raise ValueError("alo: form gram must have a GCN, got another module: take form='jacobian'")
        coefficients, leverage = loo_coefficients(linearised, kernels.own, damping, leverage_corrected=corrected)
        own = own_change(linearised, kernels.own, coefficients)
        coefficients = coefficients if chosen is None else coefficients[:, chosen]
        change = linearised.change_of(field, kernels, coefficients)
    return LooResult(change, own.to(dtype), leverage, damping, model_of)


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
