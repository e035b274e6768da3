"""Every leave-one-out method compared with true retraining."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from calirare._util.errors import NotConvergedError
from calirare._util.memory import check_memory, peak_bytes
from calirare._util.torch_state import plain_modes
from calirare.graph import Graph
from calirare.leave_one_out.alo import ALO
from calirare.leave_one_out.choice import choose_method
from calirare.leave_one_out.exact import Influence, Newton
from calirare.leave_one_out.held_out import validation_of
from calirare.leave_one_out.method import LESS_MEMORY, LeaveOneOutMethod, Problem, Progress
from calirare.leave_one_out.result import Diagnostics, LooResult
from calirare.leave_one_out.retrain import MAX_STEPS, retrain
from calirare.models import FittedNetwork, ModuleFit

DEFAULT_METHODS: dict[str, LeaveOneOutMethod] = {
    "alo": ALO(),
    "alo, 10 steps": ALO(steps=10),
    "newton": Newton(),
    "influence, ggn": Influence(solver="ggn"),
    "influence, exact": Influence(),
    "official": Influence(convention="official"),
    "paper": Influence(convention="paper"),
}


@dataclass(frozen=True)
class Row:
    """One method compared with retraining.

    Attributes:
        method: its name.
        correlation: of the change of the left-out node's own logits.
        slope: of the estimate on the truth, through the origin; 1 is right.
        relative_error: |estimate - truth| / |truth| at the left-out nodes.
        elsewhere_correlation: of the change of the other nodes' logits.
        elsewhere_error: relative error there.
        seconds: for all labels, of steps for those compared.
        note: why there are no numbers, else empty.
    """

    method: str
    correlation: float
    slope: float
    relative_error: float
    elsewhere_correlation: float
    elsewhere_error: float
    seconds: float
    note: str = ""


@dataclass(frozen=True, eq=False)
class Comparison:
    """Methods compared with retraining.

    Attributes:
        rows: one per method.
        truth: change of each chosen node's own logits [s, k - 1].
        estimates: the same by each method.
        retrain_seconds: for the chosen nodes.
        unconverged: share of the retrainings that ended above their tolerance, see `Diagnostics`.
    """

    rows: list[Row]
    truth: Tensor
    estimates: dict[str, Tensor]
    retrain_seconds: float
    unconverged: float


def compare(
    fitted: FittedNetwork,
    graph: Graph | None,
    chosen: Tensor,
    elsewhere: Tensor,
    methods: Mapping[str, LeaveOneOutMethod] | None = None,
    *,
    truth: LooResult | None = None,
    jobs: int = 1,
    folder: str | Path | None = None,
    max_steps: int = MAX_STEPS,
    progress: Callable[[int], None] | None = None,
) -> Comparison:
    """Returns how well each method foresees retraining.

    Args:
        fitted: the network, at a minimum, better in float64.
        graph: the graph it was trained on; a `ModuleFit` needs none.
        chosen: places of labelled nodes to retrain without, int64 [s].
        elsewhere: other nodes to judge the change at, int64 [n].
        methods: by name; None: `DEFAULT_METHODS`.
        truth: the retraining at `elsewhere`, where it is known.
        jobs: see `retrain`.
        folder: see `retrain`.
        max_steps: see `retrain`.
        progress: see `retrain`.

    Returns:
        The comparison. A method whose solver does not converge keeps its row, with a note.
    """
    started = time.perf_counter()
    if truth is None:
        field = fitted.evaluation_field(graph, elsewhere)
        truth = retrain(fitted, field, chosen, jobs=jobs, folder=folder, max_steps=max_steps, progress=progress)
    spent = time.perf_counter() - started
    rows, estimates = [], {}
    for name, method in (DEFAULT_METHODS if methods is None else methods).items():
        try:
            some = chosen if method.one_by_one else None
            found = leave_one_out(fitted, graph, method, nodes=elsewhere, chosen=some)
        except NotConvergedError as error:
            nan = float("nan")
            rows.append(Row(name, nan, nan, nan, nan, nan, nan, str(error)))
            continue
        estimates[name] = found.own[chosen]
        own = agreement_of(found.own[chosen], truth.own[chosen])
        columns = chosen if found.model_of is None else found.model_of[chosen]
        known = columns >= 0  # of a method that draws its models some labels have none
        if not bool(known.any()) or found.change.shape[2] <= int(columns.max()):
            rows.append(Row(name, *own, math.nan, math.nan, math.nan, "no model without these labels"))
            continue
        away = agreement_of(found.change[:, :, columns[known]], truth.change[:, :, known])
        seconds = 0.0 if found.diagnostics is None else found.diagnostics.seconds
        rows.append(Row(name, *own, away[0], away[2], seconds))
    unconverged = 0.0 if truth.diagnostics is None else truth.diagnostics.unconverged
    return Comparison(rows, truth.own[chosen], estimates, spent, unconverged)


def agreement_of(estimate: Tensor, truth: Tensor) -> tuple[float, float, float]:
    """Returns correlation, slope through the origin and relative error of an estimate over all entries.

    Args:
        estimate: of any shape.
        truth: of the same shape.
    """
    a, b = estimate.flatten().double(), truth.flatten().double()
    correlation = float(torch.corrcoef(torch.stack([a, b]))[0, 1])
    return correlation, float(a @ b / (b @ b)), float((a - b).norm() / b.norm())


@plain_modes()
def leave_one_out(
    fitted: FittedNetwork,
    graph: Graph | None = None,
    method: LeaveOneOutMethod | None = None,
    *,
    nodes: Tensor | None = None,
    progress: Progress = None,
    chosen: Tensor | None = None,
) -> LooResult:
    """Returns what leaving each labelled node out does to the logits.

    Args:
        fitted: the network and its labels; one that is not a GCN goes through reverse-mode derivatives: m (k - 1)
            backward passes, one more per left-out model, and m (k - 1) p numbers.
        graph: the graph it was trained on; a `ModuleFit` needs none.
        method: such as `ALO()`, the default.
        nodes: nodes to evaluate, int64 [n]; None: all.
        progress: of methods that leave out one label after the other, called with the number of labels done.
        chosen: of such methods: distinct places of the labels to leave out, int64 [s]; None: as the method says.

    Returns:
        The changes, with diagnostics.

    Raises:
        ValueError: an option does not fit the network.
        InputError: it would not fit into memory.
        NotConvergedError: a solver did not converge.
    """
    method = method or ALO()
    if isinstance(method, ALO) and method.damping == "auto" and isinstance(fitted, ModuleFit):
        method = choose_method(fitted, method, validation=validation_of(fitted, graph)).method
    if chosen is not None and not method.one_by_one:
        raise ValueError(
            "leave_one_out: chosen must come with a method that leaves out one label after the other (steps or "
            f"retrain), got {method.name}: leave it out"
        )
    started, peak = time.perf_counter(), peak_bytes()
    field = fitted.evaluation_field(graph, nodes)
    damping, reason = method.damping_for(fitted)
    problem = Problem(fitted, field, damping, progress, chosen)
    estimated = method.estimate_bytes(problem)
    check_memory(estimated, method.memory_limit, problem.linearised.logits.device, LESS_MEMORY)
    out = method.run(problem)
    facts = out.diagnostics or Diagnostics(method.name, "", out.damping)
    facts = dataclasses.replace(
        facts,
        damping_reason=facts.damping_reason or reason,
        seconds=time.perf_counter() - started,
        estimated_bytes=estimated,
        peak_bytes=max(0, peak_bytes() - peak),
    )
    return dataclasses.replace(out, diagnostics=facts, nodes=field.nodes)
