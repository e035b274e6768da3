"""Two layers of PyTorch Geometric: GCN, GraphSAGE and GAT; epochs chosen as in GADBench, then trained on all labels."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import average_precision_score
from torch import Tensor, nn
from torch.nn import functional as F

from calirare import Graph
from detection.columns import Tables, mean_of_neighbours, scipy_of
from detection.tasks import Draw

HIDDEN, HEADS, DROPOUT = 64, 4, 0.5
EPOCHS, PATIENCE = 200, 50
LEARNING_RATE, WEIGHT_DECAY = 0.01, 5e-4
SPARSE_BELOW = 0.1  # share of features that are not zero


class Network(nn.Module):
    """Two layers; the heads of GAT are together half as wide as the hidden layer of the others."""

    def __init__(self, kind: str, n_features: int) -> None:
        super().__init__()
        from torch_geometric.nn import GATConv, GCNConv, SAGEConv

        self.kind = kind
        if kind == "GCN":
            self.first = GCNConv(n_features, HIDDEN, normalize=False)
            self.second = GCNConv(HIDDEN, 2, normalize=False)
        elif kind == "SAGE":
            self.first = SAGEConv(n_features, HIDDEN, aggr="sum")  # of edges whose weights make it the mean
            self.second = SAGEConv(HIDDEN, 2, aggr="sum")
        else:
            self.first = GATConv(n_features, HIDDEN // 2 // HEADS, heads=HEADS)
            self.second = GATConv(HIDDEN // 2, 2)

    def forward(self, inputs: tuple[Tensor, ...]) -> Tensor:
        """Returns logits [n, 2] of what `prepared` made of a graph."""
        edges, x, *means = inputs
        # given means, SAGEConv's own first step, which no parameter changes, is done
        hidden = self.first.lin_l(means[0]) + self.first.lin_r(x) if means else self.first(x, edges)
        hidden = F.elu(hidden) if self.kind == "GAT" else hidden.relu()
        return self.second(F.dropout(hidden, DROPOUT, self.training), edges)


def prepared(kind: str, graph: Graph, x: np.ndarray) -> tuple[Tensor, ...]:
    """Returns edges, features and for GraphSAGE the features' means over neighbours."""
    a = scipy_of(graph.adjacency)
    if kind == "GAT":
        return torch.from_numpy(np.stack(a.nonzero())), compact(x)
    if kind == "SAGE":
        m = mean_of_neighbours(graph)
        return sparse(m), compact(x), compact((m @ x).astype(np.float32))
    with_self = a + sp.eye_array(a.shape[0])
    root = sp.diags_array(1 / np.sqrt(with_self.sum(1)))
    return sparse(root @ with_self @ root), compact(x)


def compact(x: np.ndarray) -> Tensor:
    """Returns features as torch's sparse tensor where most are zero."""
    return sparse(sp.csr_array(x)) if np.count_nonzero(x) < SPARSE_BELOW * x.size else torch.from_numpy(x)


def sparse(matrix: sp.csr_array) -> Tensor:
    matrix = matrix.tocsr()
    parts = (torch.from_numpy(part.astype(np.int64)) for part in (matrix.indptr, matrix.indices))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        values = torch.from_numpy(matrix.data.astype(np.float32))
        return torch.sparse_csr_tensor(*parts, values, matrix.shape, check_invariants=False)


class NetworkClassifier(ClassifierMixin, BaseEstimator):
    """A network whose rows are places: [0 for the graph that trains or 1 for the scored one, node].

    Rows that the draw validates on choose the number of epochs by their AUPRC and then train as the others do.
    """

    def __init__(self, kind: str, tables: Tables, draw: Draw) -> None:
        self.kind, self.tables, self.draw = kind, tables, draw

    def __sklearn_clone__(self) -> NetworkClassifier:
        return NetworkClassifier(self.kind, self.tables, self.draw)

    def fit(self, rows: np.ndarray, y: np.ndarray) -> NetworkClassifier:
        task, tables = self.tables.task, self.tables.get("network")
        graphs = [task.graph] if task.later is None else [task.graph, task.later]
        inputs = [prepared(self.kind, graph, x) for graph, x in zip(graphs, tables, strict=False)]
        self.classes_ = np.unique(y)
        network = train(self.kind, self.draw.seed, inputs[0], rows[:, 1], y, np.isin(rows[:, 1], self.draw.val))
        with torch.no_grad():
            self.scores_ = [network(given).softmax(1)[:, 1].numpy() for given in inputs]
        return self

    def predict_proba(self, rows: np.ndarray) -> np.ndarray:
        p = np.array([self.scores_[min(graph, len(self.scores_) - 1)][node] for graph, node in rows], dtype=np.float64)
        return np.column_stack([1 - p, p])


def train(kind: str, seed: int, inputs: Any, nodes: np.ndarray, y: np.ndarray, validates: np.ndarray) -> Network:
    """Returns a network trained with classes of equal weight on all nodes.

    Its number of epochs is the one at which a network trained without the validation nodes, given the same seed, had
    the highest AUPRC on them; without such nodes it is `EPOCHS`.
    """
    epochs = EPOCHS
    if validates.any():
        judged, best = (torch.from_numpy(nodes[validates]), y[validates]), (-1.0, 0)
        for epoch, network in enumerate(trained(kind, seed, inputs, nodes[~validates], y[~validates]), 1):
            network.eval()
            with torch.no_grad():
                p = network(inputs)[judged[0]].softmax(1)[:, 1].numpy()
            best = max(best, (float(average_precision_score(judged[1], p)), -epoch))
            if epoch >= PATIENCE - best[1]:
                break
        epochs = -best[1]
    return next(islice(trained(kind, seed, inputs, nodes, y), epochs - 1, None)).eval()


def trained(kind: str, seed: int, inputs: Any, nodes: np.ndarray, y: np.ndarray) -> Iterator[Network]:
    """Yields a network after each of its epochs."""
    torch.manual_seed(seed)
    network = Network(kind, inputs[1].shape[1])
    optimizer = torch.optim.Adam(network.parameters(), LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    places, targets = torch.from_numpy(nodes), torch.from_numpy(y)
    weight = torch.tensor([1.0, float((targets == 0).sum() / (targets == 1).sum())])
    for _ in range(EPOCHS):
        network.train()
        optimizer.zero_grad()
        F.cross_entropy(network(inputs)[places], targets, weight).backward()
        optimizer.step()
        yield network
