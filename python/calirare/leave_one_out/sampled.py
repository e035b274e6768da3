"""Own leave-one-out changes of labels by the ten thousand: curvature from labels drawn at random.

Where every label has inputs of its own (columns, no neighbours below it) the kernel between any two labels costs their
inputs and hidden units alone, whatever the number of parameters; of a graph convolution it is made of rows of the
Jacobian, some labels at a time. Label i is drawn with probability pi_i in proportion
to what it adds to the curvature's trace, D_i K_ii, at most 1: a network sure of most of its labels has its curvature in
the others, which are all drawn. With S the labels drawn and R = (D / pi)^1/2 J_S the curvature of the mean loss is
about H = R^T R + mu I, unbiased, and with R R^T = V diag(lambda) V^T and g_i = V^T R J_i^T

    P_i = J_i H^-1 J_i^T = (K_ii - sum_r g_ir^2 / (lambda_r + mu)) / mu.

A label that was not drawn has no part in it; one that was leaves D_i / pi_i behind (Woodbury): with b_i = 1 and
b_i = 1 - D_i P_i / pi_i

    theta_-i - theta = (J_i - (g_i / (lambda + mu)) V^T R) e_i / (mu b_i),        dz_i = P_i e_i / b_i.

By convexity a draw of too few labels makes P_i too large: leave-one-out then looks worse than it is, never better. A
second draw says of some labels how far either is off.
"""

from __future__ import annotations

from typing import TypeGuard

import torch
from torch import Tensor

from calirare.curvature import GcnLinearisation, Linearisation, gram, gram_blocks, linearise
from calirare_ext import ReceptiveField, as_dense, cut, rows_of_inputs

MANY_LABELS, MANY_PARAMETERS = 20_000, 1_000  # above both the curvature is sampled
MANY_BELOW = (
    4_000  # parameters, in the place of the latter, of a graph convolution: up to here their spectrum costs less
)
DRAWN, DRAWN_ROUGHLY = 2_000, 1_000  # labels of a draw; the latter where networks are only told apart
BLOCK = 16_384  # labels that are taken together
NUMBERS = 16_000_000  # of the Jacobian that are held at once
WATCHED = 2_000  # labels at which two draws are compared
TINY = 1e-3  # of b_i, which rounding may make negative
NOTHING = 1e-290  # share of a label that adds nothing


def samples(linearised: Linearisation) -> TypeGuard[GcnLinearisation]:
    """Returns whether the curvature of a network's labels is sampled: many of both, two classes, two layers."""
    if not isinstance(linearised, GcnLinearisation) or linearised.n_classes != 2 or len(linearised.layers) != 2:
        return False
    parameters = MANY_PARAMETERS if alone(linearised) else MANY_BELOW
    return linearised.n_nodes > MANY_LABELS and linearised.n_parameters > parameters


def alone(linearised: GcnLinearisation) -> bool:
    """Returns whether each label has one row below it, its own."""
    return linearised.field.blocks[0].nnz == linearised.n_nodes


def sampled_bytes(linearised: Linearisation, n_models: int = 0) -> int:
    """Returns an upper estimate of the memory: both draws of every label, and directions of some models."""
    m, p, b = linearised.n_nodes, linearised.n_parameters, linearised.logits.element_size()
    numbers = m * DRAWN + 4 * BLOCK * DRAWN + 4 * DRAWN * p + 3 * n_models * p + 2 * NUMBERS
    return numbers * b + 6 * DRAWN * DRAWN * 8


