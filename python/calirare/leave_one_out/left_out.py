"""Every left-out model at every node without its logits: directions, messages, intervals (fused evaluation).

For two layers and two classes, linearised. Three steps, each of which may run on another machine or at another time:

1. `left_out`: what leaving a label out does to the parameters. Small: nothing of the size of the graph.
2. `messages`: for a block of rows, how much more or less each row sends to its neighbours in each model, [rows, m].
3. `intervals`: for a block of nodes, the interval ends; the scores f(v; theta_-i) exist for a few nodes at a time.

`evaluate` does the last two for a whole receptive field.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from calirare._util.threads import threads_for
from calirare.curvature.ggn import difference_seeds, jacobian
from calirare.curvature.gram import KEPT_BYTES
from calirare.leave_one_out.alo import (
    choose_form,
    loo_coefficients,
    own_change,
    places_of_rows,
    primal_directions,
)
from calirare.leave_one_out.result import LooChange
from calirare_ext import (
    Csr,
    GcnTape,
    LooDirections,
    ReceptiveField,
    loo_messages,
    message_interval,
    node_gradients,
    propagate,
)


@dataclass(frozen=True, eq=False)
class Seen:
    """What `left_out` met at the rows of a receptive field on its way.

    Attributes:
        field: the receptive field.
        pre_activation: z_1 at its rows, [r, h].
        along: change of the messages along the directions, before they are mixed, [r, s].
    """

    field: ReceptiveField
    pre_activation: Tensor
    along: Tensor


@dataclass(frozen=True, eq=False)
class LeftOut:
    """What leaving out labels, each of m or s of them, does to a two-layer network with two classes.

    Attributes:
        directions: how the messages move in each of the s models.
        shift: change of the second layer's bias, class 1 minus class 0, [s].
        own: change of each labelled node's own logit difference without itself, [m, 1].
        leverage: float64 [m].
        damping: mu, added to the curvature.
        form: "primal", "directions" (J^T alpha), "jacobian" (J, then alpha) or "factors" (J in factors, then alpha).
        seen: what is known already at the rows to be evaluated, or None.
    """

    directions: LooDirections
    shift: Tensor
    own: Tensor
    leverage: Tensor
    damping: float
    form: str
    seen: Seen | None = None


def fits(tape: GcnTape) -> bool:
    """Returns whether the fused evaluation can do it: two layers, two classes."""
    return len(tape.layers) == 2 and tape.n_classes == 2


def left_out(
    tape: GcnTape,
    damping: float,
    *,
    form: str = "auto",
    n_rows: int | None = None,
    leverage_corrected: bool = True,
    at: ReceptiveField | None = None,
    chosen: Tensor | None = None,
) -> LeftOut:
    """Returns the left-out models of `alo` as directions: theta_-i - theta = J^T alpha_i.

    Where the parameters are fewer than the rows that will be evaluated, alpha is multiplied in here (p m^2
    multiply-adds), otherwise to the messages (m^2 for each row): see `LooDirections.mix`. With sparse features J is
    then never made: it stays in factors.

    Args:
        tape: the network at the labelled nodes; two layers, two classes.
        damping: the weight decay mu of training, or more; > 0.
        form: "primal" (p x p, for more labels than parameters), "dual" or "auto".
        n_rows: rows of `messages` to come; None: those of the tape.
        leverage_corrected: False gives the plain Gauss-Newton influence function.
        at: the field that will be evaluated, where it is known: if the labelled nodes' rows are among its rows, the
            messages are made once for the kernel and for the evaluation.
        chosen: places of the labels whose models are wanted, int64 [s]; None: all m.

    Returns:
        The models.

    Raises:
        ValueError: the network or the damping does not fit, or the form is unknown.
    """
    if form not in ("auto", "dual", "primal"):
        raise ValueError(f"left_out: form must be auto, dual or primal, got {form!r}")
    if not fits(tape):
        raise ValueError(
            f"left_out: the network must have two layers and two classes, got {len(tape.layers)} and {tape.n_classes}"
        )
    if not damping > 0:
        raise ValueError(f"left_out: damping must be positive, got {damping}")
    if form == "primal" or (form == "auto" and choose_form(tape) == "primal"):
        rows, own, leverage = primal_directions(tape, damping, leverage_corrected, chosen)
        rows = rows.to(tape.logits.dtype)
        return LeftOut(_directions(tape, rows, None), _shift(rows), own.to(rows.dtype), leverage, damping, "primal")
    below = tape.field.rows[0].numel() if n_rows is None else n_rows
    seen = None
    multiplied = tape.n_parameters < below
    if not multiplied and isinstance(tape.field.inputs, Csr) and tape.logits.device.type == "cpu":
        directions, shift = _factored(tape)
        kernel, seen = _kernel_of_messages(tape, directions, shift, at)
        form = "factors"
    else:
        rows = jacobian(tape)
        kernel, form = rows @ rows.T, "directions" if multiplied else "jacobian"
    alpha, leverage = loo_coefficients(tape, kernel, damping, leverage_corrected=leverage_corrected)
    own = own_change(tape, kernel, alpha).to(kernel.dtype)
    mix = (alpha if chosen is None else alpha[:, chosen]).to(kernel.dtype)
    if form == "factors":
        return LeftOut(dataclasses.replace(directions, mix=mix), shift @ mix, own, leverage, damping, form, seen)
    if multiplied:
        rows = mix.T @ rows
        return LeftOut(_directions(tape, rows, None), _shift(rows), own, leverage, damping, form)
    return LeftOut(_directions(tape, rows, mix), _shift(rows) @ mix, own, leverage, damping, form)


def messages(
    left: LeftOut, layers: tuple[tuple[Tensor, Tensor], ...], inputs: Tensor | Csr, out: Tensor | None = None
) -> Tensor:
    """Returns how the messages of some rows change in each model, [r, m].

    Args:
        left: the models.
        layers: the network's weights and biases (`GcnTape.layers`).
        inputs: A_hat X at the rows, [r, d].
        out: where to write, [r, m], such as a part of a memory-mapped tensor; None: a new matrix.

    Returns:
        The changes.
    """
    return loo_messages(inputs, pre_activation(layers, inputs), left.directions, out=out)


def intervals(
    left: LeftOut,
    a: Csr,
    sent: Tensor,
    logits: Tensor,
    residuals: Tensor,
    levels: tuple[float, float],
    *,
    scale: float = 1.0,
    bias: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """Returns lower and upper ends of the jackknife interval of some nodes, [n].

    Args:
        left: the models.
        a: A_hat at the nodes, [n, r]; its columns are the rows of `sent`.
        sent: changes of the messages, [r, m], from `messages`.
        logits: the network's own z_1 - z_0 at the nodes, [n].
        residuals: r_i of the labels left out, [m].
        levels: of the lower and the upper quantile.
        scale: of a map scale z + bias on every logit difference before f is taken.
        bias: of the map.

    Returns:
        The ends, of the probability of class 1.
    """
    return message_interval(a, sent, logits, left.shift, residuals, *levels, scale=scale, bias=bias)


def evaluate(
    left: LeftOut,
    tape: GcnTape,
    everywhere: ReceptiveField,
    residuals: Tensor,
    levels: tuple[float, float],
    *,
    scale: float = 1.0,
    bias: float = 0.0,
    sent: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns logits [n, 2], lower and upper interval ends [n] of the nodes of a receptive field.

    Args:
        left: the models.
        tape: the network.
        everywhere: receptive field of the nodes.
        residuals: r_i, [m].
        levels: of the lower and the upper quantile.
        scale: of a map scale z + bias on every logit difference before f is taken.
        bias: of the map.
        sent: a buffer for the changes of the messages, [rows of the first layer, m], such as a memory-mapped tensor;
            None: allocated.

    Returns:
        The network's own logits before the map, lower ends, upper ends.
    """
    known = left.seen if left.seen is not None and left.seen.field is everywhere else None
    z = pre_activation(tape.layers, everywhere.inputs) if known is None else known.pre_activation
    a, (weight, shift) = everywhere.blocks[0], tape.layers[1]
    with threads_for(z.shape[1] * (a.nnz + z.shape[0])):
        logits = torch.addmm(shift, propagate(a, z.relu()), weight)
    if known is None or left.directions.mix is None:
        sent = loo_messages(everywhere.inputs, z, left.directions, out=sent)
    else:
        sent = torch.mm(known.along, left.directions.mix, out=sent)
    ends = intervals(left, a, sent, logits[:, 1] - logits[:, 0], residuals, levels, scale=scale, bias=bias)
    return logits, *ends


