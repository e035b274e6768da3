"""Published calibrators on anyone's logits, with one interface: `fit(logits, labels, edges, nodes).transform(logits)`.

    from calirare_lab.baselines import GATS, CaGCN, TemperatureScaling, VectorScaling

    for calibrator in (TemperatureScaling(), VectorScaling(), CaGCN(), GATS(data.train_mask)):
        calibrator.fit(logits, data.y, data.edge_index, data.val_mask)
        probabilities = calibrator.transform(logits)

`logits` are those of all nodes of a network that has not been trained on the nodes of `fit`.
"""

from __future__ import annotations

from typing import ClassVar, Self

import torch
from torch import Tensor

from calirare._util.errors import InputError
from calirare.calibration import Target
from calirare.calibration.base import check_logits
from calirare.graph import Graph, check_nodes
from calirare_ext import Csr, SparseMatrix, as_csr
from calirare_lab.baselines.comparators import PostHoc, post_hoc


def node_numbers(op: str, nodes: Tensor, n: int, name: str = "nodes") -> Tensor:
    """Returns nodes given as a mask [n] or as numbers, int64 [m], as numbers.

    Raises:
        TypeError: they are neither.
        ValueError: the mask has another length, or a number is out of range or given twice.
    """
    if isinstance(nodes, Tensor) and nodes.dtype == torch.bool:
        if nodes.shape != (n,):
            raise ValueError(f"{op}: {name} as a mask must have shape [{n}], got {list(nodes.shape)}")
        nodes = nodes.nonzero().flatten()
    check_nodes(op, nodes, n, name)
    return nodes


def calibration_nodes(op: str, logits: Tensor, labels: Tensor, nodes: Tensor | None) -> Tensor:
    """Returns the nodes to fit on, int64 [m]: those given, or all that have a label.

    Args:
        op: what messages begin with.
        logits: of all nodes, [n, k].
        labels: classes of all nodes, int64 [n]; -1 where unknown. Only those of the nodes are read.
        nodes: a mask [n] or numbers, int64 [m]; None: every node with a label.

    Raises:
        TypeError: a dtype is wrong.
        ValueError: a shape or range is wrong.
        InputError: there is no label to fit on.
    """
    check_logits(op, logits)
    if not isinstance(labels, Tensor) or labels.shape != logits.shape[:1]:
        got = list(labels.shape) if isinstance(labels, Tensor) else type(labels).__name__
        raise ValueError(f"{op}: labels must have shape [{len(logits)}], one per node, got {got}")
    at = (labels >= 0).nonzero().flatten() if nodes is None else node_numbers(op, nodes, len(logits))
    if at.numel() == 0:
        raise InputError(f"{op}: there is no labelled node to fit on; give at least one")
    check_logits(op, logits[at], labels[at])
    return at


def adjacency_of(op: str, edges: Graph | SparseMatrix, n: int) -> Csr:
    """Returns the adjacency [n, n] of a `Graph`, an `edge_index` [2, E] or any other form of `calirare_ext.as_csr`.

    Raises:
        TypeError: it is none.
        ValueError: it is not of n nodes.
    """
    adjacency = edges.adjacency if isinstance(edges, Graph) else as_csr(edges, num_nodes=n, op=op)
    if adjacency.shape != (n, n):
        raise ValueError(
            f"{op}: logits must have a row for each of the graph's {adjacency.n_rows:,} nodes, got {n:,}: give those "
            "of all nodes, not of the calibration nodes alone"
        )
    return adjacency


class _WithoutGraph:
    """A calibrator of one node's logits.

    Args:
        target: population the probabilities shall be right for, see `calirare.calibration.target_weights`.
    """

    name: ClassVar[str]

    def __init__(self, *, target: Target = "population") -> None:
        self.target: Target = target
        self.fitted: PostHoc | None = None

    def fit(
        self, logits: Tensor, labels: Tensor, edges: Graph | SparseMatrix | None = None, nodes: Tensor | None = None
    ) -> Self:
        """Fits it in float64.

        Args:
            logits: of all nodes, [n, k].
            labels: classes of all nodes, int64 [n]; only those of `nodes` are read.
            edges: not read.
            nodes: calibration nodes, a mask [n] or int64 [m]; None: all with a label >= 0.

        Returns:
            Itself.
        """
        at = calibration_nodes(type(self).__name__, logits, labels, nodes)
        self.fitted = post_hoc(self.name, self.target).fit(logits[at].detach().double(), labels[at])
        return self

    def transform(self, logits: Tensor) -> Tensor:
        """Returns calibrated probabilities [n, k], in the dtype of the logits."""
        if self.fitted is None:
            raise RuntimeError(f"{type(self).__name__}: call fit before transform")
        check_logits(type(self).__name__, logits)
        return self.fitted.transform(logits.detach().double()).to(logits.dtype)


class TemperatureScaling(_WithoutGraph):
    """softmax(z / T), one temperature for all nodes (Guo, Pleiss, Sun & Weinberger 2017); arguments as below."""

    name = "temperature"


class VectorScaling(_WithoutGraph):
    """softmax(w * z + b), a scale and a bias per class (Guo et al. 2017), with a weak prior at the identity."""

    name = "vector"
