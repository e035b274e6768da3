"""Any trained torch module with its labels, and networks that were trained elsewhere."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from calirare._util.arrays import brief, describe
from calirare._util.errors import cut
from calirare._util.torch_state import plain_modes
from calirare.curvature import ModuleLinearisation, NodeField
from calirare.graph import Graph, check_nodes, normalize_features, split_of_masks
from calirare.graph.labelled import check_training_labels
from calirare.models.crossfit import class_weights
from calirare.models.fitted import Fitted, FittedNetwork, flat
from calirare.models.gcn import GCN
from calirare.models.gcn_fit import GcnFit, of_network
from calirare_ext import Csr

if TYPE_CHECKING:
    from torch_geometric.data import Data

ClassWeight = Literal["balanced"] | Tensor | Sequence[float] | None
FittedKind = TypeVar("FittedKind", bound=Fitted)
WEIGHT_DECAY = 5e-4  # Kipf & Welling 2017, and most examples since
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
        unseen: labelled nodes that it was not trained on, such as validation nodes, and their classes; or None.
        second_moments: v of each parameter as Adam holds it (`adam_moments`), which `Tangent` reads; or None.

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
    unseen: tuple[Tensor, Tensor] | None = field(default=None, repr=False)
    second_moments: Sequence[Tensor] | Mapping[str, Tensor] | None = field(default=None, repr=False)

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

    def surroundings(self, nodes: Tensor) -> tuple[tuple[Any, ...], Tensor]:
        """See `ModuleLinearisation.surroundings`."""
        kept = self.linearisation
        assert isinstance(kept, ModuleLinearisation)
        return kept.surroundings(nodes)

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


class NodeLabels(NamedTuple):
    """The classes of a graph's nodes, and which of them trained and validated.

    Attributes:
        name: of the graph.
        n_nodes: n.
        y: classes, int64 [n], -1 for unknown; or None.
        train: nodes, int64 [m]; or None.
        val: nodes, int64 [v]; or None.
    """

    name: str
    n_nodes: int
    y: Tensor | None
    train: Tensor | None
    val: Tensor | None


def node_labels(where: str, data: Graph | Data) -> NodeLabels:
    """Returns the labels of a graph, or of a `Data` of PyTorch Geometric with `train_mask` and `val_mask`.

    Raises:
        TypeError: it is neither, or its classes are not whole numbers.
        InputError: masks do not fit.
    """
    if isinstance(data, Graph):
        name, n, y, split = f"graph {data.name!r}", data.n_nodes, data.y, data.split
    else:
        if not hasattr(data, "edge_index") and not hasattr(data, "adj_t"):
            got = type(data).__name__
            raise TypeError(f"{where}: data must be a Data of PyTorch Geometric or a calirare.Graph, got {got}")
        name, n, y = "data", int(data.num_nodes or 0), data.y
        split = split_of_masks(data, n, where)
        if isinstance(y, Tensor):
            y = y.squeeze(1) if y.dim() == 2 and y.shape[1] == 1 else y
            if y.is_floating_point() or y.shape != (n,):
                raise TypeError(f"{where}: data.y must be classes, int64 [{n}], got {y.dtype} {list(y.shape)}")
            y = y.long()
    parts = (None, None) if split is None else (split.train, split.val)
    device = None if y is None else y.device
    return NodeLabels(name, n, y, *(None if part is None else part.to(device) for part in parts))


def module_inputs(model: nn.Module, data: Graph | Data) -> tuple[Any, ...]:
    """Returns what a module is called with: x, edge_index and, where its forward takes them, weights of edges.

    Args:
        model: the module; the weights are given where its forward has a parameter `edge_weight`.
        data: a `Data` as it is (`adj_t` where it has no `edge_index`), or a graph by `pyg_inputs`.
    """
    weighted = "edge_weight" in inspect.signature(model.forward).parameters
    if isinstance(data, Graph):
        x, edges = pyg_inputs(data)
        return (x, edges, data.adjacency.values) if weighted else (x, edges)
    edges = data.adj_t if data.edge_index is None else data.edge_index
    weights = data.edge_weight if weighted and "edge_weight" in data else None
    return (data.x, edges) if weights is None else (data.x, edges, weights)


def _weights_of(class_weight: ClassWeight, targets: Tensor, n_classes: int) -> Tensor:
    """Returns the weight of each label, mean 1 as in torch's weighted mean, float64 [m]."""
    if class_weight is None:
        return torch.ones(targets.numel(), dtype=torch.float64, device=targets.device)
    if isinstance(class_weight, str):
        if class_weight != "balanced":
            raise ValueError(f'fit_of: class_weight must be None, "balanced" or weights [k], got {class_weight!r}')
        return class_weights(targets, n_classes)[targets]
    given = torch.as_tensor(class_weight, dtype=torch.float64, device=targets.device)
    if given.shape != (n_classes,) or not bool((given.isfinite() & (given >= 0)).all()):
        raise ValueError(f"fit_of: class_weight must be {n_classes} finite numbers >= 0, got {list(given.shape)}")
    return given[targets] / given[targets].mean()


