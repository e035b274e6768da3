"""Why a label is doubted, in words: the labels of its neighbours, and of the labelled nodes that look most like it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from calirare._util.amounts import class_words
from calirare.graph import Graph
from calirare.models import Fitted, HopColumns

LOOK_ALIKES = 5
BLOCK = 1 << 24  # numbers of a block of distances


@dataclass(frozen=True, eq=False)
class Company:
    """What stands around some labelled nodes; labels are given ones, the node's own left out.

    Attributes:
        neighbours: number of labelled neighbours of each class, int64 [q, k].
        alike: labelled nodes nearest in the columns that tabular detectors read, nearest first, int64 [q, c].
        alike_labels: their classes, int64 [q, c].
    """

    neighbours: Tensor
    alike: Tensor
    alike_labels: Tensor

    @property
    def connected(self) -> bool:
        """Whether any of the labels has a labelled neighbour."""
        return bool(self.neighbours.any())

    def near(self, row: int, given: int) -> dict[str, str]:
        """Returns how many of one label's neighbours, and of its look-alikes, have its class, such as "1 of 4"."""
        around, alike = self.neighbours[row], self.alike_labels[row]
        labelled = f"{int(around[given])} of {int(around.sum())}"
        return {"neighbours": labelled, "look-alikes": f"{int((alike == given).sum())} of {len(alike)}"}

    def sentence(self, row: int, given: int, names: tuple[str, ...]) -> str:
        """Returns the reason of one of them, in words."""
        near, first = self.near(row, given), ""
        if self.connected:
            some = bool(self.neighbours[row].any())
            first = f"{near['neighbours']} labelled neighbours and " if some else "no labelled neighbour, "
        return f"{first}{near['look-alikes']} nearest look-alikes are {class_words(names[given])}"


def company_of(fitted: Fitted, graph: Graph, labels: Tensor, places: Tensor) -> Company:
    """Returns what stands around some of the labelled nodes.

    Args:
        fitted: the detector with its labelled nodes.
        graph: the run's own, as its detector takes it.
        labels: the nodes' classes, int64 [m].
        places: which labels, int64 [q], places in `fitted.nodes`.
    """
    k = int(labels.max()) + 1
    return Company(_neighbours(graph, fitted.nodes, labels, places, k), *_alike(fitted, graph, labels, places))


def _neighbours(graph: Graph, nodes: Tensor, labels: Tensor, places: Tensor, k: int) -> Tensor:
    known = torch.full((graph.n_nodes,), -1, dtype=torch.int64, device=nodes.device)
    known[nodes] = labels
    indptr, indices = graph.adjacency.indptr, graph.adjacency.indices
    out = torch.zeros(len(places), k, dtype=torch.int64, device=nodes.device)
    for row, node in enumerate(nodes[places].tolist()):
        near = indices[int(indptr[node]) : int(indptr[node + 1])]
        found = known[near[near != node].unique()]
        out[row] = torch.bincount(found[found >= 0], minlength=k)
    return out


def _alike(fitted: Fitted, graph: Graph, labels: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
    columns = HopColumns.fit(graph) if fitted.columns is None else fitted.columns  # of none those that trees would read
    x = columns.of(graph).x
    assert isinstance(x, Tensor)
    mine = x[fitted.nodes].double()
    c = min(LOOK_ALIKES, len(mine) - 1)
    found = []
    for rows in places.split(max(BLOCK // max(len(mine), 1), 1)):
        distance = torch.cdist(mine[rows], mine)
        distance[torch.arange(len(rows), device=rows.device), rows] = torch.inf
        found.append(distance.topk(c, largest=False).indices)
    nearest = torch.cat(found) if found else places.new_zeros(0, c)
    return fitted.nodes[nearest], labels[nearest]
