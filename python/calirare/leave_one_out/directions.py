"""Left-out models as directions in parameters, and what each changes in the messages between nodes.

For two layers and two classes, linearised: z = A relu(S W_1 + b_1) w + b with S = A X and w = W_2[:, 1] - W_2[:, 0].
A direction (dW_1, db_1, dw, db) moves what row u sends to its neighbours by

    q_u = <m_u * (S_u dW_1 + db_1), w> + <relu(S_u W_1 + b_1), dw>,

m_u the units that are on, and the logit difference of node v by (A q)_v + db. So the effect of m models at every node
is one sparse product of the matrix q [rows, m], and nothing of the size nodes x labels x classes is made but q.

1. `left_out`: what leaving a label out does to the parameters. Small: nothing of the size of the graph.
2. `messages`: q of a block of rows.
3. `Evaluation.ends`: for a block of nodes the interval ends; the scores exist for a few nodes at a time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeGuard

import torch
from torch import Tensor

from calirare._util.memory import BLOCK_BYTES
from calirare._util.torch_state import threads_for
from calirare.curvature import GcnLinearisation, Linearisation, difference_seeds
from calirare.leave_one_out.formula import choose_form, loo_coefficients, own_change, primal_directions
from calirare.leave_one_out.result import LooResult, Size
from calirare_ext import (
    Csr,
    Inputs,
    LayerFactors,
    LooDirections,
    ReceptiveField,
    as_matrix,
    loo_messages,
    multiply_adds,
    node_gradients,
    propagate,
    times,
)


@dataclass(frozen=True, eq=False)
class LeftOut:
    """What leaving out labels, each of m or s of them, does to a two-layer network with two classes.

    Attributes:
        directions: how the messages move in each of the s models.
        shift: change of the second layer's bias, class 1 minus class 0, [s].
        own: change of each labelled node's own leave-one-out logit difference, [m, 1].
        leverage: float64 [m].
        damping: mu, added to the curvature.
        form: "primal", "directions" (J^T alpha), "jacobian" (J, then alpha) or "factors" (J in
            factors, then alpha).
        places: of the labels that are left out, int64 [s]; None: all m.
    """

    directions: LooDirections
    shift: Tensor
    own: Tensor
    leverage: Tensor
    damping: float
    form: str
    places: Tensor | None = None


def fits(linearised: Linearisation) -> TypeGuard[GcnLinearisation]:
    """Returns whether labels can be left out in this form: a GCN of two layers, two classes."""
    return isinstance(linearised, GcnLinearisation) and len(linearised.layers) == 2 and linearised.n_classes == 2


def left_out(
    linearised: GcnLinearisation,
    damping: float,
    *,
    form: str = "auto",
    n_rows: int | None = None,
    chosen: Tensor | None = None,
) -> LeftOut:
    """Returns the left-out models of `alo` as directions: theta_-i - theta = J^T alpha_i.

    Where the parameters are fewer than the rows that will be evaluated, alpha is multiplied in here (p m^2
    multiply-adds), otherwise to the messages (m^2 for each row): see `LooDirections.mix`. With sparse features J is
    then never made: it stays in factors.

    Args:
        linearised: the network at the labelled nodes; two layers, two classes.
        damping: the weight decay mu of training, or more; > 0.
        form: "primal" (p x p, for more labels than parameters), "dual" or "auto".
        n_rows: rows of `messages` to come; None: those of the linearised.
        chosen: places of the labels whose models are wanted, int64 [s]; None: all m.

    Raises:
        ValueError: the network or the damping does not fit, or the form is unknown.
    """
    if form not in ("auto", "dual", "primal"):
        raise ValueError(f"left_out: form must be auto, dual or primal, got {form!r}")
    if not fits(linearised):
        raise ValueError(
            f"left_out: the network must have two layers and two classes, got {len(linearised.layers)} and "
            f"{linearised.n_classes}"
        )
    if not damping > 0:
        raise ValueError(f"left_out: damping must be positive, got {damping}")
    if form == "primal" or (form == "auto" and choose_form(linearised) == "primal"):
        rows, own, leverage = primal_directions(linearised, damping, chosen=chosen)
        rows = rows.to(linearised.logits.dtype)
        along = _directions(linearised, rows, None)
        return LeftOut(along, _shift(rows), own.to(rows.dtype), leverage, damping, "primal", chosen)
    below = linearised.field.rows[0].numel() if n_rows is None else n_rows
    multiplied = linearised.n_parameters < below
    if not multiplied and isinstance(linearised.field.inputs, Csr) and linearised.logits.device.type == "cpu":
        directions, shift = _factored(linearised)
        sent = _messages(directions, linearised.layers, linearised.field.features)
        kernel, form = propagate(linearised.field.blocks[0], sent) + shift, "factors"
    else:
        rows = linearised.jacobian
        kernel, form = rows @ rows.T, "directions" if multiplied else "jacobian"
    alpha, leverage = loo_coefficients(linearised, kernel, damping)
    own = own_change(linearised, kernel, alpha).to(kernel.dtype)
    mix = (alpha if chosen is None else alpha[:, chosen]).to(kernel.dtype)
    if form == "factors":
        along, moved = dataclasses.replace(directions, mix=mix), shift @ mix
    elif multiplied:
        rows = mix.T @ rows
        along, moved = _directions(linearised, rows, None), _shift(rows)
    else:
        along, moved = _directions(linearised, rows, mix), _shift(rows) @ mix
    return LeftOut(along, moved, own, leverage, damping, form, chosen)


def left_out_bytes(linearised: GcnLinearisation, form: str, n_models: int, n_rows: int) -> int:
    """Returns an upper estimate of the memory `left_out` allocates, in bytes; `n_rows` as there."""
    size = Size.of(linearised, linearised.field)
    b, m, p, dual = size.bytes, size.m, size.p, size.dual
    primal = form == "primal" or (form == "auto" and p < dual)
    solved = 3 * p * p * 8 + (dual * (b + 8) + 2 * n_models * 8) * p if primal else 4 * m * m * 8
    sparse = isinstance(linearised.field.inputs, Csr) and linearised.logits.device.type == "cpu"
    factored = sparse and not primal and p >= n_rows  # directions stay in factors
    return (2 * m if factored else 3 * p) * n_models * b + solved + BLOCK_BYTES


def messages(left: LeftOut, layers: tuple[tuple[Tensor, Tensor], ...], inputs: Inputs) -> Tensor:
    """Returns how the messages of some rows change in each model, [r, m].

    Args:
        left: the models.
        layers: the network's weights and biases (`GcnLinearisation.layers`).
        inputs: A_hat X at the rows, [r, d], in any form.
    """
    return _messages(left.directions, layers, inputs)


def _messages(directions: LooDirections, layers: Sequence[tuple[Tensor, Tensor]], inputs: Inputs) -> Tensor:
    return loo_messages(readable(inputs, directions), pre_activation(layers, inputs), directions)


def readable(inputs: Inputs, directions: LooDirections) -> Tensor | Csr:
    """Returns inputs as `loo_messages` reads them: one matrix, and a sparse one where directions are in factors."""
    found = as_matrix(inputs)
    in_factors = isinstance(directions.first, LayerFactors)
    return Csr.from_dense(found) if in_factors and isinstance(found, Tensor) else found


def change_of_logits(linearised: GcnLinearisation, field: ReceptiveField, damping: float) -> LooResult:
    """Returns what `alo` returns, from the messages.

    Args:
        linearised: the network at the labelled nodes; two layers, two classes.
        field: receptive field of the nodes v.
        damping: mu > 0.

    Raises:
        ValueError: the network or the damping does not fit.
    """
    left = left_out(linearised, damping, n_rows=field.rows[0].numel())
    sent = messages(left, linearised.layers, field.features)
    change = propagate(field.blocks[0], sent).add_(left.shift)
    return LooResult(change[:, None], left.own, left.leverage, damping)


def pre_activation(layers: Sequence[tuple[Tensor, Tensor]], inputs: Inputs) -> Tensor:
    """Returns z = inputs W1 + b1, [r, h], differentiable."""
    weight, bias = layers[0]
    with threads_for(weight.shape[1] * multiply_adds(inputs)):
        return torch.addmm(bias, inputs, weight) if isinstance(inputs, Tensor) else times(inputs, weight) + bias


def _directions(linearised: GcnLinearisation, rows: Tensor, mix: Tensor | None) -> LooDirections:
    """Returns rows [s, p] in the order in which the messages read them."""
    weight = linearised.layers[0][0]
    d, h = weight.shape
    cut = (d + 1) * h
    first = rows[:, :cut].view(-1, d + 1, h).transpose(0, 1).contiguous()
    last = rows[:, cut : cut + 2 * h].view(-1, h, 2)
    top = linearised.layers[1][0]
    return LooDirections(first, (last[:, :, 1] - last[:, :, 0]).T.contiguous(), top[:, 1] - top[:, 0], mix)


def _shift(rows: Tensor) -> Tensor:
    return rows[:, -1] - rows[:, -2]


def _factored(linearised: GcnLinearisation) -> tuple[LooDirections, Tensor]:
    """Returns the Jacobian's rows as directions in factors, and their change of the second layer's bias."""
    top = linearised.layers[1][0]
    first = node_gradients(linearised, difference_seeds(linearised)).layers[0]
    second = 2 * linearised.aggregated[0].T  # the seed is -1 for class 0 and 1 for class 1
    return LooDirections(first, second.contiguous(), top[:, 1] - top[:, 0]), top.new_full((linearised.n_nodes,), 2.0)
