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
from calirare.graph import Graph
from calirare.leave_one_out import ALO, LeaveOneOutMethod, LooResult, leave_one_out
from calirare.models import FittedNetwork
from calirare_lab.leave_one_out.exact import Influence, Newton
from calirare_lab.leave_one_out.retraining import MAX_STEPS, Retrain, Steps, retrain

DEFAULT_METHODS: dict[str, LeaveOneOutMethod] = {
    "alo": ALO(),
    "alo, 10 steps": Steps(),
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
            if isinstance(method, Steps | Retrain):
                method = dataclasses.replace(method, chosen=chosen)
            found = leave_one_out(fitted, graph, method, nodes=elsewhere)
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
