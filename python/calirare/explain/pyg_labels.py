"""GAT, GIN and GraphSAGE as the closed form of their labels takes them: a Jacobian, one label after the other.

What two layers read to tell the logits of a node lies two edges around it, so that a backward pass for each logit goes
over that alone. Where even this would take minutes, or more memory than the parameters are worth, the hidden layer is
held and the last one alone moves.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from calirare.curvature import ModuleLinearisation, NodeField, logit_differences
from calirare.graph import Graph
from calirare.models import Near, OnPrepared, PreparedNetwork, PygFit, Reach, pyg_inputs

EDGES = 150_000_000  # that the backward passes of all labels may go over: about half a minute
OF_A_PASS = 20_000  # edges that take as long as what a pass costs without any
NUMBERS = 250_000_000  # of a Jacobian
FEW = 0.25  # share of the parameters, up to which it pays to leave out those that a gradient does not have


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


@dataclass(frozen=True, eq=False)
class LabelledPyg:
    """A network of PyTorch Geometric's layers with its labels.

    Attributes:
        fitted: the network.
        surroundings: of its graph.
        whole: whether all parameters move; else those of the last layer alone.
    """

    fitted: PygFit
    surroundings: Surroundings
    whole: bool

    @classmethod
    def of(cls, fitted: PygFit, surroundings: Surroundings, largest: int) -> LabelledPyg:
        """Returns it with all parameters, or the last layer's where those take too much.

        Args:
            fitted: the network.
            surroundings: of its graph.
            largest: side of a matrix that is factored.
        """
        m, rows = fitted.nodes.numel(), fitted.nodes.numel() * (fitted.n_classes - 1)
        p = sum(each.numel() for each in fitted.network.parameters())
        work = (surroundings.edges_read(fitted.nodes) + OF_A_PASS * m) * (fitted.n_classes - 1)
        return cls(fitted, surroundings, min(p, rows) <= largest and rows * p <= NUMBERS and work <= EDGES)

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
    def weight_decay(self) -> float:
        """Mu of the penalty."""
        return self.fitted.training.weight_decay

    @property
    def n_classes(self) -> int:
        """Number of classes, k."""
        return self.fitted.n_classes

    @cached_property
    def field(self) -> NodeField:
        """The labelled nodes."""
        return NodeField(self.nodes)

    @cached_property
    def model(self) -> OnPrepared:
        """The network, of which the parameters that move require a gradient."""
        model = copy.deepcopy(self.fitted.network)
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(self.whole or name.startswith("second."))
        return OnPrepared(model).eval()

    @cached_property
    def linearisation(self) -> LabelsByPiece:
        """The network linearised at its labels."""
        return LabelsByPiece(self)

    def jacobian_at(self, field: NodeField) -> Tensor:
        """Returns the derivatives of the logit differences z_c - z_0 at nodes, [n (k - 1), p]."""
        parameters = [p for p in self.model.parameters() if p.requires_grad]
        rows = list[Tensor]()
        for node in field.nodes:
            near = self.surroundings.near(self.model.network, node[None])
            with torch.enable_grad():
                own = logit_differences(near.logits(self.model.network))[0]
            for z in own:
                gradient = torch.autograd.grad(
                    z, parameters, retain_graph=True, allow_unused=True, materialize_grads=True
                )
                rows.append(torch.cat([each.flatten() for each in gradient]))
        width = sum(p.numel() for p in parameters)
        return torch.stack(rows) if rows else self.surroundings.x.new_zeros(0, width)


def products(rows: Tensor, jacobian: Tensor) -> Tensor:
    """Returns rows [n, p] times J^T, [n, m]; where the rows hold few numbers that are not 0, by these alone.

    What a node reads has few of the words that there are, and a gradient holds nothing of the others.
    """
    used = rows.any(0).nonzero().flatten()
    turned = jacobian.T
    if not turned.is_contiguous() or used.numel() > FEW * rows.shape[1]:
        return rows @ turned
    return rows[:, used] @ turned[used]


class LabelsByPiece(ModuleLinearisation):
    """`ModuleLinearisation` of a network whose Jacobian is made of what each label alone reads.

    Args:
        labelled: the network with its labels.
    """

    def __init__(self, labelled: LabelledPyg) -> None:
        near = labelled.surroundings.near(labelled.model.network, labelled.nodes)
        super().__init__(labelled.model, near.inputs, near.rows, labelled.targets, labelled.sample_weights)
        self.labelled = labelled

    @cached_property
    def jacobian(self) -> Tensor:
        """See `Linearisation.jacobian`: a parameter's numbers of all labels lie side by side, for `products`."""
        return self.labelled.jacobian_at(self.labelled.field).T.contiguous().T