def change_of_logits(tape: GcnTape, everywhere: ReceptiveField, damping: float) -> LooChange:
    """Returns what `alo` returns, from the messages.

    Args:
        tape: the network at the labelled nodes; two layers, two classes.
        everywhere: receptive field of the nodes v.
        damping: mu > 0.

    Returns:
        The changes.

    Raises:
        ValueError: the network or the damping does not fit.
    """
    left = left_out(tape, damping, n_rows=everywhere.rows[0].numel())
    sent = messages(left, tape.layers, everywhere.inputs)
    change = propagate(everywhere.blocks[0], sent).add_(left.shift)
    return LooChange(change[:, None], left.own, left.leverage, damping)


def pre_activation(layers: Sequence[tuple[Tensor, Tensor]], inputs: Tensor | Csr) -> Tensor:
    """Returns z = inputs W1 + b1, [r, h], differentiable."""
    weight, bias = layers[0]
    with threads_for(weight.shape[1] * (inputs.nnz if isinstance(inputs, Csr) else inputs.numel())):
        return propagate(inputs, weight) + bias if isinstance(inputs, Csr) else torch.addmm(bias, inputs, weight)


def _directions(tape: GcnTape, rows: Tensor, mix: Tensor | None) -> LooDirections:
    """Returns rows [s, p] in the order in which the messages read them."""
    weight = tape.layers[0][0]
    d, h = weight.shape
    cut = (d + 1) * h
    first = rows[:, :cut].view(-1, d + 1, h).transpose(0, 1).contiguous()
    last = rows[:, cut : cut + 2 * h].view(-1, h, 2)
    top = tape.layers[1][0]
    return LooDirections(first, (last[:, :, 1] - last[:, :, 0]).T.contiguous(), top[:, 1] - top[:, 0], mix)


