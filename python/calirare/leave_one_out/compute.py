"""One function for every leave-one-out method: checks, memory, time."""

from __future__ import annotations

import dataclasses
import time

from torch import Tensor

from calirare._util.memory import peak_bytes
from calirare.graph import Graph
from calirare.leave_one_out.alo import ALO
from calirare.leave_one_out.method import LeaveOneOutMethod, Problem, Progress, check_fits
from calirare.leave_one_out.result import Diagnostics, LooResult
from calirare.training import FittedNetwork


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
    if chosen is not None and not method.one_by_one:
        raise ValueError(
            "leave_one_out: chosen must come with a method that leaves out one label after the other (steps or "
            f"retrain), got {method.name}: leave it out"
        )
    started, peak = time.perf_counter(), peak_bytes()
    field = fitted.evaluation_field(graph, nodes)
    damping, reason = method.damping_for(fitted)
    problem = Problem(fitted, field, damping, progress, chosen)
    estimated = check_fits(method, problem)
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
