"""PyTorch Geometric's loaders without pyg-lib: batches of all neighbours, by its own search in plain torch."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.loader import NodeLoader
from torch_geometric.sampler import BaseSampler, NodeSamplerInput, SamplerOutput
from torch_geometric.utils import k_hop_subgraph


class EveryNeighbour(BaseSampler):
    """Gives each batch its neighbourhood of some hops, whole; the nodes that are asked for come first."""

    def __init__(self, edge_index: Tensor, n_nodes: int, hops: int) -> None:
        self.edge_index, self.n_nodes, self.hops = edge_index, n_nodes, hops

    def sample_from_nodes(self, index: NodeSamplerInput, **kwargs: Any) -> SamplerOutput:
        around = k_hop_subgraph(index.node, self.hops, self.edge_index, num_nodes=self.n_nodes)[0]
        nodes = torch.cat([index.node, around[~torch.isin(around, index.node)]])
        place = torch.full((self.n_nodes,), -1).index_copy_(0, nodes, torch.arange(len(nodes)))
        row, col = place[self.edge_index]
        inside = (row >= 0) & (col >= 0)
        return SamplerOutput(nodes, row[inside], col[inside], None, metadata=(index.input_id, index.time))

    def sample_from_edges(self, index: Any, neg_sampling: Any = None) -> SamplerOutput:
        raise TypeError("EveryNeighbour: batches are of nodes, not of edges")


def every_neighbour(data: Data, num_neighbors: list[int], input_nodes: Tensor | None = None, **settings: Any):
    """Stands in the place of `NeighborLoader`: one hop for each number of neighbours, all of them taken."""
    sampler = EveryNeighbour(data.edge_index, data.num_nodes, len(num_neighbors))
    return NodeLoader(data, sampler, input_nodes, **settings)
