"""GAT, GIN and GraphSAGE as the closed form of their labels takes them: their tangent, one label after the other.

What two layers read to tell the logits of a node lies two edges around it, so that a backward pass for each logit goes
over that alone. Where even this would take minutes, or more memory than the parameters are worth, the hidden layer is
held and the last one alone moves.
"""

from __future__ import annotations

import copy
import dataclasses
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from calirare.curvature import NodeField, logit_differences
from calirare.explain.tangent import Features, LinearModel
from calirare.graph import Graph
from calirare.models import Near, OnPrepared, PreparedNetwork, PygFit, Reach, pyg_inputs

EDGES = 150_000_000  # that the backward passes of all labels may go over: about half a minute
OF_A_PASS = 20_000  # edges that take as long as what a pass costs without any
NUMBERS = 250_000_000  # of a Jacobian
KEPT = 30_000_000  # numbers of a field's Jacobian that are kept
EPSILON = 1e-8  # that Adam adds to the root of a mean square


class Surroundings:
    """A graph from which what two layers read around some nodes is cut.

    Args:
        graph: as the network takes it.
    """

    def __init__(self, graph: Graph) -> None:
        self.adjacency = graph.adjacency
        self.x, _ = pyg_inputs(graph)
        self._place = torch.full((graph.n_nodes,), -1)  # of nodes that are being read; -1 outside of `reach`

    def reach(self, nodes: Tensor) -> tuple[Reach, Tensor]:
        """Returns what is read around distinct nodes, int64 [n], and its nodes: those first, then farther ones."""
        try:
            return self._reach(nodes)
        except BaseException:  # interrupted: the next call shall not find places of this one
            self._place.fill_(-1)
            raise

    def _reach(self, nodes: Tensor) -> tuple[Reach, Tensor]:
        """See `reach`."""
        order, edges, sizes = nodes, list[Tensor](), list[int]()
        for _ in range(2):
            self._place[order] = torch.arange(order.numel())
            rows = self.adjacency.select_rows(order)
            sources = rows.indices.long()
            new = sources[self._place[sources] < 0].unique()
            self._place[new] = torch.arange(order.numel(), order.numel() + new.numel())
            targets = torch.arange(order.numel()).repeat_interleave(rows.indptr.diff())
            edges.append(torch.stack([self._place[sources], targets]))
            sizes.append(order.numel())
            order = torch.cat([order, new])
        self._place[order] = -1
        return Reach(self.x[order], edges[1], edges[0], sizes[1], sizes[0]), order

    def near(self, model: PreparedNetwork, nodes: Tensor) -> Near:
        """Returns the same of nodes that may repeat, as a network takes it."""
        distinct, rows = torch.unique(nodes, return_inverse=True)
        return Near(model.prepared(self.reach(distinct)[0]), rows)

    def edges_read(self, nodes: Tensor) -> int:
        """Returns the sum over nodes of the edges that are read around each alone."""
        degrees = self.adjacency.indptr.diff()
        rows = self.adjacency.select_rows(nodes)
        return int(degrees[rows.indices.long()].sum() + degrees[nodes].sum())


