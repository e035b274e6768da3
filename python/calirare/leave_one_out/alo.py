"""Approximate leave-one-out: one damped Gauss-Newton step with leverage correction, for every label."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from calirare.curvature import FORWARDS, Forward, GcnLinearisation, Linearisation, closed_form
from calirare.leave_one_out.directions import LeftOut, fits, left_out, left_out_bytes
from calirare.leave_one_out.formula import choose_form, loo_coefficients, own_change, primal_directions
from calirare.leave_one_out.method import (
    LeaveOneOutMethod,
    Problem,
    check_at_least,
    check_one_of,
    chosen_positions,
)
from calirare.leave_one_out.replicates import MOST_MODELS, Replicates, models_for, replicates_note
from calirare.leave_one_out.result import Diagnostics, LooResult, closed_bytes
from calirare.leave_one_out.steps import alo_steps, steps_bytes
from calirare_ext import ReceptiveField

Form = Literal["auto", "gram", "jacobian", "primal"]
FORMS: tuple[Form, ...] = ("auto", "gram", "jacobian", "primal")


@dataclass(frozen=True, kw_only=True)
class ALO(LeaveOneOutMethod):
    """One damped Gauss-Newton step with leverage correction from the full fit (`alo`), and steps from there on.

    Attributes:
        form: "gram" (a GCN of up to two layers; nothing of the size of the parameters is made), "jacobian"
            (m (k - 1) x p), "primal" (a p x p system, for more labels than parameters) or "auto": the cheapest.
        forward: "linearised" logits, or "full": the network evaluated at each leave-one-out model.
        steps: quasi-Newton steps on the loss without each label from where the formula leads, and the network evaluated
            there; 0: none. For networks trained to a minimum (`training.converge`).
        n_models: of `steps`, and of the intervals of `calirare.jackknife`: how many labels are left out, drawn at
            random; None: all, of intervals at most 4,000, and fewer of more than 100,000 nodes.
        seed: of that draw; None: the run's.
    """

    name: ClassVar[str] = "alo"

    form: Form = "auto"
    forward: Forward = "linearised"
    steps: int = 0
    n_models: int | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        """Checks the options."""
        super().__post_init__()
        check_one_of("alo", "form", self.form, FORMS)
        check_one_of("alo", "forward", self.forward, FORWARDS)
        check_at_least("alo", "steps", self.steps, 0)
        check_at_least("alo", "n_models", self.n_models, 1)

    @property
    def one_by_one(self) -> bool:
        """With steps."""
        return self.steps > 0

    def form_for(self, linearised: Linearisation) -> str:
        """Returns the form taken for a network.

        Raises:
            ValueError: the closed form is asked for and there is none.
        """
        if self.form == "gram" and not isinstance(linearised, GcnLinearisation):
            raise ValueError("leave_one_out: form gram must have a GCN, got another module: take form='auto'")
        if self.form != "auto":
            return self.form
        form = choose_form(linearised)
        return "jacobian" if form == "gram" and self.forward == "full" else form

    def estimate_bytes(self, problem: Problem) -> int:
        """See `LeaveOneOutMethod.estimate_bytes`."""
        form = self.form_for(problem.linearised)
        if self.steps:
            return steps_bytes(problem, min(self.n_models or problem.n_labels, problem.n_labels))
        return closed_bytes(problem.size, form, problem.n_labels)

    def remedy(self, problem: Problem) -> str:
        """See `LeaveOneOutMethod.remedy`."""
        if closed_form(problem.linearised) and self.form_for(problem.linearised) != "gram" and not self.steps:
            return "take method='alo' with form='gram', or fewer nodes"
        return super().remedy(problem)

    def run(self, problem: Problem) -> LooResult:
        """See `LeaveOneOutMethod.run`."""
        if self.steps:
            chosen = chosen_positions(problem, self.n_models, self.seed)
            return alo_steps(problem.fitted, problem.field, problem.damping, self.steps, problem.progress, chosen)
        form = self.form_for(problem.linearised)
        out = alo_change(problem.linearised, problem.field, problem.damping, form=form, forward=self.forward)
        return replace(out, diagnostics=Diagnostics("alo", form, problem.damping))

    def fuses(self, linearised: Linearisation) -> bool:
        """See `LeaveOneOutMethod.fuses`."""
        return fits(linearised) and self.forward == "linearised" and not self.steps

    def left_out(
        self, linearised: Linearisation, damping: float, n_rows: int, at: ReceptiveField | None = None
    ) -> LeftOut | None:
        """See `LeaveOneOutMethod.left_out`."""
        if not fits(linearised) or not self.fuses(linearised):
            return None
        return left_out(linearised, damping, form=self._fused_form, n_rows=n_rows, at=at)

    def left_out_bytes(self, linearised: Linearisation, n_rows: int) -> int:
        """See `LeaveOneOutMethod.left_out_bytes`."""
        if not fits(linearised):
            return 0
        return left_out_bytes(linearised, self._fused_form, linearised.n_nodes, n_rows)

    @property
    def _fused_form(self) -> str:
        return self.form if self.form in ("auto", "primal") else "dual"

    def for_labels(self, m: int, n_nodes: int = 0) -> tuple[LeaveOneOutMethod, str]:
        """See `LeaveOneOutMethod.for_labels`."""
        plain = self.form in ("auto", "primal") and self.forward == "linearised" and not self.steps
        if not plain or m <= (self.n_models or MOST_MODELS):
            return self, ""
        n_models = self.n_models or models_for(n_nodes)
        few = Replicates(n_models=n_models, seed=self.seed, damping=self.damping, memory_limit=self.memory_limit)
        return few, replicates_note(n_models, m)


def alo_change(
    linearised: Linearisation,
    field: object,
    damping: float,
    *,
    form: str = "auto",
    forward: Forward = "linearised",
    leverage_corrected: bool = True,
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
        forward: see `ALO`.
        leverage_corrected: False gives the plain Gauss-Newton influence function.

    Returns:
        The changes.

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
    dtype = linearised.logits.dtype
    if form == "primal":
        directions, own, leverage = primal_directions(linearised, damping, leverage_corrected)
        directions = directions.to(dtype)
        change = linearised.change_along(field, directions, forward)
    elif form == "jacobian" or forward == "full":
        rows = linearised.jacobian
        kernel = rows @ rows.T
        coefficients, leverage = loo_coefficients(linearised, kernel, damping, leverage_corrected=leverage_corrected)
        directions = coefficients.T.to(rows.dtype) @ rows
        change = linearised.change_along(field, directions, forward)
        own = own_change(linearised, kernel, coefficients)
    else:
        kernels = linearised.kernels(field)
        if kernels.across is None:
            raise ValueError("alo: form gram must have a GCN, got another module: take form='jacobian'")
        coefficients, leverage = loo_coefficients(
            linearised, kernels.own, damping, leverage_corrected=leverage_corrected
        )
        own = own_change(linearised, kernels.own, coefficients)
        return LooResult(linearised.change_of(field, kernels, coefficients), own.to(dtype), leverage, damping)
    if forward == "full":
        own = linearised.own_change_along(directions)
    return LooResult(change, own.to(dtype), leverage, damping)
