"""Any differentiable torch module linearised at its labelled nodes, by reverse mode alone.

GAT, GIN, SAGE or a user's own network goes through the same formulas as a GCN, slower. Only reverse-mode derivatives
are asked of the module, first and second order, so sparse and scatter propagation work. Nothing is written to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from calirare.curvature.linearisation import Linearisation, logit_differences

_ABSENT: dict[str, Any] = {"allow_unused": True, "materialize_grads": True}  # parameters the outputs do not depend on


@dataclass(frozen=True, eq=False)
class NodeField:
    """Nodes of a module that is evaluated at all nodes at once.

    Attributes:
        nodes: int64 [n_v].
    """

    nodes: Tensor

    @property
    def rows(self) -> tuple[Tensor, ...]:
        """The nodes alone: what else is read, the module knows."""
        return (self.nodes,)


class ModuleLinearisation(Linearisation):
    """`Linearisation` of any module.

    Args:
        module: the network in evaluation mode; module(*inputs) returns the logits of every node, [n, k]. All of its
            parameters that require a gradient take part.
        inputs: what it is called with, such as (x, edge_index).
        nodes: labelled nodes, int64 [m].
        targets: their classes, int64 [m].
        sample_weights: w_i, [m].
    """

    def __init__(
        self, module: nn.Module, inputs: tuple[Any, ...], nodes: Tensor, targets: Tensor, sample_weights: Tensor
    ) -> None:
        self.module, self.inputs, self.field, self.targets = module, inputs, NodeField(nodes), targets
        self._parameters = [p for p in module.parameters() if p.requires_grad]
        with torch.enable_grad():
            self._every = module(*inputs)
        self.logits = self._every.detach()[nodes]
        self.sample_weights = sample_weights.to(self.logits)

    @property
    def n_parameters(self) -> int:
        """Number of parameters, p."""
        return sum(p.numel() for p in self._parameters)

    @cached_property
    def jacobian(self) -> Tensor:
        """J, by as many backward passes as it has rows: [m (k - 1), p]."""
        with torch.enable_grad():
            own = logit_differences(self._every[self.field.nodes]).flatten().unbind()
        return torch.stack([self._pulled(z).detach() for z in own])

    def hvp(self, vectors: Tensor, *, damping: float = 0.0) -> Tensor:
        """See `Linearisation.hvp`; one backward pass for each vector."""
        gradient = self._loss_gradient
        rows = [
            _flat(torch.autograd.grad(gradient, self._parameters, v, retain_graph=True, **_ABSENT))
            for v in vectors.to(gradient)
        ]
        out = torch.stack(rows) if rows else vectors.new_zeros(0, self.n_parameters)
        return out.add_(vectors, alpha=damping) if damping else out

    def change_along(self, field: NodeField, directions: Tensor) -> Tensor:
        """See `Linearisation.change_along`; J v as the derivative of <J^T u, v> by u, one pass for each direction."""
        with torch.enable_grad():
            z = logit_differences(self._every[field.nodes])
            u = torch.zeros_like(z, requires_grad=True)
            pulled = self._pulled(z, u, create_graph=True)
        columns = [torch.autograd.grad(pulled, u, v.to(pulled), retain_graph=True)[0] for v in directions]
        return torch.stack(columns, 2) if columns else z.new_zeros(*z.shape, 0)

    @cached_property
    def _loss_gradient(self) -> Tensor:
        with torch.enable_grad():
            losses = F.cross_entropy(self._every[self.field.nodes], self.targets, reduction="none")
            return self._pulled((self.sample_weights * losses).mean(), create_graph=True)

    def _pulled(self, z: Tensor, u: Tensor | None = None, *, create_graph: bool = False) -> Tensor:
        """Returns J^T u [p] of outputs z."""
        gradients = torch.autograd.grad(z, self._parameters, u, retain_graph=True, create_graph=create_graph, **_ABSENT)
        return _flat(gradients)


def _flat(gradients: tuple[Tensor, ...]) -> Tensor:
    return torch.cat([gradient.flatten() for gradient in gradients])
