"""One function for every leave-one-out method."""

from __future__ import annotations

import dataclasses
import time

from torch import Tensor

from calirare._util.memory import check_memory, peak_bytes
from calirare._util.torch_state import plain_modes
from calirare.graph import Graph
from calirare.leave_one_out.alo import ALO
from calirare.leave_one_out.choice import choose_method
from calirare.leave_one_out.held_out import validation_of
from calirare.leave_one_out.method import LESS_MEMORY, LeaveOneOutMethod, Problem, Progress
from calirare.leave_one_out.result import Diagnostics, LooResult
from calirare.models import FittedNetwork, ModuleFit


@plain_modes()
def leave_one_out(
    fitted: FittedNetwork,
    graph: Graph | None = None,
    method: LeaveOneOutMethod | None = None,
    *,
    nodes: Tensor | None = None,
    progress: Progress = None,
) -> LooResult:
    """Returns what leaving each labelled node out does to the logits.

    Args:
        fitted: the network and its labels; one that is not a GCN goes through reverse-mode derivatives: m (k - 1)
            backward passes, one more per left-out model, and m (k - 1) p numbers.
        graph: the graph it was trained on; a `ModuleFit` needs none.
        method: such as `ALO()`, the default.
        nodes: nodes to evaluate, int64 [n]; None: all.
        progress: of methods that leave out one label after the other, called with the number of labels done.

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
    started, peak = time.perf_counter(), peak_bytes()
    field = fitted.evaluation_field(graph, nodes)
    damping, reason = method.damping_for(fitted)
    problem = Problem(fitted, field, damping, progress)
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
