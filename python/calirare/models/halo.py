"""Rows of other processes that a process's own rows read: who needs which, and how they come."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from calirare._util.errors import InputError
from calirare._util.ranks import Ranks
from calirare.graph import GraphOnDisk
from calirare_ext import Csr

AT_ONCE = 1 << 18  # rows that one process sends another in one message


class Alone:
    """The whole graph in one process: nothing comes from elsewhere."""

    size = 0

    def place(self, edges: Csr) -> Csr:
        """Returns rows of the adjacency whose columns are rows of what is kept here."""
        return edges

    def fill(self, rows: Tensor) -> None:
        """Brings the rows of other processes up to date."""


@dataclass(frozen=True, eq=False)
class Halo:
    """The nodes of other processes that are neighbours of a process's own, behind these in what is kept.

    Attributes:
        graph: the process's own rows.
        ranks: the processes.
        places: where each node of the whole graph is in what is kept, int32 [n_total]; of others 0.
        size: how many of them there are.
        take: how many of them each process has.
        give: the own rows that each process wants, one process after the other, int64.
        counts: how many each wants.
    """

    graph: GraphOnDisk
    ranks: Ranks
    places: Tensor
    size: int
    take: list[int]
    give: Tensor
    counts: list[int]

    @classmethod
    def of(cls, graph: GraphOnDisk, ranks: Ranks, blocks: Iterable[Csr]) -> Halo:
        """Returns the halo of a process's rows; every process calls it.

        Args:
            graph: its rows; together the processes have each node once, in their order.
            ranks: the processes.
            blocks: its rows of the adjacency.

        Raises:
            InputError: the parts of the processes do not make one graph.
            RankLostError: a process ended.
        """
        first, last = graph.first, graph.first + graph.n_nodes
        parts = ranks.gather_all((first, last, graph.n_total, graph.n_features))
        _check_parts(parts)
        near = torch.zeros(graph.n_total, dtype=torch.bool)
        for edges in blocks:
            near.index_fill_(0, edges.indices.long(), True)
        near[first:last] = False
        nodes = near.nonzero().squeeze(1)
        places = torch.zeros(graph.n_total, dtype=torch.int32)
        places[first:last] = torch.arange(graph.n_nodes, dtype=torch.int32)
        places[nodes] = torch.arange(graph.n_nodes, graph.n_nodes + len(nodes), dtype=torch.int32)
        ends = torch.searchsorted(nodes, torch.tensor([0, *(part[1] for part in parts)]))
        take = ends.diff().tolist()
        counts = [given[ranks.rank] for given in ranks.gather_all(take)]
        wanted = ranks.exchange(nodes[:, None], take, counts, AT_ONCE).squeeze(1)
        return cls(graph, ranks, places, len(nodes), take, wanted - first, counts)

    def place(self, edges: Csr) -> Csr:
        """See `Alone.place`."""
        near = self.places.index_select(0, edges.indices)
        return Csr.unchecked(edges.indptr, near, edges.values, self.graph.n_nodes + self.size)

    def fill(self, rows: Tensor) -> None:
        """See `Alone.fill`; every process calls it with its [n + size, h], of which it has made the first n."""
        if rows.shape[1]:
            came = self.ranks.exchange(rows, self.counts, self.take, AT_ONCE, self.give)
            rows[self.graph.n_nodes :] = came


def _check_parts(parts: list[tuple[int, int, int, int]]) -> None:
    """Checks that the parts follow on each other from 0 to the end, with the same features."""
    firsts, lasts = [part[0] for part in parts], [part[1] for part in parts]
    if firsts != [0, *lasts[:-1]] or {part[2] for part in parts} != {lasts[-1]} or len({part[3] for part in parts}) > 1:
        told = ", ".join(f"{first} to {last} of {n}" for first, last, n, _ in parts)
        raise InputError(
            f"ranks: the parts must follow on each other and have the same features, got nodes {told}: give each rank "
            "its own part, in the order of the ranks"
        )
