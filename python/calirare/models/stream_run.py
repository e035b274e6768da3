"""Logits of a graph on disk by any detector.

A few columns at a time are propagated over all nodes, from file to file: no matrix as wide as features is in memory.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from calirare._util.array_files import ArrayFile, NumpyArray
from calirare._util.blocks import BlockFiles
from calirare._util.ranks import Ranks
from calirare.graph import GraphOnDisk
from calirare.models.acquaintance import UNSURE, Asked, Met, Say, spread_by_names
from calirare.models.adopted import adopt
from calirare.models.column_rows import BLOCK
from calirare.models.columns import HopColumns
from calirare.models.halo import Alone, Halo, check_parts
from calirare.models.known_nodes import KnownNodes, mark, sums_of
from calirare.models.mixture import Mixture
from calirare.models.neighbours import HOPS, NeighbourPool, heard, pooled
from calirare.models.passes import Passes
from calirare.models.spreading import SpreadingFit
from calirare.models.streaming import (
    Report,
    block_ends,
    check_finite,
    finished,
    halo_of,
    logits_of_passes,
    read_ahead,
    room,
)
from calirare.models.streams import COLUMNS, OnDisk, Pooled, Streams
from calirare_ext import Csr, neighbour_means

Block = tuple[int, int]


def logits_on_disk(
    detector: OnDisk,
    graph: GraphOnDisk,
    files: BlockFiles | None = None,
    report: Report | None = None,
    ranks: Ranks | None = None,
    say: Say = lambda note: None,
) -> Tensor:
    """Returns the logits of every node of a graph on disk, [n, k]: float32 of a network alone, else float64.

    Of the graph a block of rows is in memory. Of what is between two passes of a network all n rows are, as wide as a
    layer. Of columns `COLUMNS` at a time are, and all of them in files.

    Args:
        detector: the detector.
        graph: the graph.
        files: keeps finished blocks, so that the same call goes on where another one was stopped; None: none are kept.
        report: called after each block.
        ranks: processes that have a part of the graph each: they send each other the rows of their halos, as wide as a
            layer or as `COLUMNS`, and each gets the logits of its own nodes; None: this process alone.
        say: takes a note of the first process where names are those of other nodes, see `acquainted`.

    Raises:
        InputError: the graph cannot be read, its features are others, the parts of the processes do not make one graph,
            or the disk lacks room.
        RankLostError: another process ended.

    Precision: of a network within 1e-5 of `logits_of`; of trees its bits, where that makes all columns at once.
    Cost: of columns all edges are read for each hop of `COLUMNS` of them; 64 n + 8 n k bytes of memory and 4 n d in
    files for each hop and the features. Of networks see `logits_of_passes`.
    """
    check_parts(graph, ranks or Ranks())
    return _logits(detector, graph, files, report, ranks, say)


def _logits(
    detector: OnDisk,
    graph: GraphOnDisk,
    files: BlockFiles | None,
    report: Report | None,
    ranks: Ranks | None,
    say: Say,
) -> Tensor:
    """See `logits_on_disk`; the parts are checked."""
    if isinstance(detector, Pooled):
        alone = _logits(detector.alone, graph, files, report, ranks, say)
        return _with_neighbours(detector.pool, alone, graph, report, ranks)
    if isinstance(detector, Passes):
        return logits_of_passes(detector, graph, files, report, ranks)
    if files is None:
        with tempfile.TemporaryDirectory() as folder:
            return _logits(detector, graph, BlockFiles(Path(folder) / "blocks"), report, ranks, say)
    detector.start(graph, files)
    n = graph.n_nodes
    adopt(files, graph, ranks or Ranks(), lambda stage: block_ends(n, BLOCK if stage == "logits" else None))
    halo = halo_of(graph, ranks) if detector.reads_neighbours else Alone()
    run, networks = _Run(detector, graph, files, report, halo, ranks), list[Tensor | None]()
    for i, each in enumerate(detector.members):
        if isinstance(each, Passes):
            networks.append(logits_of_passes(each, graph, files.inside(f"member{i}"), report, ranks))
        else:
            networks.append(run.spread(each) if isinstance(each, SpreadingFit) else None)
    run.write_features()
    for hop in range(1, detector.hops + 1):
        for part in range(run.n_parts):
            run.propagate(hop, part)
    return run.logits(run.without_strangers(networks, say))


def _with_neighbours(
    pool: NeighbourPool, logits: Tensor, graph: GraphOnDisk, report: Report | None, ranks: Ranks | None
) -> Tensor:
    """Returns the pool's logits of all nodes, float64 [n, k], by its detector's; every process calls it."""
    halo, blocks, (n, k), shares = halo_of(graph, ranks), block_ends(graph.n_nodes), logits.shape, pool.shares
    own, said = torch.log_softmax(logits.double(), 1), room(n + halo.size, k)
    with halo.sending(said) as made:
        said[:n] = own.exp()
        made(n)
    out = pooled(pool.weights[:1], (own - shares)[None], shares)
    for hop in range(1, HOPS + 1):
        below, said = said, room(n + halo.size, k)
        read = read_ahead(lambda block: halo.place(graph.edges(*block)), blocks)
        with (Alone() if hop == HOPS else halo).sending(said) as made:
            for number, ((first, last), edges) in enumerate(read):
                said[first:last] = neighbour_means(edges, below)
                out[first:last] += pool.weights[hop] * heard(said[first:last], edges.indptr.diff(), shares)
                made(last)
                if report is not None:
                    report(f"neighbours {hop}", number + 1, len(blocks))
            made(n)
    return out


@dataclass(frozen=True, eq=False)
class _Run:
    """A detector at work on a graph; M^hop x of all nodes lies in files of `COLUMNS` columns, "hop1.0" the first."""

    detector: Streams
    graph: GraphOnDisk
    files: BlockFiles
    report: Report | None
    halo: Alone | Halo
    ranks: Ranks | None
    met: list[Met] = field(default_factory=list)  # by spread labels

    @property
    def n_parts(self) -> int:
        """Into how many files the columns of a hop go."""
        return -(-self.detector.n_features // COLUMNS)

    def write_features(self) -> None:
        """Writes x."""
        for i in range(self.n_parts):
            self.files.create(f"hop0.{i}", self.graph.n_nodes, self._width(i))
        blocks = block_ends(self.graph.n_nodes)
        left = self.files.left("hop0", blocks)
        read = read_ahead(lambda block: self.detector.read(self.graph.features(*block)), left)
        for number, ((first, _), x) in enumerate(read):
            check_finite(x, self.graph, first)
            parts = enumerate(x.split(COLUMNS, 1))
            self.files.done("hop0", first, *[self.files.write(f"hop0.{i}", first, part) for i, part in parts])
            self._say("features", number + 1, len(left))

    def propagate(self, hop: int, i: int) -> None:
        """Writes M^hop x from the hop before, a file of columns of it; every process calls it."""
        name, blocks = f"hop{hop}.{i}", block_ends(self.graph.n_nodes)
        self.files.create(name, self.graph.n_nodes, self._width(i))
        left = self.files.left(name, blocks)
        if not left and isinstance(self.halo, Alone):
            return
        below, file = room(self.graph.n_nodes + self.halo.size, self._width(i)), self._file(hop - 1, i)
        with self.halo.sending(below) as made:
            for first, last in blocks:
                below[first:last] = torch.from_numpy(file.rows(first, last))
                made(last)
        start = (i + 1) * len(blocks) - len(left)
        for number, ((first, _), edges) in enumerate(read_ahead(self._edges, left)):
            self.files.keep(name, first, neighbour_means(edges, below))
            self._say(f"hop {hop}", start + number + 1, self.n_parts * len(blocks))

    def spread(self, fit: SpreadingFit) -> Tensor:
        """Returns what labels around every node say of it, float64 [n, k]; every process calls it."""
        n, blocks, k = self.graph.n_nodes, block_ends(self.graph.n_nodes), fit.n_classes
        told, known, met = room(n + self.halo.size, k), self._known(fit.known), Met(fit)
        with self.halo.sending(told) as made:
            for first, last in blocks:
                places = known(first, last)
                told[first:last] = fit.told_at(places, last - first)[:, -k:]
                met.add(first, last, places)
                made(last)
        self.met.append(met)
        out = torch.full((n, k), torch.nan, dtype=torch.float64)
        if not bool(told.any()):  # it knows no node here
            return out
        for (first, last), edges in read_ahead(self._edges, blocks):
            out[first:last] = fit.logits(fit.reached(edges, told)[:, -1])
        return out

    def _known(self, known: KnownNodes) -> Callable[[int, int], NumpyArray | None]:
        """Returns what tells the places of nodes from one to another among known ones; every process calls it."""
        graph = self.graph
        if known.keys.size:
            named = graph.named
            return lambda first, last: known.places_of(graph.node_names(first, last)) if named else None
        blocks = block_ends(graph.n_nodes) if graph.n_total >= known.n_nodes else []
        sums = [sums_of(graph.first + first, graph.edges(first, last), known.n_nodes) for first, last in blocks]
        every = [sums] if self.ranks is None else self.ranks.gather_all(sums)
        same = known.edges == mark(known.n_nodes, [each for part in every for each in part])
        begin = graph.first
        return lambda first, last: known.numbered(begin + first, begin + last) if same else None

    def without_strangers(self, networks: list[Tensor | None], say: Say) -> list[Tensor | None]:
        """Returns what members say, spread labels nothing where names are those of others; every process calls it."""
        fitted, spread = self.detector.fitted, spread_by_names(self.detector.fitted)
        if spread is None or not self.graph.named:
            return networks
        assert isinstance(fitted, Mixture)
        (met,), first = self.met, self.ranks is None or self.ranks.rank == 0
        at = met.labels_at
        parts = self._together((met.known, met.n, (at >= 0).numpy()))
        n_known, n = (sum(part[i] for part in parts) for i in (0, 1))
        if not n_known:
            return networks
        asked = Asked.of(fitted, torch.from_numpy(np.logical_or.reduce([part[2] for part in parts])))
        if asked is None:
            if first:
                say(UNSURE.format(n_known, n))
            return networks
        own = at[asked.labels] >= 0
        said = self._logits_at(at[asked.labels][own], networks, asked.alone)
        here = said.new_empty(own.numel(), said.shape[1])
        for mine, z in self._together((own.numpy(), said.numpy())):
            here[torch.from_numpy(mine)] = torch.from_numpy(z)
        if not asked.are_others(here, n_known, n, say if first else lambda note: None):
            return networks
        pairs = zip(self.detector.members, networks, strict=True)
        return [torch.full_like(z, torch.nan) if each is spread and z is not None else z for each, z in pairs]

    def _together(self, mine: Any) -> list[Any]:
        return [mine] if self.ranks is None else self.ranks.gather_all(mine)

    def _logits_at(self, nodes: Tensor, networks: list[Tensor | None], alone: Mixture) -> Tensor:
        """Returns the logits of some of its nodes by the members that read features, float64 [a, k]."""
        order = torch.argsort(nodes)
        rows = nodes[order].numpy()
        parts = [[self._file(hop, i) for i in range(self.n_parts)] for hop in range(self.detector.hops + 1)]
        levels = [torch.cat([torch.from_numpy(file.rows_at(rows)) for file in level], 1) for level in parts]
        columns = self._made(levels, self.graph.degrees_at(rows))
        pairs = zip(self.detector.members, networks, strict=True)
        heard = [(each, z) for each, z in pairs if not isinstance(each, SpreadingFit)]
        detector = replace(self.detector, fitted=alone, members=tuple(each for each, _ in heard))
        out = detector.logits([None if z is None else z[nodes[order]] for _, z in heard], columns)
        return out[torch.argsort(order)]

    def logits(self, networks: list[Tensor | None]) -> Tensor:
        """Returns the logits of all nodes, float64 [n, k], from those of its networks."""
        n, k = self.graph.n_nodes, self.detector.fitted.n_classes
        out = torch.empty(n, k, dtype=torch.float64)
        halves = out.view(torch.float32)  # as files hold them
        left = finished(self.files, "logits", halves, block_ends(n, BLOCK))
        parts = [[self._file(hop, i) for i in range(self.n_parts)] for hop in range(self.detector.hops + 1)]
        read = read_ahead(lambda block: self._columns(parts, *block), left)
        for number, ((first, last), columns) in enumerate(read):
            rows = slice(first, last)
            out[rows] = self.detector.logits([None if z is None else z[rows] for z in networks], columns)
            self.files.keep("logits", first, halves[rows])
            self._say("predict", number + 1, len(left))
        return out

    def _columns(self, parts: list[list[ArrayFile]], first: int, last: int) -> dict[HopColumns, Tensor]:
        """Returns the columns of some nodes, as each reader's map makes them."""
        levels = [torch.cat([torch.from_numpy(file.rows(first, last)) for file in level], 1) for level in parts]
        return self._made(levels, self.graph.degrees(first, last).numpy())

    def _made(self, levels: list[Tensor], degrees: NumpyArray) -> dict[HopColumns, Tensor]:
        """Returns the columns of nodes of which x, M x, ... and numbers of neighbours are there."""
        degree = torch.log1p(torch.from_numpy(degrees).float())[:, None]
        made = dict[HopColumns, Tensor]()
        for each in self.detector.columns:
            raw = torch.cat([*levels[: each.hops + 1], *([degree] if each.hops else [])], 1)
            made[each] = each.scaled.of_numbers(raw)
        return made

    def _edges(self, block: Block) -> Csr:
        return self.halo.place(self.graph.edges(*block))

    def _file(self, hop: int, i: int) -> ArrayFile:
        return ArrayFile.open(self.files.folder / f"hop{hop}.{i}.npy")

    def _width(self, i: int) -> int:
        return min(COLUMNS, self.detector.n_features - i * COLUMNS)

    def _say(self, stage: str, done: int, total: int) -> None:
        if self.report is not None:
            self.report(stage, done, total)