@plain_modes()
def fit_of(
    model: nn.Module,
    data: Graph | Data,
    labels: Tensor | None = None,
    *,
    class_weight: ClassWeight = None,
    weight_decay: float | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    inputs: tuple[Any, ...] | None = None,
) -> GcnFit | ModuleFit:
    """Returns a network that was trained elsewhere together with the labels it was trained on.

    Args:
        model: the network: our `GCN`, or any torch module with a forward of PyTorch Geometric's kind, model(x,
            edge_index[, edge_weight]) -> logits [n, k]. It is put into evaluation mode.
        data: the graph it was trained on, with labels: a `Data` of PyTorch Geometric or a `Graph`.
        labels: the nodes it was trained on, a mask [n] or int64 [m]; None: the split's training nodes.
        class_weight: of the training loss: None: none; "balanced": inverse to the number of labels; or [k] >= 0, as
            torch's cross_entropy takes them.
        weight_decay: mu of its training, on all parameters that require a gradient; None: the optimiser's, or 5e-4.
        optimizer: the Adam that trained it, whose state `Tangent` reads; or None.
        inputs: what another module than ours is called with; None: as `data` has them, of a `Graph` `pyg_inputs`.

    Returns:
        What `calirare.jackknife` and the leave-one-out methods take. Labelled validation nodes come along.

    Raises:
        TypeError: the graph is none.
        ValueError: the graph has no labels, a node has none, there is no split to take the nodes from, or the module
            does not return logits.
    """
    known = node_labels("fit_of", data)
    if labels is None and known.train is None:
        raise ValueError(f"fit_of: labels must be given, {known.name} has no split to take them from")
    nodes = torch.as_tensor(known.train if labels is None else labels)
    if nodes.dtype == torch.bool:
        if nodes.shape != (known.n_nodes,):
            raise ValueError(f"fit_of: labels must be a mask [{known.n_nodes}], got {list(nodes.shape)}")
        nodes = nodes.nonzero().flatten()
    check_nodes("fit_of", nodes, known.n_nodes, "labels")
    if known.y is None or bool((known.y[nodes] < 0).any()):
        raise ValueError(f"fit_of: nodes of labels must be labelled, but one of {known.name} has no label")
    targets = known.y[nodes]
    if weight_decay is None:
        weight_decay = WEIGHT_DECAY if optimizer is None else float(optimizer.param_groups[0].get("weight_decay", 0.0))
    if isinstance(model, GCN) and (type(model) is not GCN or not all(p.requires_grad for p in model.parameters())):
        raise ValueError(
            "fit_of: model must be a plain GCN whose parameters all require a gradient, or another torch module, got a "
            f"{type(model).__name__} that is derived or has frozen parameters: wrap it in a module with model(x, "
            "edge_index)"
        )
    if isinstance(model, GCN):
        if inputs is not None:
            raise ValueError("fit_of: inputs must be None with a GCN, which reads the graph")
        weights = _weights_of(class_weight, targets, model.n_classes)
        graph = data if isinstance(data, Graph) else Graph.from_data(data)
        return of_network(model.eval(), graph, nodes, weight_decay, weights)
    inputs = module_inputs(model, data) if inputs is None else inputs
    kept = None if known.val is None else known.val[~torch.isin(known.val, nodes)]
    unseen = None if kept is None else kept[known.y[kept] >= 0]
    fitted = ModuleFit(
        model.eval(),
        inputs,
        nodes,
        targets,
        torch.ones(len(nodes)),
        weight_decay,
        None if unseen is None or not unseen.numel() else (unseen, known.y[unseen]),
        None if optimizer is None else _moments_by_name(model, optimizer),
    )
    n, k = fitted.logits().shape
    if n != known.n_nodes:
        raise ValueError(f"fit_of: model must return logits of all {known.n_nodes} nodes, got {n} rows")
    return replace(fitted, sample_weights=_weights_of(class_weight, targets, k).to(fitted.sample_weights))


def adam_moments(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """Returns v of each parameter as `torch.optim.Adam` (or AdamW) holds it, without its bias towards 0."""
    out = list[Tensor]()
    for group in optimizer.param_groups:
        for p in group["params"]:
            held = optimizer.state.get(p, {})
            decayed = 1 - group.get("betas", (0, 0.0))[1] ** float(held.get("step", 1))
            out.append(held["exp_avg_sq"] / decayed if "exp_avg_sq" in held else torch.zeros_like(p))
    return out


def _moments_by_name(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Returns `adam_moments` by the names of a model's parameters."""
    names = {id(p): name for name, p in model.named_parameters() if p.requires_grad}
    held = [p for group in optimizer.param_groups for p in group["params"]]
    found = {names[id(p)]: v for p, v in zip(held, adam_moments(optimizer), strict=True) if id(p) in names}
    if len(found) < len(names) or not any(bool(v.any()) for v in found.values()):
        raise ValueError(
            "fit_of: optimizer must be the Adam that trained this model's parameters, got one without second moments "
            "of all of them: leave it out, they are then estimated"
        )
    return found


def fitted_of(
    where: str, model: FittedKind | nn.Module, data: Graph | Data | None, **training: Any
) -> tuple[FittedKind | GcnFit | ModuleFit, Graph | None]:
    """Returns a fitted network and its graph, if it has or needs one; a bare network goes through `fit_of`.

    Args:
        where: put in front of a message.
        model: a fitted network, or a bare one.
        data: its graph; None is enough for what knows its inputs.
        **training: of `fit_of`, which a bare network alone may have; None: not given.

    Raises:
        ValueError: a bare network has no data, or labels or training options are given for a fitted one.
    """
    graph = data if isinstance(data, Graph) else None
    if isinstance(model, nn.Module):
        if data is None:
            raise ValueError(f"{where}: data must be given with a bare network, got None")
        fitted = fit_of(model, data, **training)
        return fitted, Graph.from_data(data) if fitted.needs_graph and graph is None else graph
    if any(value is not None for value in training.values()):
        raise ValueError(f"{where}: labels, class weights and optimiser are for a bare network: a fitted one has them")
    return model, graph
