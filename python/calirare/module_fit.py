"""Any torch module with the labels it was trained on: what the leave-one-out methods take beside a GCN's `Fit`."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from calirare.convert import to_data
from calirare.datasets.features import normalize_features
from calirare.graph import Graph
from calirare.leave_one_out.module_tape import ModuleTape


@dataclass(frozen=True, eq=False)
class ModuleFit:
    """A trained module of any shape with its labels; `calirare.training.fit_of` makes one.

    Attributes:
        model: the network, in evaluation mode; model(*inputs) returns the logits of every node, [n, k].
        inputs: what it is called with, such as (x, edge_index).
        nodes: labelled nodes, int64 [m].
        targets: their classes, int64 [m].
        sample_weights: weight of each one's loss, [m].
        weight_decay: mu of the penalty mu / 2 |theta|^2 on all parameters that require a gradient.

    Raises:
        ValueError: the module is in training mode, or its logits do not fit the labels.
    """

    model: nn.Module
    inputs: tuple[Any, ...]
    nodes: Tensor
    targets: Tensor
    sample_weights: Tensor
    weight_decay: float

    def __post_init__(self) -> None:
        """Checks that the module can be differentiated at its labels."""
        if self.model.training:  # dropout would change between passes
            raise ValueError("ModuleFit: model must be in evaluation mode, got training mode: call model.eval()")
        if not self.parameters():
            raise ValueError("ModuleFit: model must have parameters that require a gradient, got none")
        logits = self.logits()
        last, top = int(self.nodes.max()), int(self.targets.max())
        if logits.dim() != 2 or logits.shape[0] <= last or logits.shape[1] <= max(top, 1):
            raise ValueError(
                f"ModuleFit: model must return logits [n, k] with n > {last} nodes and k > {max(top, 1)} classes, got "
                f"{list(logits.shape)}"
            )

    def logits(self, where: Tensor | None = None) -> Tensor:
        """Returns the logits of some nodes, or of all, without gradient."""
        with torch.no_grad():
            every = self.model(*self.inputs)
        return every if where is None else every[where]

    def tape(self) -> ModuleTape:
        """Returns the module's derivatives at the labelled nodes."""
        return ModuleTape(self.model, self.inputs, self.nodes, self.targets, self.sample_weights)

    def parameters(self) -> list[nn.Parameter]:
        """Returns the parameters that take part."""
        return [p for p in self.model.parameters() if p.requires_grad]

    def penalised_loss(self) -> tuple[float, Tensor]:
        """Returns sum_i w_i l_i / m + mu / 2 |theta|^2 and its gradient [p]."""
        parameters = self.parameters()
        with torch.enable_grad():
            losses = F.cross_entropy(self.model(*self.inputs)[self.nodes], self.targets, reduction="none")
            penalty = torch.stack([p.square().sum() for p in parameters]).sum()
            loss = (self.sample_weights.to(losses) * losses).mean() + self.weight_decay / 2 * penalty
        gradients = torch.autograd.grad(loss, parameters)
        return loss.item(), torch.cat([gradient.flatten() for gradient in gradients])

    def gradient_norm(self) -> float:
        """Returns |grad| of the penalised loss; 0 at a stationary point."""
        return float(self.penalised_loss()[1].norm())

    def copy_as(self, dtype: torch.dtype) -> ModuleFit:
        """Returns a copy whose parameters and floating-point inputs have another dtype."""
        inputs = tuple(x.to(dtype) if isinstance(x, Tensor) and x.is_floating_point() else x for x in self.inputs)
        model = copy.deepcopy(self.model).to(dtype)
        return replace(self, model=model, inputs=inputs, sample_weights=self.sample_weights.to(dtype))


def pyg_inputs(graph: Graph) -> tuple[Tensor, Tensor]:
    """Returns what PyTorch Geometric's layers read of a graph.

    The features are scaled as the data set wants and written out densely; the weights of edges are left out, as
    attention and plain sums learn or ignore them.

    Args:
        graph: the graph.

    Returns:
        Features float32 [n, d] and edge_index int64 [2, m].
    """
    data = to_data(normalize_features(graph))
    assert data.x is not None
    assert data.edge_index is not None
    return data.x, data.edge_index
