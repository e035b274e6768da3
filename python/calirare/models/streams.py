"""Logits of a graph on disk by any detector: networks by their passes, what reads hop columns by files of these.

A few columns at a time are propagated over all nodes, from file to file: no matrix as wide as features is in memory.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from calirare._util.array_files import ArrayFile, NumpyArray
from calirare._util.blocks import BlockFiles
from calirare._util.errors import InputError
from calirare._util.ranks import Ranks
from calirare._util.store import key_of
from calirare.features import FeatureMap
from calirare.graph import GraphOnDisk
from calirare.models.adopted import adopt
from calirare.models.column_rows import BLOCK
from calirare.models.columns import HopColumns
from calirare.models.folded import FoldedNetwork
from calirare.models.halo import Alone, Halo
from calirare.models.hops import HopsFit, perceptron
from calirare.models.known_nodes import KnownNodes, mark, sums_of
from calirare.models.mixture import Mixture
from calirare.models.neighbours import HOPS, NeighbourPool, heard, pooled
from calirare.models.passes import Mapped, Passes, mapped, passes_of
from calirare.models.spreading import SpreadingFit
from calirare.models.streaming import (
    Report,
    block_ends,
    check_finite,
    finished,
    halo_of,
    key_of_graph,
    logits_of_passes,
    read_ahead,
    room,
)
from calirare.models.tree_fit import TreesFit
from calirare.training import Fitted
from calirare_ext import Csr, neighbour_means

COLUMNS = 16  # that are propagated together
Block = tuple[int, int]
StreamedMember = Passes | TreesFit | HopsFit | SpreadingFit


@dataclass(frozen=True, eq=False)
class Streams:
    """Trees, or a mixture, as what a graph on disk is scored by.

    Attributes:
        fitted: the detector.
        features: the map of the run.
        members: its networks as passes, and what reads hop columns.
        columns: those that are read, each once, with the same map before propagation.
        read: makes the features that are propagated.
    """

    fitted: TreesFit | Mixture
    features: FeatureMap
    members: tuple[StreamedMember, ...]
    columns: tuple[HopColumns, ...]
    read: Mapped

    @property
    def hops(self) -> int:
        """How far the columns reach."""
        return max((each.hops for each in self.columns), default=0)

    @property
    def reads_neighbours(self) -> bool:
        """Whether anything but networks reads neighbours."""
        return self.hops > 0 or any(isinstance(each, SpreadingFit) for each in self.members)

    @property
    def n_features(self) -> int:
        """Number of features that are propagated."""
        return self.read.maps[-1].n_features

    def start(self, graph: GraphOnDisk, files: BlockFiles) -> None:
        """Prepares the folder of finished blocks.

        Raises:
            InputError: columns and logits of all nodes do not fit on its disk.
        """
        states = [*self.fitted.state(), *self.features.state()]
        told = tuple(tuple(part.values()) if i % 2 == 0 else str(part) for i, part in enumerate(states))
        job = key_of(told, COLUMNS, BLOCK)
        if files.start(key_of(key_of_graph(graph), job), key_of(graph.whole, job), graph.first):
            return
        needed = 4 * graph.n_nodes * (self.n_features * (self.hops + 1) + 2 * self.fitted.n_classes)
        free = shutil.disk_usage(files.folder).free
        if needed > free:
            raise InputError(
                f"{files.folder}: {needed / 1e9:.2f} GB are needed for columns of all nodes, {free / 1e9:.2f} GB are "
                "free: write the scores where there is more room"
            )

    def logits(self, networks: list[Tensor | None], columns: dict[HopColumns, Tensor]) -> Tensor:
        """Returns logits of some nodes, float64 [r, k], from those of its networks and from columns of the nodes."""
        found = list[Tensor]()
        for member, z in zip(self.members, networks, strict=True):
            if isinstance(member, TreesFit):
                z = torch.from_numpy(member.trees.logits(columns[member.columns].numpy()))
            elif isinstance(member, HopsFit):
                z = perceptron(member.model, columns[member.columns])
            assert z is not None
            found.append(z)
        return self.fitted.pooled(found) if isinstance(self.fitted, Mixture) else found[0]


@dataclass(frozen=True, eq=False)
class Pooled:
    """A detector that asks neighbours too, as what a graph on disk is scored by.

    Attributes:
        alone: what scores each node.
        pool: how much its neighbours count.
    """

    alone: Passes | Streams
    pool: NeighbourPool


OnDisk = Passes | Streams | Pooled


def streams_of(fitted: Fitted, features: FeatureMap) -> OnDisk | str:
    """Returns a detector as what a graph on disk is scored by.

    Args:
        fitted: the detector.
        features: the map of the run.

    Returns:
        Of a network passes, of trees and mixtures streams; or why there is neither, as a sentence goes on after
        "because".
    """
    if isinstance(fitted, NeighbourPool):
        alone = streams_of(fitted.base, features)
        return Pooled(alone, fitted) if isinstance(alone, Passes | Streams) else str(alone)
    if not isinstance(fitted, TreesFit | Mixture):
        return passes_of(fitted, features)
    members = list[StreamedMember]()
    for each in [fitted] if isinstance(fitted, TreesFit) else [member.fitted for member in fitted.members]:
        network = each.network if isinstance(each, FoldedNetwork) else each
        direct = network if isinstance(network, TreesFit | HopsFit | SpreadingFit) else None
        member = passes_of(each, features) if direct is None else direct
        if isinstance(member, str):
            return member
        members.append(_threaded(member) if isinstance(member, TreesFit) else member)
    columns = tuple(dict.fromkeys(each.columns for each in members if isinstance(each, TreesFit | HopsFit)))
    owns = [each.own for each in columns]
    if len({key_of(() if own is None else tuple(own.state()[0].values())) for own in owns}) > 1:
        return "its detectors reduce the features in more than one way"
    read = mapped(features, owns[0] if owns else None)
    d = read.maps[-1].n_features
    if any(each.scaled.n_inputs != (each.hops + 1) * d + (each.hops > 0) for each in columns):
        return "its graph has typed or directed relations"
    return Streams(fitted, features, tuple(members), columns, read)


def logits_on_disk(
    detector: OnDisk,
    graph: GraphOnDisk,
    files: BlockFiles | None = None,
    report: Report | None = None,
    ranks: Ranks | None = None,
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

    Raises:
        InputError: the graph cannot be read, its features are others, or the disk lacks room.
        RankLostError: another process ended.

    Precision: of a network within 1e-5 of `logits_of`; of trees its bits, where that makes all columns at once.
    Cost: of columns all edges are read for each hop of `COLUMNS` of them; 64 n + 8 n k bytes of memory and 4 n d in
    files for each hop and the features. Of networks see `logits_of_passes`.
    """
    if isinstance(detector, Pooled):
        alone = logits_on_disk(detector.alone, graph, files, report, ranks)
        return _with_neighbours(detector.pool, alone, graph, report, ranks)
    if isinstance(detector, Passes):
        return logits_of_passes(detector, graph, files, report, ranks)
    if files is None:
        with tempfile.TemporaryDirectory() as folder:
            return logits_on_disk(detector, graph, BlockFiles(Path(folder) / "blocks"), report, ranks)
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
    return run.logits(networks)


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
        told, known = room(n + self.halo.size, k), self._known(fit.known)
        with self.halo.sending(told) as made:
            for first, last in blocks:
                told[first:last] = fit.told_at(known(first, last), last - first)[:, -k:]
                made(last)
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
        degree = torch.log1p(self.graph.degrees(first, last).float())[:, None]
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


def _threaded(fit: TreesFit) -> TreesFit:
    """Returns trees that predict with as many threads as torch has; they were grown one beside the other."""
    ensemble = replace(fit.trees.all_labels, threads=torch.get_num_threads())
    return replace(fit, trees=replace(fit.trees, all_labels=ensemble))
