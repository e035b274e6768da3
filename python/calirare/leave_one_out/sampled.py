"""Own leave-one-out changes of labels by the ten thousand and a perceptron: curvature from labels drawn at random.

Where every label has inputs of its own (columns, no neighbours below it) the kernel between any two labels costs their
inputs and hidden units alone, whatever the number of parameters. With S a random draw of s labels, c = m / s and
R = (c D)^1/2 J_S, the curvature of the mean loss is about R^T R + mu I, and of a label i that was not drawn nothing is
in it: it is the curvature *without* label i, and with R R^T = V diag(lambda) V^T and g_i = V^T R J_i^T

    P_i = J_i (R^T R + mu I)^-1 J_i^T = (K_ii - sum_r g_ir^2 / (lambda_r + mu)) / mu,
    theta_-i - theta = (J_i - (g_i / (lambda + mu)) V^T R) e_i / mu,        dz_i = P_i e_i.

There are two draws, and a label that is in the first is judged by the second. By convexity a draw of too few labels
makes P_i too large, by about the effective number of parameters over s: leave-one-out then looks worse than it is,
never better. What both draws say of the same labels tells how far either is off.
"""

from __future__ import annotations

from typing import TypeGuard

import torch
from torch import Tensor

from calirare.curvature import GcnLinearisation, Linearisation, gram, linearise
from calirare_ext import ReceptiveField, cut, rows_of_inputs

MANY_LABELS, MANY_PARAMETERS = 20_000, 1_000  # above both the curvature is sampled
DRAWN, DRAWN_ROUGHLY = 2_000, 1_000  # labels of a draw; the latter where networks are only told apart
BLOCK = 16_384  # labels that are taken together
WATCHED = 2_000  # labels at which the draws are compared


def samples(linearised: Linearisation) -> TypeGuard[GcnLinearisation]:
    """Returns whether the curvature of a network's labels is sampled: many of both, two classes, no neighbours."""
    if not isinstance(linearised, GcnLinearisation) or linearised.n_classes != 2 or len(linearised.layers) != 2:
        return False
    alone = linearised.field.blocks[0].nnz == linearised.n_nodes
    return alone and linearised.n_nodes > MANY_LABELS and linearised.n_parameters > MANY_PARAMETERS


def sampled_bytes(linearised: Linearisation, n_models: int = 0) -> int:
    """Returns an upper estimate of the memory: both draws of every label, and directions of some models."""
    m, p, b = linearised.n_nodes, linearised.n_parameters, linearised.logits.element_size()
    return (m * DRAWN + 4 * BLOCK * DRAWN + 2 * DRAWN * p + 3 * n_models * p) * b + 6 * DRAWN * DRAWN * 8


class Draw:
    """The curvature of the loss by some labels.

    Args:
        linearised: the network at the labelled nodes.
        places: of the labels drawn, int64 [s].
    """

    def __init__(self, linearised: GcnLinearisation, places: Tensor) -> None:
        self.linearised, self.part = linearised, at_labels(linearised, places)
        share = linearised.n_nodes / places.numel()
        self.root = (share * linearised.loss_terms[0][places, 0, 0]).sqrt()  # (c D)^1/2, [s]
        kernel = gram(self.part, self.part.field)[:, 0, :, 0].double()
        self.values, self.vectors = torch.linalg.eigh(self.root[:, None] * kernel * self.root)
        self.values.clamp_(min=0)

    def along(self, places: Tensor) -> Tensor:
        """Returns g_i of some labels, [b, s]."""
        turned = (self.root[:, None] * self.vectors).to(self.linearised.logits.dtype)
        parts = places.split(BLOCK)
        return torch.cat([gram(self.part, at_labels(self.linearised, x).field)[:, 0, :, 0] @ turned for x in parts])

    def hat(self, along: Tensor, own: Tensor, damping: float) -> Tensor:
        """Returns P_i from g_i [b, s] and K_ii [b]; float64."""
        inverse = 1 / (self.values + damping)
        explained = torch.cat([part.double().square() @ inverse for part in along.split(BLOCK)])
        return (own - explained).clamp_(min=0) / damping

    def directions(self, along: Tensor, rows: Tensor, damping: float) -> Tensor:
        """Returns (R^T R + damping I)^-1 J_i^T from g_i [b, s] and J_i [b, p], [b, p]."""
        inner = (along.double() / (self.values + damping)) @ (self.root[:, None] * self.vectors).T
        return (rows - inner.to(rows.dtype) @ self.part.jacobian) / damping


