"""Any torch module with the labels it was trained on: what the leave-one-out methods take beside a GCN's `Fit`."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from calirare.curvature.module_tape import ModuleTape
from calirare.graph.features import normalize_features
from calirare.graph.graph import Graph
from calirare.graph.labelled import check_nodes, check_training_labels
from calirare_ext import Csr

P = ParamSpec("P")
R = TypeVar("R")


def leaves_modes(function: Callable[P, R]) -> Callable[P, R]:
    """Returns the function so that `trained`, a module or a fit of one, is in evaluation mode meanwhile."""

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        given = args[0] if args else kwargs.get("trained")
        model = given if isinstance(given, nn.Module) else getattr(given, "model", None)
        with evaluating(model):
            return function(*args, **kwargs)

    return wrapped


@contextmanager
def evaluating(model: object) -> Iterator[None]:
    """Keeps a module in evaluation mode, and gives every part its own mode back; anything else is left alone."""
    modes = {part: part.training for part in model.modules()} if isinstance(model, nn.Module) else {}
    for part in modes:
        part.training = False
    try:
        yield
    finally:
        for part, training in modes.items():
            part.training = training


@dataclass(frozen=True, eq=False)
class ModuleFit:
    """A trained module of any shape with its labels; `calirare.models.gcn_fit.fit_of` makes one.

    Attributes:
        model: the network, in evaluation mode; model(*inputs) returns the logits of every node, [n, k].
        inputs: what it is called with, such as (x, edge_index).
        nodes: labelled nodes, int64 [m].
        targets: their classes, int64 [m].
        sample_weights: weight of each one's loss, [m].
        weight_decay: mu of the penalty mu / 2 |theta|^2 on all parameters that require a gradient.

    Raises:
        TypeError: nodes or targets are not int64, or the parameters are neither float32 nor float64.
        ValueError: the module is in training mode, changes its inputs, is random, or its logits do not fit the labels;
            or a label, weight or the weight decay is out of range.
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
        for name, parameter in self.model.named_parameters():
            if parameter.dtype not in (torch.float32, torch.float64):
                raise TypeError(f"ModuleFit: parameters must be float32 or float64, got {parameter.dtype} for {name}")
        logits = self._first_logits()
        check_nodes("ModuleFit", self.nodes, logits.shape[0])
        check_training_labels("ModuleFit", self.nodes.numel(), self.targets, self.sample_weights, self.weight_decay)
        top = max(int(self.targets.max()), 1)
        if logits.shape[1] <= top:
            raise ValueError(
                f"ModuleFit: model must return logits [n, k] with k > {top} classes, got {list(logits.shape)}"
            )

    def _first_logits(self) -> Tensor:
        """Returns the logits; refuses what is none, what changes its inputs, and what is different at every call."""
        copies = tuple(x.detach().clone() if isinstance(x, Tensor) else x for x in self.inputs)
        before = [x._version for x in copies if isinstance(x, Tensor)]
        with torch.enable_grad():
            logits = self.model(*copies)
        if not isinstance(logits, Tensor) or logits.dim() != 2:
            got = list(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
            raise ValueError(f"ModuleFit: model must return logits [n, k], got {got}: wrap it in a module that does")
        if not logits.requires_grad:
            raise ValueError("ModuleFit: logits must depend on the parameters, got a tensor without gradient")
        if [x._version for x in copies if isinstance(x, Tensor)] != before:
            raise ValueError("ModuleFit: model must leave its inputs alone, got one changed in place: clone it first")
        logits = logits.detach()
        if not torch.allclose(self.logits(), logits, rtol=1e-3, atol=1e-4, equal_nan=True):
            raise ValueError("ModuleFit: model must give the same logits at every call, got others the second time")
        return logits

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

        def cast(x: Any) -> Any:
            return x.to(dtype) if isinstance(x, Csr) or (isinstance(x, Tensor) and x.is_floating_point()) else x

        inputs = tuple(cast(x) for x in self.inputs)
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
    data = normalize_features(graph).to_data()
    assert data.x is not None
    assert data.edge_index is not None
    return data.x, data.edge_index
