"""Rows of other processes that a process's own rows read: who needs which, and how they come."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Event, Thread

import torch
from torch import Tensor

from calirare._util.errors import InputError
from calirare._util.ranks import SHOWN, RankLostError, Ranks
from calirare._util.store import key_of
from calirare.graph import GraphOnDisk
from calirare_ext import Csr

AT_ONCE = 1 << 18  # rows that one process sends another in one message
Made = Callable[[int], None]  # is told how many rows are there


class Alone:
    """The whole graph in one process: nothing comes from elsewhere."""

    size = 0

    def place(self, edges: Csr) -> Csr:
        """Returns rows of the adjacency whose columns are rows of what is kept here."""
        return edges

    def sending(self, rows: Tensor) -> AbstractContextManager[Made]:
        """Brings the rows of other processes up to date, while the own ones are made."""
        del rows
        return nullcontext(lambda made: None)


@dataclass(frozen=True, eq=False)
class Halo:
    """The nodes of other processes that are neighbours of a process's own, behind these in what is kept.

    Attributes:
        graph: the process's own rows.
        ranks: the processes.
        places: where each node of the whole graph is in what is kept, int32 [n_total]; of others 0.
        size: how many of them there are.
        give: the own rows that each process wants, one process after the other, int64.
        going: of each process, where in `give` begins what it gets of every `AT_ONCE` rows, int64 [ranks, turns + 1].
        coming: likewise where among the nodes of others begins what it sends.
    """

    graph: GraphOnDisk
    ranks: Ranks
    places: Tensor
    size: int
    give: Tensor
    going: Tensor
    coming: Tensor

    @classmethod
    def of(cls, graph: GraphOnDisk, ranks: Ranks, blocks: Iterable[Csr]) -> Halo:
        """Returns the halo of a process's rows; every process calls it.

        Args:
            graph: its rows, see `check_parts`.
            ranks: the processes.
            blocks: its rows of the adjacency.

        Raises:
            RankLostError: a process ended.
        """
        first, last = graph.first, graph.first + graph.n_nodes
        parts = ranks.gather_all((first, last))
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
        give = ranks.exchange(nodes[:, None], take, counts, AT_ONCE).squeeze(1) - first
        longest = max(part[1] - part[0] for part in parts)
        turns = torch.arange(-(-longest // AT_ONCE) + 1) * AT_ONCE
        firsts = torch.tensor([part[0] for part in parts]).repeat_interleave(torch.tensor(take))
        return cls(graph, ranks, places, len(nodes), give, _cut(give, counts, turns), _cut(nodes - firsts, take, turns))

    def place(self, edges: Csr) -> Csr:
        """See `Alone.place`."""
        near = self.places.index_select(0, edges.indices)
        return Csr.unchecked(edges.indptr, near, edges.values, self.graph.n_nodes + self.size)

    @contextmanager
    def sending(self, rows: Tensor) -> Iterator[Made]:
        """See `Alone.sending`; every process calls it with its [n + size, h], of which the first n are being made.

        A thread sends what others want of every `AT_ONCE` rows as soon as these are there. When the block ends without
        an error, all rows of others have come.

        Raises:
            RankLostError: a process ended.
        """
        made, failed, stopped = SimpleQueue[int](), list[RankLostError](), Event()

        def send() -> None:
            there = 0
            try:
                for turn in range(self.going.shape[1] - 1 if rows.shape[1] else 0):
                    while there < min((turn + 1) * AT_ONCE, self.graph.n_nodes):
                        there = made.get()
                    if stopped.is_set():
                        return
                    self._send(rows, turn)
            except RankLostError as error:
                failed.append(error)

        thread = Thread(target=send, daemon=True)
        thread.start()
        try:
            yield made.put
        except BaseException:
            stopped.set()
            made.put(self.graph.n_nodes)
            raise
        thread.join()
        if failed:
            raise failed[0]

    def _send(self, rows: Tensor, turn: int) -> None:
        """Sends what others want of some rows, and takes what they send of theirs."""
        going, coming = ([(int(a), int(b)) for a, b in cuts[:, turn : turn + 2]] for cuts in (self.going, self.coming))
        sent = rows[torch.cat([self.give[first:last] for first, last in going])]
        came = self.ranks.all_to_all(sent, [b - a for a, b in going], [b - a for a, b in coming])
        for (first, last), part in zip(coming, came.split([b - a for a, b in coming]), strict=True):
            rows[self.graph.n_nodes + first : self.graph.n_nodes + last] = part


def _cut(rows: Tensor, sizes: list[int], turns: Tensor) -> Tensor:
    """Returns where each turn begins within each stretch of rising row numbers, [stretches, turns]."""
    starts = torch.tensor([0, *sizes]).cumsum(0)[:-1]
    found = [torch.searchsorted(part, turns) for part in rows.split(sizes)]
    return torch.stack(found) + starts[:, None]


def check_parts(graph: GraphOnDisk, ranks: Ranks) -> None:
    """Checks that the processes have each row of one graph once, in their order; every process calls it.

    Raises:
        InputError: their rows are of several graphs, are missing, or were changed.
        RankLostError: a process ended.
    """
    if ranks.size == 1:
        return
    kinds = key_of(str(graph.columns), str(graph.facts.get("feature_normalisation")))
    told = {
        "the columns": ", ".join(graph.feature_names) or f"{graph.n_features} without names",
        "the checksum of the kinds of columns": kinds[:SHOWN],
        "weights of edges": graph.weighted,
        "names of nodes": graph.named,
        "a choice of nodes to score": "scored" in graph.files,
        "keeping self loops": graph.loops,
        "the checksum of the whole graph": graph.content[:SHOWN],
    }
    ranks.check_alike(told, "give each rank its own part, all of them cut from one graph")
    _check_parts(ranks.gather_all((graph.first, graph.first + graph.n_nodes, graph.n_total, graph.n_features)))


def _check_parts(parts: list[tuple[int, int, int, int]]) -> None:
    """Checks that the parts follow on each other from 0 to the end, with the same features."""
    firsts, lasts = [part[0] for part in parts], [part[1] for part in parts]
    if firsts != [0, *lasts[:-1]] or {part[2] for part in parts} != {lasts[-1]} or len({part[3] for part in parts}) > 1:
        told = ", ".join(f"{first} to {last} of {n}" for first, last, n, _ in parts)
        raise InputError(
            f"ranks: the parts must follow on each other and have the same features, got nodes {told}: give each rank "
            "its own part, in the order of the ranks"
        )
