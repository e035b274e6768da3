"""A graph convolutional network linearised by its own compiled passes; up to two layers in closed form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeGuard

import torch
from torch import Tensor

from calirare.curvature.gram_form import gram
from calirare.curvature.linearisation import Kernels, Linearisation, logit_differences
from calirare_ext import (
    GcnTape,
    Inputs,
    ReceptiveField,
    move_logits,
    node_gradients,
    propagate,
    record,
    turned_times,
)

Layer = tuple[Tensor, Tensor]  # weight [d, h], bias [h]
BLOCK_NUMBERS = 16_000_000  # numbers in one block of directions


@dataclass(frozen=True, eq=False)
class GcnLinearisation(GcnTape, Linearisation):
    """`Linearisation` of a graph convolutional network: a tape with its derivatives; `linearise` makes one."""

    @property
    def jacobian(self) -> Tensor:
        """J, made at each call: [m (k - 1), p]."""
        return node_gradients(self, difference_seeds(self)).dense()

    @cached_property
    def kernel(self) -> Tensor:
        """K = J J^T at the labelled nodes, [m (k - 1), m (k - 1)]."""
        if not closed_form(self):
            rows = self.jacobian
            return rows @ rows.T
        size = self.n_nodes * (self.n_classes - 1)
        return gram(self, self.field).reshape(size, size)

    def kernels(self, field: ReceptiveField) -> Kernels:
        """Returns `Kernels`, of up to two layers without a Jacobian."""
        if not closed_form(self):
            return Linearisation.kernels(self, field)
        return Kernels(self.kernel, gram(self, field))

    def jvp(self, vectors: Tensor) -> Tensor:
        """See `Linearisation.jvp`."""
        return logit_differences(move_logits(self, vectors)).transpose(0, 1)

    def vjp(self, seeds: Tensor) -> Tensor:
        """See `Linearisation.vjp`."""
        return pull_back(self, torch.cat([-seeds.sum(2, keepdim=True), seeds], 2))

    def loss_gradient(self) -> Tensor:
        """Returns the gradient of the mean loss, without penalty, [p]."""
        return pull_back(self, (self.loss_gradient_at_logits() / self.n_nodes)[None])[0]

    def change_along(self, field: ReceptiveField, directions: Tensor) -> Tensor:
        """See `Linearisation.change_along`; some directions at a time."""
        n, b = field.nodes.numel(), directions.shape[0]
        out = torch.empty(n, self.n_classes - 1, b, dtype=directions.dtype, device=directions.device)
        none = torch.zeros(n, dtype=torch.int64, device=self.logits.device)
        there = record(field, self.layers, none)
        rows = max(x.numel() for x in field.rows) * max(weight.shape[1] for weight, _ in self.layers)
        step = max(1, BLOCK_NUMBERS // max(rows, directions.shape[1]))
        for first in range(0, b, step):
            moved = move_logits(there, directions[first : first + step])  # [n, b, k]
            out[:, :, first : first + step] = logit_differences(moved).transpose(1, 2)
        return out


def linearise(
    field: ReceptiveField,
    layers: Sequence[Layer],
    targets: Tensor,
    sample_weights: Tensor | None = None,
    *,
    first: Tensor | None = None,
) -> GcnLinearisation:
    """Returns a graph convolutional network linearised at its labelled nodes; arguments as of `calirare_ext.record`."""
    return of_tape(record(field, layers, targets, sample_weights, first=first))


def of_tape(tape: GcnTape) -> GcnLinearisation:
    """Returns the linearisation that a tape has recorded."""
    names = GcnTape.__dataclass_fields__
    return GcnLinearisation(**{name: getattr(tape, name) for name in names if not name.startswith("_")})


def closed_form(linearised: Linearisation) -> TypeGuard[GcnLinearisation]:
    """Returns whether the closed forms for at most two graph convolutions apply."""
    return isinstance(linearised, GcnLinearisation) and len(linearised.layers) <= 2


def difference_seeds(tape: GcnTape) -> Tensor:
    """Returns the seeds [m, k - 1, k] whose pulled-back gradients are the Jacobian of z_c - z_0."""
    k = tape.n_classes
    seed = torch.eye(k, dtype=tape.logits.dtype, device=tape.logits.device)[1:]
    seed[:, 0] = -1
    return seed.expand(tape.n_nodes, k - 1, k)


def pull_back(tape: GcnTape, seeds: Tensor) -> Tensor:
    """Returns the gradient of sum_i <u_i, z_i> for each block of seeds.

    Args:
        tape: the network at its parameters.
        seeds: u, [b, m, k], dtype and device of the tape.

    Returns:
        [b, p]; parameters in the order W_1, b_1, .., W_L, b_L, row-major.
    """
    b = seeds.shape[0]
    delta = seeds.transpose(0, 1).reshape(tape.n_nodes, b * seeds.shape[2])  # [r_l, b h_l]
    inputs: list[Inputs] = [tape.field.features, *tape.aggregated]
    parts: list[Tensor] = []
    for level in range(len(tape.layers) - 1, -1, -1):
        weight = tape.layers[level][0]
        d, h = weight.shape
        product = turned_times(inputs[level], delta)
        parts[:0] = [product.view(d, b, h).transpose(0, 1).reshape(b, d * h), delta.sum(0).view(b, h)]
        if level:
            back = (delta.view(-1, b, h) @ weight.T).view(delta.shape[0], b * d)
            back = propagate(tape.field.blocks[level - 1].transpose(), back)
            delta = (back.view(-1, b, d) * tape.masks[level - 1][:, None, :]).view(-1, b * d)
    return torch.cat(parts, 1)