class SampledOwn:
    """damping -> own changes [m, 1] of every label, float64, each by a draw that it is not in.

    Args:
        linearised: the network; `samples` must hold, whatever the numbers of labels and parameters.
        size: s, labels of a draw; at most half of all.

    Precision: kernels in the dtype of the network, the s x s system in float64.
    Cost: m s (d + h + s) multiply-adds and s^3 once, m s for each damping; m s numbers.
    """

    def __init__(self, linearised: GcnLinearisation, size: int = DRAWN) -> None:
        m = linearised.n_nodes
        both = torch.randperm(m, generator=torch.Generator().manual_seed(0)).to(linearised.logits.device)
        size = min(size, m // 2)
        self.linearised, self.first, self.second = linearised, both[:size], both[size : 2 * size]
        self.draws = Draw(linearised, self.first), Draw(linearised, self.second)
        every = torch.arange(m, device=both.device)
        self.along = self.draws[0].along(every)
        self.along_second = self.draws[1].along(self.first)
        self.watched = both[2 * size : 2 * size + WATCHED]
        self.watched_second = self.draws[1].along(self.watched)
        self.own = linearised.kernel_blocks[:, 0, 0].double()
        self.bent, self.loss = (part.flatten() for part in linearised.loss_terms)

    def __call__(self, damping: float) -> Tensor:
        """Returns the own changes with a damping mu > 0."""
        return (self.hat(damping) * self.loss)[:, None]

    def hat(self, damping: float) -> Tensor:
        """Returns P_i without label i, float64 [m]."""
        one, other = self.draws
        out = one.hat(self.along, self.own, damping)
        out[self.first] = other.hat(self.along_second, self.own[self.first], damping)
        return out

    def leverage(self, damping: float) -> Tensor:
        """Returns the leverages h_i = D_i P_i / (1 + D_i P_i), P_i without label i, float64 [m]."""
        bent = self.bent * self.hat(damping)
        return bent / (1 + bent)

    def error(self, damping: float) -> float:
        """Returns the standard error of own changes by their norm, from labels that neither draw holds."""
        at = self.watched
        one = self.draws[0].hat(self.along[at], self.own[at], damping) * self.loss[at]
        other = self.draws[1].hat(self.watched_second, self.own[at], damping) * self.loss[at]
        size = float((one + other).norm() / 2)
        return float((one - other).norm()) / (2**0.5 * size) if size > 0 else 0.0

    def directions(self, damping: float, chosen: Tensor) -> Tensor:
        """Returns theta_-i - theta of some labels, places int64 [b]: [b, p]."""
        out = self.linearised.logits.new_empty(chosen.numel(), self.linearised.n_parameters)
        inside = torch.isin(chosen, self.first)
        for draw, mine in zip(self.draws, (~inside, inside), strict=True):
            rows = at_labels(self.linearised, chosen[mine]).jacobian
            out[mine] = draw.directions(draw.along(chosen[mine]), rows, damping)
        return out.mul_(self.loss[chosen, None])


def sampled_directions(linearised: GcnLinearisation, damping: float, chosen: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Returns what `formula.primal_directions` returns, from a sample of the curvature."""
    found = SampledOwn(linearised)
    return found.directions(damping, chosen), found(damping), found.leverage(damping)


def at_labels(linearised: GcnLinearisation, places: Tensor) -> GcnLinearisation:
    """Returns a network of two layers linearised at some of its labelled nodes alone."""
    field = linearised.field
    block, below = cut(field.blocks[0], places)
    part = ReceptiveField(
        (field.rows[0][below], field.rows[1][places]), rows_of_inputs(field.features, below), (block,)
    )
    return linearise(part, linearised.layers, linearised.targets[places], linearised.sample_weights[places])