class Draw:
    """The curvature of the loss by some labels.

    Args:
        linearised: the network at the labelled nodes.
        places: of the labels drawn, int64 [s].
        chance: that each label is drawn, pi [m].
    """

    def __init__(self, linearised: GcnLinearisation, places: Tensor, chance: Tensor) -> None:
        self.linearised, self.part = linearised, at_labels(linearised, places)
        bent, self.loss = (part.flatten() for part in linearised.loss_terms)
        self.root = (bent[places] / chance[places]).sqrt()  # (D / pi)^1/2, [s]
        self.left = torch.zeros_like(bent).index_copy_(0, places, self.root.square())  # D_i / pi_i, 0 if not drawn
        self.rows = None if alone(linearised) else self.part.jacobian  # J_S, [s, p]
        kernel = gram(self.part, self.part.field)[:, 0, :, 0] if self.rows is None else self.rows @ self.rows.T
        kernel = kernel.double()
        self.values, self.vectors = torch.linalg.eigh(self.root[:, None] * kernel * self.root)
        self.values.clamp_(min=0)

    def along(self, places: Tensor) -> Tensor:
        """Returns g_i of some labels, [b, s]."""
        turned = (self.root[:, None] * self.vectors).to(self.linearised.logits.dtype)
        out = turned.new_empty(places.numel(), turned.shape[1])
        if self.rows is not None:
            toward, step = self.rows.T @ turned, max(1, NUMBERS // self.rows.shape[1])
            for some, part in zip(places.split(step), out.split(step), strict=True):
                torch.mm(at_labels(self.linearised, some).jacobian, toward, out=part)
            return out
        for some, part in zip(places.split(BLOCK), out.split(BLOCK), strict=True):
            torch.mm(gram(self.part, at_labels(self.linearised, some).field)[:, 0, :, 0], turned, out=part)
        return out

    def hat(self, along: Tensor, own: Tensor, places: Tensor, damping: float) -> tuple[Tensor, Tensor]:
        """Returns P_i without label i and 1 / b_i, from g_i [b, s] and K_ii [b]; float64 [b]."""
        inverse = 1 / (self.values + damping)
        explained = torch.cat([part.double().square() @ inverse for part in along.split(BLOCK)])
        hat = (own - explained).clamp_(min=0) / damping
        rest = (1 - self.left[places] * hat).clamp_(min=TINY)
        return hat / rest, 1 / rest

    def directions(self, along: Tensor, rows: Tensor, damping: float) -> Tensor:
        """Returns (R^T R + damping I)^-1 J_i^T from g_i [b, s] and J_i [b, p], [b, p]."""
        inner = (along.double() / (self.values + damping)) @ (self.root[:, None] * self.vectors).T
        return (rows - inner.to(rows.dtype) @ self.part.jacobian) / damping


class SampledOwn:
    """damping -> own changes [m, 1] of every label, float64, from the curvature of labels drawn at random.

    Args:
        linearised: the network; `samples` must hold, whatever the numbers of labels and parameters.
        size: labels to draw, about.

    Precision: kernels in the dtype of the network, the s x s system in float64.
    Cost: m s (d + h + s) multiply-adds, of a graph convolution m s p, and s^3 once, m s for each damping; m s numbers.
    """

    def __init__(self, linearised: GcnLinearisation, size: int = DRAWN) -> None:
        self.linearised = linearised
        self.own = own_kernel(linearised).double()
        self.bent, self.loss = (part.flatten() for part in linearised.loss_terms)
        self.chance = chances(self.bent * self.own, size)
        self.generator = torch.Generator().manual_seed(0)
        self.every = torch.arange(self.own.numel(), device=self.own.device)
        self.draw = self._draw()
        self.along = self.draw.along(self.every)

    def _draw(self) -> Draw:
        luck = torch.rand(self.chance.shape, dtype=self.chance.dtype, generator=self.generator).to(self.chance.device)
        return Draw(self.linearised, (luck < self.chance).nonzero().flatten(), self.chance)

    @property
    def n_drawn(self) -> int:
        """Number of labels drawn."""
        return self.draw.root.numel()

    def __call__(self, damping: float, places: Tensor | None = None) -> Tensor:
        """Returns the own changes with a damping mu > 0, of all labels or of some, int64 [b]."""
        if places is None:
            return (self.draw.hat(self.along, self.own, self.every, damping)[0] * self.loss)[:, None]
        hat, _ = self.draw.hat(self.along[places], self.own[places], places, damping)
        return (hat * self.loss[places])[:, None]

    def leverage(self, damping: float) -> Tensor:
        """Returns the leverages h_i = D_i P_i / (1 + D_i P_i), P_i without label i, float64 [m]."""
        bent = self.bent * self.draw.hat(self.along, self.own, self.every, damping)[0]
        return bent / (1 + bent)

    def error(self, damping: float) -> float:
        """Returns the standard error of own changes by their norm, from a second draw at some labels."""
        at = torch.randperm(self.every.numel(), generator=self.generator)[:WATCHED].to(self.every.device)
        second = self._draw()
        both = ((self.draw, self.along[at]), (second, second.along(at)))
        one, other = (draw.hat(along, self.own[at], at, damping)[0] * self.loss[at] for draw, along in both)
        size = float((one + other).norm() / 2)
        return float((one - other).norm()) / (2**0.5 * size) if size > 0 else 0.0

    def directions(self, damping: float, chosen: Tensor) -> Tensor:
        """Returns theta_-i - theta of some labels, places int64 [b]: [b, p]."""
        rows, along = at_labels(self.linearised, chosen).jacobian, self.along[chosen]
        scale = self.draw.hat(along, self.own[chosen], chosen, damping)[1] * self.loss[chosen]
        return self.draw.directions(along, rows, damping).mul_(scale[:, None].to(rows.dtype))


def own_kernel(linearised: GcnLinearisation) -> Tensor:
    """Returns K_ii of each label, [m]; where each has one row below it without a pass for every unit."""
    if not alone(linearised):
        return gram_blocks(linearised)[:, 0, 0]
    block, top = linearised.field.blocks[0], linearised.layers[1][0]
    inputs, below = as_dense(linearised.field.features), block.indices.long()
    slopes = (linearised.masks[0] @ (top[:, 1] - top[:, 0]).square()) * (inputs.square().sum(1) + 1)
    return block.values.square() * slopes[below] + 2 * (linearised.aggregated[0].square().sum(1) + 1)


def chances(shares: Tensor, size: int) -> Tensor:
    """Returns min(1, c share) with c such that `size` labels are drawn on average, [m]; of no more labels 1."""
    if size >= shares.numel():
        return torch.ones_like(shares)
    shares = shares.clamp(min=NOTHING)
    ordered = shares.sort(descending=True).values
    rest = ordered.flip(0).cumsum(0).flip(0)  # of the labels that are not certain, where the first j are
    fits = torch.arange(ordered.numel(), device=shares.device) + rest / ordered >= size
    j = int(fits.nonzero()[0])
    return ((size - j) / rest[j] * shares).clamp(max=1)


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
