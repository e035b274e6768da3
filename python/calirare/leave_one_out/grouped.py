"""Leave-group-out and random subsets of leave-one-out models: for labels too many to leave out one by one."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from calirare.curvature.directions import change_along
from calirare.curvature.ggn import curvature_and_error, dual_system, jacobian
from calirare.curvature.module_tape import Tape, Where, shallow
from calirare.leave_one_out.alo import (
    along_kernel,
    choose_form,
    kernels,
    loo_coefficients,
    own_change,
    primal_directions,
)
from calirare.leave_one_out.result import Diagnostics, LooChange, models_of
from calirare_ext import ReceptiveField


def grouped(tape: Tape, everywhere: Where, damping: float, groups: Tensor) -> LooChange:
    """Returns what leaving each group of labels out does: node i's model is the one without its whole group (CV+).

    One damped Gauss-Newton step without the group G: dz[v, -G] = K[v, T] M^-1[:, G] (damping M^-1[G, G])^-1 e_G, see
    `alo`, whose formula it is for groups of one.

    Args:
        tape: the network at the labelled nodes.
        everywhere: receptive field of the nodes v; of a module the nodes themselves.
        damping: mu > 0.
        groups: group of each labelled node, int64 [m], 0 to g - 1, each used.

    Returns:
        Changes with one model per group.

    Raises:
        ValueError: the groups do not fit.
    """
    m, k = tape.n_nodes, tape.n_classes - 1
    n_groups = int(groups.max()) + 1 if groups.numel() else 0
    if groups.shape != (m,) or int(torch.unique(groups).numel()) != n_groups or int(groups.min()) != 0:
        raise ValueError(f"grouped: groups must name groups 0 .. g - 1 for each of {m} labels, all of them used")
    own_kernel, kernel, rows = _kernels(tape, everywhere)
    curvature, error = curvature_and_error(tape)
    inverse = torch.linalg.inv(dual_system(curvature, own_kernel, damping))
    columns = torch.zeros(m * k, n_groups, dtype=torch.float64, device=groups.device)
    leverage = torch.zeros(m, dtype=torch.float64, device=groups.device)
    flat = torch.arange(m * k, device=groups.device).view(m, k)
    for g in range(n_groups):
        members = (groups == g).nonzero().flatten()
        place = flat[members].flatten()
        block = damping * inverse[place[:, None], place]
        columns[:, g] = inverse[:, place] @ torch.linalg.solve(block, error[members].flatten())
        leverage[members] = (1 - block.diagonal()).view(-1, k).mean(1)
    moved = (own_kernel.double() @ columns).view(m, k, n_groups)
    own = moved.gather(2, groups[:, None, None].expand(m, k, 1)).squeeze(2)
    change = _change(tape, everywhere, kernel, rows, columns)
    facts = Diagnostics("grouped", "gram" if rows is None else "jacobian", damping)
    return LooChange(change, own.to(change.dtype), leverage, damping, groups, facts)


def replicates(tape: Tape, everywhere: Where, damping: float, chosen: Tensor) -> LooChange:
    """Returns `alo` for some of the labels only, with the error a quantile over them may have.

    Args:
        tape: the network at the labelled nodes.
        everywhere: receptive field of the nodes v; of a module the nodes themselves.
        damping: mu > 0.
        chosen: distinct places of labelled nodes, int64 [s], drawn at random.

    Returns:
        Changes with s models. Own changes and leverages are those of all labels.
    """
    dtype = tape.logits.dtype
    if choose_form(tape) == "primal":
        directions, own, leverage = primal_directions(tape, damping, chosen=chosen)
        change, form = change_along(tape, everywhere, directions.to(dtype)), "primal"
    else:
        own_kernel, kernel, rows = _kernels(tape, everywhere)
        coefficients, leverage = loo_coefficients(tape, own_kernel, damping)
        own = own_change(tape, own_kernel, coefficients)
        change = _change(tape, everywhere, kernel, rows, coefficients[:, chosen])
        form = "gram" if rows is None else "jacobian"
    facts = Diagnostics("replicates", form, damping, sampling_error=quantile_error(chosen.numel(), tape.n_nodes))
    return LooChange(change, own.to(dtype), leverage, damping, models_of(tape.n_nodes, chosen), facts)


def drawn(m: int, n_models: int | None, seed: int) -> Tensor:
    """Returns the places of labels drawn at random, ascending; of all m where no number of them is given.

    Args:
        m: labels.
        n_models: how many; None: all.
        seed: of the draw.

    Returns:
        int64 [min(n_models, m)].
    """
    order = torch.randperm(m, generator=torch.Generator().manual_seed(seed))
    return order[: m if n_models is None else min(n_models, m)].sort().values


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


def _kernels(tape: Tape, everywhere: Where) -> tuple[Tensor, Tensor | None, Tensor | None]:
    if shallow(tape):
        assert isinstance(everywhere, ReceptiveField)
        return *kernels(tape, everywhere), None
    rows = jacobian(tape)
    return rows @ rows.T, None, rows


def _change(tape: Tape, everywhere: Where, kernel: Tensor | None, rows: Tensor | None, columns: Tensor) -> Tensor:
    if kernel is not None:
        return along_kernel(kernel, columns)
    assert rows is not None
    return change_along(tape, everywhere, columns.T.to(rows.dtype) @ rows)
