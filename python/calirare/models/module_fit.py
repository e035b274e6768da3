"""Any trained torch module with its labels, and networks that were trained elsewhere."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from calirare._util.arrays import brief, describe
from calirare._util.errors import cut
from calirare._util.torch_state import plain_modes
from calirare.curvature import ModuleLinearisation, NodeField
from calirare.graph import Graph, check_graph, check_nodes, normalize_features
from calirare.graph.labelled import check_training_labels
from calirare.models.crossfit import class_weights, labels_at
from calirare.models.fitted import FittedNetwork, flat
from calirare.models.gcn import GCN
from calirare.models.gcn_fit import GcnFit, of_network
from calirare_ext import Csr

ERROR = 120  # characters of a module's own error


@dataclass(frozen=True, eq=False)
class ModuleFit(FittedNetwork):
    """A trained module of any shape with its labels; `fit_of` makes one.

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

    in_files: ClassVar[bool] = False
    __repr__ = brief

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
        try:
            with torch.enable_grad():
                logits = self.model(*copies)
        except (TypeError, RuntimeError) as error:
            reason = cut(str(error).splitlines()[0], ERROR)
            raise ValueError(
                f"ModuleFit: model could not be called with {' and '.join(map(describe, self.inputs))} ({reason}): "
                "wrap it in a module that can, or say what it takes, fit_of(inputs=...)"
            ) from error
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

    @property
    def needs_graph(self) -> bool:
        """No: the module is called with its inputs."""
        return False

    @property
    def needs_check(self) -> bool:
        """See `Fitted.needs_check`."""
        return True

    def linearise(self) -> ModuleLinearisation:
        """Returns the module linearised at its labelled nodes."""
        return ModuleLinearisation(self.model, self.inputs, self.nodes, self.targets, self.sample_weights)

    def evaluation_field(self, graph: Graph | None = None, nodes: Tensor | None = None) -> NodeField:
        """See `FittedNetwork.evaluation_field`; the module's own nodes, whatever the graph."""
        n = self.logits().shape[0]
        if nodes is None:
            return NodeField(torch.arange(n, device=self.nodes.device))
        check_nodes("evaluation_field", nodes, n)
        return NodeField(nodes)

    def logits_at(self, field: NodeField) -> Tensor:
        """See `FittedNetwork.logits_at`."""
        return self.logits(field.nodes)

    def logits_at_labels(self) -> Tensor:
        """See `FittedNetwork.logits_at_labels`."""
        return self.logits(self.nodes)

    def objective(self, theta: Tensor) -> tuple[float, Tensor]:
        """See `FittedNetwork.objective`; writes theta into the module."""
        self.move_to(theta)
        return self.penalised_loss()

    def linearised_at(self, theta: Tensor) -> ModuleLinearisation:
        """See `FittedNetwork.linearised_at`; writes theta into the module."""
        self.move_to(theta)
        return self.linearise()

    def penalised_loss(self) -> tuple[float, Tensor]:
        """Returns sum_i w_i l_i / m + mu / 2 |theta|^2 and its gradient [p]."""
        parameters = self.parameters()
        with torch.enable_grad():
            losses = F.cross_entropy(self.model(*self.inputs)[self.nodes], self.targets, reduction="none")
            penalty = torch.stack([p.square().sum() for p in parameters]).sum()
            loss = (self.sample_weights.to(losses) * losses).mean() + self.weight_decay / 2 * penalty
        return loss.item(), flat(torch.autograd.grad(loss, parameters))

    def gradient_norm(self) -> float:
        """See `FittedNetwork.gradient_norm`."""
        return float(self.penalised_loss()[1].norm())

    def as_dtype(self, graph: Graph | None = None, dtype: torch.dtype = torch.float64) -> Self:
        """See `FittedNetwork.as_dtype`; floating-point inputs become of that type too."""

        def cast(x: Any) -> Any:
            return x.to(dtype) if isinstance(x, Csr) or (isinstance(x, Tensor) and x.is_floating_point()) else x

        inputs = tuple(cast(x) for x in self.inputs)
        model = copy.deepcopy(self.model).to(dtype)
        return replace(self, model=model, inputs=inputs, sample_weights=self.sample_weights.to(dtype))

    def inputs_read(self) -> tuple[Any, ...]:
        """See `FittedNetwork.inputs_read`."""
        return self.inputs


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


@plain_modes()
def fit_of(
    model: nn.Module,
    graph: Graph,
    labelled: Tensor | None = None,
    *,
    weight_decay: float = 5e-4,
    inputs: tuple[Any, ...] | None = None,
) -> GcnFit | ModuleFit:
    """Returns a network that was trained elsewhere together with the labels it was trained on.

    Args:
        model: the network: our `GCN`, or any torch module with a forward of PyTorch Geometric's kind, model(x,
            edge_index) -> logits [n, k]. It is put into evaluation mode.
        graph: the graph it was trained on, with labels.
        labelled: the nodes it was trained on, int64 [m]; None: the split's training nodes.
        weight_decay: mu of its training, on all parameters that require a gradient.
        inputs: what another module than ours is called with; None: `pyg_inputs(graph)`, x scaled as the graph wants
            and edge_index.

    Returns:
        What `calirare.jackknife` and the leave-one-out methods take.

    Raises:
        TypeError: the graph is none of ours.
        ValueError: the graph has no labels, a node has none, there is no split to take the nodes from, or the module
            does not return logits.
    """
    check_graph("fit_of", graph)
    if labelled is None:
        if graph.split is None:
            raise ValueError(f"fit_of: labelled must be given, graph {graph.name!r} has no split to take it from")
        labelled = graph.split.train
    check_nodes("fit_of", labelled, graph.n_nodes, "labelled")
    targets = labels_at(graph, labelled, "fit_of: nodes of labelled")
    if isinstance(model, GCN) and (type(model) is not GCN or not all(p.requires_grad for p in model.parameters())):
        raise ValueError(
            "fit_of: model must be a plain GCN whose parameters all require a gradient, or another torch module, got a "
            f"{type(model).__name__} that is derived or has frozen parameters: wrap it in a module with model(x, "
            "edge_index)"
        )
    if not isinstance(model, GCN):
        weights = class_weights(targets, graph.n_classes)[targets].float()
        inputs = pyg_inputs(graph) if inputs is None else inputs
        trained = ModuleFit(model.eval(), inputs, labelled, targets, weights, weight_decay)
        if trained.logits().shape[0] != graph.n_nodes:
            got = trained.logits().shape[0]
            raise ValueError(f"fit_of: model must return logits of all {graph.n_nodes} nodes, got {got} rows")
        return trained
    if inputs is not None:
        raise ValueError("fit_of: inputs must be None with a GCN, which reads the graph")
    return of_network(model.eval(), graph, labelled, weight_decay)