def _shift(rows: Tensor) -> Tensor:
    return rows[:, -1] - rows[:, -2]


def _factored(tape: GcnTape) -> tuple[LooDirections, Tensor]:
    """Returns the Jacobian's rows as directions in factors, and their change of the second layer's bias."""
    top = tape.layers[1][0]
    first = node_gradients(tape, difference_seeds(tape)).layers[0]
    second = 2 * tape.aggregated[0].T  # the seed is -1 for class 0 and 1 for class 1
    return LooDirections(first, second.contiguous(), top[:, 1] - top[:, 0]), top.new_full((tape.n_nodes,), 2.0)


def _kernel_of_messages(
    tape: GcnTape, directions: LooDirections, shift: Tensor, at: ReceptiveField | None
) -> tuple[Tensor, Seen | None]:
    """Returns K = J J^T at the labelled nodes, [m, m], from how their own messages change along their gradients."""
    own = tape.field
    place = None if at is None or _too_large(at, directions) else places_of_rows(at, own)
    field = own if place is None or at is None else at
    z = pre_activation(tape.layers, field.inputs)
    sent = loo_messages(field.inputs, z, directions)
    kernel = propagate(own.blocks[0], sent if place is None else sent[place]) + shift
    return kernel, None if place is None else Seen(field, z, sent)


def _too_large(at: ReceptiveField, directions: LooDirections) -> bool:
    size = directions.second.element_size()
    return at.rows[0].numel() * directions.second.shape[1] * size > KEPT_BYTES
