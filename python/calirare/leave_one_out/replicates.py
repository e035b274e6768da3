"""Leave-one-out models of labels drawn at random: for labels too many to leave out one by one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from calirare.curvature import Linearisation
from calirare.leave_one_out.directions import LeftOut, fits, left_out, left_out_bytes
from calirare.leave_one_out.formula import choose_form, loo_coefficients, own_change, primal_directions
from calirare.leave_one_out.method import LeaveOneOutMethod, Problem, check_at_least, drawn
from calirare.leave_one_out.result import Diagnostics, LooResult, closed_bytes, models_of
from calirare_ext import ReceptiveField

MOST_MODELS = 4000  # where no number is given: the level of a quantile over them is off by .02 at most
# Changes at all nodes that are kept (1.6 GB): on larger graphs fewer labels are drawn, though never fewer than this.
MOST_CHANGES, FEWEST_MODELS = 400_000_000, 1000


@dataclass(frozen=True, kw_only=True)
class Replicates(LeaveOneOutMethod):
    """`ALO` for some of the labels, drawn at random, with the error a quantile over them may have.

    Attributes:
        n_models: labels that are left out; None: all, at most 4,000.
        seed: of the draw; None: the run's.
    """

    name: ClassVar[str] = "replicates"

    n_models: int | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        """Checks the options."""
        super().__post_init__()
        check_at_least("replicates", "n_models", self.n_models, 1)

    def places(self, linearised: Linearisation) -> Tensor:
        """Returns the places of the labels that are left out, int64 [s]."""
        return drawn(linearised.n_nodes, self.n_models or MOST_MODELS, self.seed).to(linearised.targets.device)

    def n_models_of(self, m: int) -> int:
        """See `LeaveOneOutMethod.n_models_of`."""
        return min(self.n_models or MOST_MODELS, m)

    def estimate_bytes(self, problem: Problem) -> int:
        """See `LeaveOneOutMethod.estimate_bytes`."""
        n_models = self.n_models_of(problem.n_labels)
        return closed_bytes(problem.size, choose_form(problem.linearised), n_models)

    def left_out_bytes(self, linearised: Linearisation, n_rows: int) -> int:
        """See `LeaveOneOutMethod.left_out_bytes`."""
        models = self.n_models_of(linearised.n_nodes)
        return left_out_bytes(linearised, "auto", models, n_rows) if fits(linearised) else 0

    def run(self, problem: Problem) -> LooResult:
        """See `LeaveOneOutMethod.run`."""
        return replicates(problem.linearised, problem.field, problem.damping, self.places(problem.linearised))

    def fuses(self, linearised: Linearisation) -> bool:
        """See `LeaveOneOutMethod.fuses`."""
        return fits(linearised)

    def left_out(
        self, linearised: Linearisation, damping: float, n_rows: int, at: ReceptiveField | None = None
    ) -> LeftOut | None:
        """See `LeaveOneOutMethod.left_out`."""
        if not fits(linearised):
            return None
        return left_out(linearised, damping, n_rows=n_rows, at=at, chosen=self.places(linearised))


def replicates(linearised: Linearisation, field: Any, damping: float, chosen: Tensor) -> LooResult:
    """Returns `alo` for some of the labels only, with the error a quantile over them may have.

    Args:
        linearised: the network at the labelled nodes.
        field: the evaluation field of the nodes v.
        damping: mu > 0.
        chosen: distinct places of labelled nodes, int64 [s], drawn at random.

    Returns:
        Changes with s models. Own changes and leverages are those of all labels.
    """
    dtype = linearised.logits.dtype
    if choose_form(linearised) == "primal":
        directions, own, leverage = primal_directions(linearised, damping, chosen=chosen)
        change, form = linearised.change_along(field, directions.to(dtype)), "primal"
    else:
        kernels = linearised.kernels(field)
        coefficients, leverage = loo_coefficients(linearised, kernels.own, damping)
        own = own_change(linearised, kernels.own, coefficients)
        change, form = linearised.change_of(field, kernels, coefficients[:, chosen]), kernels.form
    error = quantile_error(chosen.numel(), linearised.n_nodes)
    facts = Diagnostics("replicates", form, damping, sampling_error=error)
    return LooResult(change, own.to(dtype), leverage, damping, models_of(linearised.n_nodes, chosen), facts)


def models_for(n_nodes: int) -> int:
    """Returns how many labels are drawn where no number is given and not all are left out.

    Args:
        n_nodes: nodes that get an interval.
    """
    return min(MOST_MODELS, max(FEWEST_MODELS, MOST_CHANGES // max(n_nodes, 1)))


def replicates_note(n_models: int, m: int) -> str:
    """Returns what a user should know of intervals that rest on some of m models."""
    return (
        f"intervals rest on {n_models:,} of the {m:,} models without a label, drawn at random: the level of an end is "
        f"off by {quantile_error(n_models, m):.2f} at most, with 95 % confidence (more of them: n_models of the method)"
    )


def quantile_error(s: int, m: int, confidence: float = 0.95) -> float:
    """Returns how far the level of a quantile over s of m models may be off, with the given confidence.

    Serfling's sharpening of the Dvoretzky-Kiefer-Wolfowitz bound for draws without replacement:
    sqrt((1 - (s - 1) / m) log(2 / (1 - confidence)) / (2 s)); 0 for all of them.

    Args:
        s: models computed.
        m: labels.
        confidence: in (0, 1).

    Returns:
        The bound on the level, at most 1.
    """
    if s >= m:
        return 0.0
    return min(1.0, math.sqrt((1 - (s - 1) / m) * math.log(2 / (1 - confidence)) / (2 * s)))
