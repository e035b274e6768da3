"""The derivatives of any differentiable torch module at its labelled nodes, by reverse mode alone.

`ModuleTape` stands beside `GcnTape`: GAT, GIN, SAGE or a user's own network goes through the same formulas, slower.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, TypeGuard

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from calirare_ext import GcnTape, ReceptiveField


class ModuleTape:
    """What a module computes at its labelled nodes, and derivatives on demand.

    Only reverse-mode derivatives are asked of the module, first and second order, so sparse and scatter propagation
    work. Nothing is written to the module.

    Args:
        module: the network in evaluation mode; module(*inputs) returns the logits of every node, [n, k]. All of its
            parameters that require a gradient take part.
        inputs: what it is called with, such as (x, edge_index).
        nodes: labelled nodes, int64 [m].
        targets: their classes, int64 [m].
        sample_weights: w_i, [m].

    Attributes:
        logits: at the labelled nodes [m, k], without gradient.
        field: the labelled nodes, where a `GcnTape` has their receptive field.
    """

    def __init__(
        self, module: nn.Module, inputs: tuple[Any, ...], nodes: Tensor, targets: Tensor, sample_weights: Tensor
    ) -> None:
        self.module, self.inputs, self.field, self.targets = module, inputs, nodes, targets
        self._names = [name for name, p in module.named_parameters() if p.requires_grad]
        self._parameters = [p for p in module.parameters() if p.requires_grad]
        with torch.enable_grad():
            self._every = module(*inputs)
        self.logits = self._every.detach()[nodes]
        self.sample_weights = sample_weights.to(self.logits)

    @property
    def n_nodes(self) -> int:
        """Number of labelled nodes, m."""
        return self.field.numel()

    @property
    def n_classes(self) -> int:
        """Number of classes, k."""
        return self.logits.shape[1]

    @property
    def n_parameters(self) -> int:
        """Number of parameters, p."""
        return sum(p.numel() for p in self._parameters)

    @cached_property
    def jacobian(self) -> Tensor:
        """The rows d (z_c - z_0)(i) / d theta, [m (k - 1), p]: as many backward passes."""
        with torch.enable_grad():
            own = _differences(self._every[self.field]).flatten().unbind()
        return torch.stack([self._pulled(z).detach() for z in own])

    def change_along(self, where: Tensor, directions: Tensor) -> Tensor:
        """Returns J v in logit differences at nodes, to first order: [n_v, k - 1, b]; one backward pass per direction.

        Args:
            where: nodes v, int64 [n_v].
            directions: v, [b, p].

        Returns:
            The derivative of <J^T u, v> by u.
        """
        with torch.enable_grad():
            z = _differences(self._every[where])
            u = torch.zeros_like(z, requires_grad=True)
            pulled = self._pulled(z, u, create_graph=True)
        columns = [torch.autograd.grad(pulled, u, v.to(pulled), retain_graph=True)[0] for v in directions]
        return torch.stack(columns, 2) if columns else z.new_zeros(*z.shape, 0)

    def change_after(self, where: Tensor, directions: Tensor) -> Tensor:
        """Returns z(theta + v) - z(theta) in differences at nodes, [n_v, k - 1, b]; one forward pass per direction."""
        sizes = [p.numel() for p in self._parameters]
        before = _differences(self._every.detach()[where])
        moved = before.new_empty(*before.shape, directions.shape[0])
        with torch.no_grad():
            for j, direction in enumerate(directions.to(before)):
                parts = direction.split(sizes)
                there = {n: p + v.view_as(p) for n, p, v in zip(self._names, self._parameters, parts, strict=True)}
                moved[:, :, j] = _differences(functional_call(self.module, there, self.inputs)[where]) - before
        return moved

    def hessian_product(self, vectors: Tensor) -> Tensor:
        """Returns H v for each row of [b, p], H the Hessian of sum_i w_i l_i / m; one backward pass each."""
        gradient = self._loss_gradient
        rows = [
            _flat(torch.autograd.grad(gradient, self._parameters, v, retain_graph=True, **_ABSENT))
            for v in vectors.to(gradient)
        ]
        return torch.stack(rows) if rows else vectors.new_zeros(0, self.n_parameters)

    @cached_property
    def _loss_gradient(self) -> Tensor:
        with torch.enable_grad():
            losses = F.cross_entropy(self._every[self.field], self.targets, reduction="none")
            return self._pulled((self.sample_weights * losses).mean(), create_graph=True)

    def _pulled(self, z: Tensor, u: Tensor | None = None, *, create_graph: bool = False) -> Tensor:
        """Returns J^T u [p] of outputs z."""
        gradients = torch.autograd.grad(z, self._parameters, u, retain_graph=True, create_graph=create_graph, **_ABSENT)
        return _flat(gradients)


Tape = GcnTape | ModuleTape
Where = ReceptiveField | Tensor  # the nodes to evaluate: of a GCN with all they see, of a module by number

_ABSENT: dict[str, Any] = {"allow_unused": True, "materialize_grads": True}  # parameters the outputs do not depend on


def shallow(tape: Tape) -> TypeGuard[GcnTape]:
    """Returns whether the closed forms for at most two graph convolutions apply."""
    return isinstance(tape, GcnTape) and len(tape.layers) <= 2


def count(where: Where) -> int:
    """Returns the number of nodes to evaluate."""
    return where.numel() if isinstance(where, Tensor) else where.nodes.numel()


def _differences(z: Tensor) -> Tensor:
    return z[:, 1:] - z[:, :1]


def _flat(gradients: tuple[Tensor, ...]) -> Tensor:
    return torch.cat([gradient.flatten() for gradient in gradients])