class TangentRows:
    """The rows of a network's Jacobian, each parameter times the root of the pace at which Adam moves it.

    Those of few nodes are kept for as long as their field is.

    Args:
        fitted: the network.
        surroundings: of its graph.
        whole: whether all parameters move; else those of the last layer alone.
    """

    def __init__(self, fitted: PygFit, surroundings: Surroundings, whole: bool) -> None:
        self.surroundings = surroundings
        model = copy.deepcopy(fitted.network)
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(whole or name.startswith("second."))
        self.model = OnPrepared(model).eval()
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.root_pace = _root_paces(fitted, [p.requires_grad for p in model.parameters()])
        self.scale = 1.0
        self._kept: WeakKeyDictionary[NodeField, Tensor] = WeakKeyDictionary()

    def scaled_by(self, nodes: Tensor) -> Tensor:
        """Returns the rows at nodes, [n (k - 1), p], whose mean square is 1 from here on.

        A parameter's numbers of all nodes lie side by side, for `products`.
        """
        rows = self._made(NodeField(nodes))
        self.scale = float(rows.double().square().sum(1).mean().clamp(min=torch.finfo(torch.float32).tiny).rsqrt())
        return rows.mul_(self.scale).T.contiguous().T

    def __call__(self, field: NodeField) -> Tensor:
        """Returns the derivatives of the logit differences z_c - z_0 at nodes, [n (k - 1), p]."""
        if field.nodes.numel() * self.root_pace.numel() > KEPT:
            return self._made(field)
        if field not in self._kept:
            self._kept[field] = self._made(field)
        return self._kept[field]

    def _made(self, field: NodeField) -> Tensor:
        """Returns them, made."""
        rows = list[Tensor]()
        for node in field.nodes:
            near = self.surroundings.near(self.model.network, node[None])
            with torch.enable_grad():
                own = logit_differences(near.logits(self.model.network))[0]
            for z in own:
                gradient = torch.autograd.grad(
                    z, self.parameters, retain_graph=True, allow_unused=True, materialize_grads=True
                )
                rows.append(torch.cat([each.flatten() for each in gradient]).mul_(self.root_pace).mul_(self.scale))
        return torch.stack(rows) if rows else self.root_pace.new_zeros(0, self.root_pace.numel())


def _root_paces(fitted: PygFit, moves: list[bool]) -> Tensor:
    """Returns the roots of 1 / sqrt(v) of the parameters that move, [p]; v = 1 in a run of an earlier version."""
    sizes = [p.numel() for p in fitted.network.parameters()]
    held = fitted.mean_squares
    held = torch.ones(sum(sizes)) if held is None else held
    kept = [part for part, moving in zip(held.split(sizes), moves, strict=True) if moving]
    return (torch.cat(kept).sqrt() + EPSILON).rsqrt()


@dataclass(frozen=True, eq=False)
class LabelledPyg:
    """A network of PyTorch Geometric's layers with its labels, as its tangent.

    Attributes:
        fitted: the network.
        whole: whether all parameters move; else those of the last layer alone.
        jacobian_at: the derivatives of the logit differences z_c - z_0 at nodes, [n (k - 1), p].
        linearisation: the tangent at some coordinates.
    """

    fitted: PygFit
    whole: bool
    jacobian_at: TangentRows
    linearisation: LinearModel

    @classmethod
    def of(cls, fitted: PygFit, surroundings: Surroundings, largest: int) -> LabelledPyg:
        """Returns it with all parameters, or the last layer's where those take too much, before it knows a label.

        Args:
            fitted: the network.
            surroundings: of its graph.
            largest: side of a matrix that is factored.
        """
        m, rows = fitted.nodes.numel(), fitted.nodes.numel() * (fitted.n_classes - 1)
        p = sum(each.numel() for each in fitted.network.parameters())
        work = (surroundings.edges_read(fitted.nodes) + OF_A_PASS * m) * (fitted.n_classes - 1)
        whole = min(p, rows) <= largest and rows * p <= NUMBERS and work <= EDGES
        read = TangentRows(fitted, surroundings, whole)
        jacobian, field = read.scaled_by(fitted.nodes), NodeField(fitted.nodes)
        features = Features(field, fitted.targets, fitted.sample_weights, jacobian, read)
        return cls(fitted, whole, read, LinearModel(features))

    def at_minimum(self, damping: float) -> LabelledPyg:
        """Returns it at the minimum of the tangent's loss, from where it is."""
        return dataclasses.replace(self, linearisation=self.linearisation.minimum(damping))

    @property
    def nodes(self) -> Tensor:
        """The labelled nodes, int64 [m]."""
        return self.fitted.nodes

    @property
    def targets(self) -> Tensor:
        """Their classes, int64 [m]."""
        return self.fitted.targets

    @property
    def sample_weights(self) -> Tensor:
        """Weight of each one's loss, [m]."""
        return self.fitted.sample_weights

    @property
    def n_classes(self) -> int:
        """Number of classes, k."""
        return self.fitted.n_classes

    @property
    def field(self) -> NodeField:
        """The labelled nodes."""
        return self.linearisation.field
