"""Logits of a graph on disk by any detector: networks as passes, what reads hop columns by files of these.

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
from calirare._util.store import key_of
from calirare.features import FeatureMap
from calirare.graph import GraphOnDisk
from calirare.models.column_fit import ColumnFit
from calirare.models.columns import BLOCK, HopColumns
from calirare.models.fitted import Fitted
from calirare.models.folded import FoldedNetwork
from calirare.models.known_nodes import KnownNodes, mark, sums_of
from calirare.models.label_propagation import LabelPropagationFit
from calirare.models.mixture import Mixture
from calirare.models.mlp import MlpFit
from calirare.models.neighbours import HOPS, NeighbourPool, aggregate_neighbours, pooled
from calirare.models.node_matching import NameMatches, Say, label_propagation_by_names, names_are_others
from calirare.models.passes import (
    Block,
    Mapped,
    Passes,
    Report,
    block_ends,
    check_finite,
    finished,
    key_of_graph,
    logits_of_passes,
    passes_of,
    read_ahead,
    room,
)
from calirare_ext import neighbour_means

COLUMNS = 16  # that are propagated together
StreamedMember = Passes | ColumnFit | MlpFit | LabelPropagationFit


@dataclass(frozen=True, eq=False)
class Streams:
    """What reads hop columns, or a mixture, as what a graph on disk is scored by.

    Attributes:
        fitted: the detector.
        features: the map of the run.
        members: its networks as passes, and what reads hop columns.
        columns: those that are read, each once, with the same map before propagation.
        read: makes the features that are propagated.
    """

    fitted: ColumnFit | MlpFit | Mixture
    features: FeatureMap
    members: tuple[StreamedMember, ...]
    columns: tuple[HopColumns, ...]
    read: Mapped

    @property
    def hops(self) -> int:
        """How far the columns reach."""
        return max((each.hops for each in self.columns), default=0)

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
        contents = tuple(tuple(part.values()) if i % 2 == 0 else str(part) for i, part in enumerate(states))
        if files.start(key_of(key_of_graph(graph), key_of(contents, COLUMNS, BLOCK))):
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
        return self.pooled(self.member_logits(networks, columns))

    def member_logits(self, networks: list[Tensor | None], columns: dict[HopColumns, Tensor]) -> list[Tensor]:
        """Returns the logits of some nodes by each member, [r, k]; arguments as of `logits`."""
        found = list[Tensor]()
        for member, z in zip(self.members, networks, strict=True):
            if isinstance(member, ColumnFit | MlpFit):
                z = member.logits_of_columns(columns[member.columns])
            assert z is not None
            found.append(z)
        return found

    def pooled(self, found: list[Tensor]) -> Tensor:
        """Returns the logits of the detector, [r, k], by those of its members."""
        return self.fitted.pooled(found) if isinstance(self.fitted, Mixture) else found[0]

    def scaled_columns(self, levels: list[Tensor], degrees: Tensor) -> dict[HopColumns, Tensor]:
        """Returns the columns of some nodes, as each reader's map makes them.

        Args:
            levels: x, M x and so on of the nodes, float32 [r, d] each.
            degrees: their numbers of neighbours, [r].
        """
        log_degree, made = torch.log1p(degrees.float())[:, None], dict[HopColumns, Tensor]()
        for each in self.columns:
            raw = torch.cat([*levels[: each.hops + 1], *([log_degree] if each.hops else [])], 1)
            made[each] = each.scaled.of_numbers(raw)
        return made


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
        Of a graph convolution passes, of what reads columns and of mixtures streams; or why there is neither, as a
        sentence goes on after "because".
    """
    if isinstance(fitted, NeighbourPool):
        alone = streams_of(fitted.base, features)
        return Pooled(alone, fitted) if isinstance(alone, Passes | Streams) else str(alone)
    whole = fitted.network if isinstance(fitted, FoldedNetwork) else fitted
    if not isinstance(whole, ColumnFit | MlpFit | Mixture):
        return passes_of(whole, features)
    members = list[StreamedMember]()
    for each in [member.fitted for member in whole.members] if isinstance(whole, Mixture) else [whole]:
        network = each.network if isinstance(each, FoldedNetwork) else each
        direct = network if isinstance(network, ColumnFit | MlpFit | LabelPropagationFit) else None
        member = passes_of(network, features) if direct is None else direct
        if isinstance(member, str):
            return member
        members.append(member.side_by_side() if isinstance(member, ColumnFit) else member)
    columns = tuple(dict.fromkeys(each.columns for each in members if isinstance(each, ColumnFit | MlpFit)))
    owns = [each.own for each in columns]
    if len({key_of(() if own is None else tuple(own.state()[0].values())) for own in owns}) > 1:
        return "its detectors reduce the features in more than one way"
    read = Mapped((features,) if not owns or owns[0] is None else (features, owns[0]))
    d = read.maps[-1].n_features
    if any(each.scaled.n_inputs != (each.hops + 1) * d + (each.hops > 0) for each in columns):
        return "its graph has typed or directed relations"
    return Streams(whole, features, tuple(members), columns, read)


def logits_on_disk(
    detector: OnDisk,
    graph: GraphOnDisk,
    files: BlockFiles | None = None,
    report: Report | None = None,
    say: Say = lambda note: None,
) -> Tensor:
    """Returns the logits of every node of a graph on disk, [n, k]: float32 of a graph convolution, else float64.

    Of the graph a block of rows is in memory. Of what is between two passes of a network all n rows are, as wide as a
    layer. Of columns `COLUMNS` at a time are, and all of them in files.

    Args:
        detector: the detector.
        graph: the graph.
        files: keeps finished blocks, so that the same call goes on where another one was stopped; None: none are kept.
        report: called after each block.
        say: takes a note where names are those of other nodes, see `match_nodes`.

    Raises:
        InputError: the graph cannot be read, its features are others, or the disk lacks room.

    Precision: of a graph convolution within 1e-5 of `logits_of`; of trees its bits, where that makes all columns at
        once.
    Cost: of columns all edges are read for each hop of `COLUMNS` of them; 64 n + 8 n k bytes of memory and 4 n d in
        files for each hop and the features. Of graph convolutions see `logits_of_passes`.
    """
    if isinstance(detector, Pooled):
        alone = logits_on_disk(detector.alone, graph, files, report, say)
        return _with_neighbours(detector.pool, alone, graph, report)
    if isinstance(detector, Passes):
        return logits_of_passes(detector, graph, files, report)
    if files is None:
        with tempfile.TemporaryDirectory() as folder:
            return logits_on_disk(detector, graph, BlockFiles(Path(folder) / "blocks"), report, say)
    detector.start(graph, files)
    run, networks = _Run(detector, graph, files, report), list[Tensor | None]()
    for i, each in enumerate(detector.members):
        if isinstance(each, Passes):
            networks.append(logits_of_passes(each, graph, files.inside(f"member{i}"), report))
        else:
            networks.append(run.spread(each) if isinstance(each, LabelPropagationFit) else None)
    run.write_features()
    for hop in range(1, detector.hops + 1):
        for part in range(run.n_parts):
            run.propagate(hop, part)
    return run.logits(run.without_strangers(networks, say))


def _with_neighbours(pool: NeighbourPool, logits: Tensor, graph: GraphOnDisk, report: Report | None) -> Tensor:
    """Returns the pool's logits of all nodes, float64 [n, k], by its detector's."""
    blocks, shares, own = block_ends(graph.n_nodes), pool.shares, torch.log_softmax(logits.double(), 1)
    said, out = room(*own.shape).copy_(own.exp()), pooled(pool.weights[:1], (own - shares)[None], shares)
    for hop in range(1, HOPS + 1):
        below, said = said, room(*own.shape)
        read = read_ahead(lambda block: graph.edges(*block), blocks)
        for done, ((first, last), edges) in enumerate(read, start=1):
            said[first:last] = neighbour_means(edges, below)
            out[first:last] += pool.weights[hop] * aggregate_neighbours(said[first:last], edges.indptr.diff(), shares)
            if report is not None:
                report(f"neighbours {hop}", done, len(blocks))
    return out


class _Run:
    """A detector at work on a graph; M^hop x of all nodes lies in files of `COLUMNS` columns, "hop1.0" the first."""

    def __init__(self, detector: Streams, graph: GraphOnDisk, files: BlockFiles, report: Report | None) -> None:
        self.detector, self.graph, self.files = detector, graph, files
        self.report: Report = report or (lambda stage, done, total: None)
        self.blocks = block_ends(graph.n_nodes)
        self.n_parts = -(-detector.n_features // COLUMNS)  # files that the columns of a hop go into
        self.met: NameMatches | None = None  # by spread labels

    def write_features(self) -> None:
        """Writes x."""
        for i in range(self.n_parts):
            self.files.create(f"hop0.{i}", self.graph.n_nodes, self._width(i))
        left = self.files.left("hop0", self.blocks)
        read = read_ahead(lambda block: self.detector.read(self.graph.features(*block)), left)
        for done, ((first, _), x) in enumerate(read, start=1):
            check_finite(x, self.graph, first)
            parts = enumerate(x.split(COLUMNS, 1))
            self.files.done("hop0", first, *[self.files.write(f"hop0.{i}", first, part) for i, part in parts])
            self.report("features", done, len(left))

    def propagate(self, hop: int, i: int) -> None:
        """Writes M^hop x from the hop before, a file of columns of it."""
        name = f"hop{hop}.{i}"
        self.files.create(name, self.graph.n_nodes, self._width(i))
        left = self.files.left(name, self.blocks)
        if not left:
            return
        below, file = room(self.graph.n_nodes, self._width(i)), self._file(hop - 1, i)
        for first, last in self.blocks:
            below[first:last] = torch.from_numpy(file.rows(first, last))
        before = (i + 1) * len(self.blocks) - len(left)
        read = read_ahead(lambda block: self.graph.edges(*block), left)
        for done, ((first, _), edges) in enumerate(read, start=before + 1):
            self.files.keep(name, first, neighbour_means(edges, below))
            self.report(f"hop {hop}", done, self.n_parts * len(self.blocks))

    def spread(self, fit: LabelPropagationFit) -> Tensor:
        """Returns what labels around every node say of it, float64 [n, k]."""
        n, k = self.graph.n_nodes, fit.n_classes
        sent, known, met = room(n, k), self._known(fit.known), NameMatches(fit)
        for first, last in self.blocks:
            places = known(first, last)
            sent[first:last] = fit.sent_at(places, last - first)[:, -k:]
            met.add(first, last, places)
        self.met = met
        out = torch.full((n, k), torch.nan, dtype=torch.float64)
        if not bool(sent.any()):  # it knows no node here
            return out
        for (first, last), edges in read_ahead(lambda block: self.graph.edges(*block), self.blocks):
            out[first:last] = fit.logits(fit.reached(edges, sent)[:, -1])
        return out

    def _known(self, known: KnownNodes) -> Callable[[int, int], NumpyArray | None]:
        """Returns a function from a range of nodes to their places among known ones."""
        graph = self.graph
        if known.keys.size:
            named = graph.named
            return lambda first, last: known.places_of(graph.node_names(first, last)) if named else None
        blocks = self.blocks if graph.n_nodes >= known.n_nodes else []
        sums = (sums_of(first, graph.edges(first, last), known.n_nodes) for first, last in blocks)
        same = known.edges == mark(known.n_nodes, sums)
        return lambda first, last: known.numbered(first, last) if same else None

    def without_strangers(self, networks: list[Tensor | None], say: Say) -> list[Tensor | None]:
        """Returns what members say, spread labels nothing where names are those of others."""
        fitted, met = self.detector.fitted, self.met
        spread = label_propagation_by_names(fitted)
        if spread is None or met is None:
            return networks
        assert isinstance(fitted, Mixture)
        if not names_are_others(fitted, met, lambda alone, nodes: self._logits_at(nodes, networks, alone), say):
            return networks
        pairs = zip(self.detector.members, networks, strict=True)
        return [torch.full_like(z, torch.nan) if each is spread and z is not None else z for each, z in pairs]

    def _logits_at(self, nodes: Tensor, networks: list[Tensor | None], alone: Mixture) -> Tensor:
        """Returns the logits of some nodes by the members that read features, float64 [a, k]."""
        order = torch.argsort(nodes)
        rows = nodes[order].numpy()
        columns = self._columns(lambda file: file.rows_at(rows), self.graph.degrees_at(rows))
        pairs = zip(self.detector.members, networks, strict=True)
        others = [(each, z) for each, z in pairs if not isinstance(each, LabelPropagationFit)]
        detector = replace(self.detector, fitted=alone, members=tuple(each for each, _ in others))
        out = detector.logits([None if z is None else z[nodes[order]] for _, z in others], columns)
        return out[torch.argsort(order)]

    def logits(self, networks: list[Tensor | None]) -> Tensor:
        """Returns the logits of all nodes, float64 [n, k], from those of its networks."""
        n, k = self.graph.n_nodes, self.detector.fitted.n_classes
        out = torch.empty(n, k, dtype=torch.float64)
        halves = out.view(torch.float32)  # as files hold them
        left = finished(self.files, "logits", halves, block_ends(n, BLOCK))

        def read(block: Block) -> dict[HopColumns, Tensor]:
            return self._columns(lambda file: file.rows(*block), self.graph.degrees(*block).numpy())

        for done, ((first, last), columns) in enumerate(read_ahead(read, left), start=1):
            rows = slice(first, last)
            out[rows] = self.detector.logits([None if z is None else z[rows] for z in networks], columns)
            self.files.keep("logits", first, halves[rows])
            self.report("predict", done, len(left))
        return out

    def _columns(self, rows: Callable[[ArrayFile], NumpyArray], degrees: NumpyArray) -> dict[HopColumns, Tensor]:
        """Returns the columns of some nodes, as each reader's map makes them, by what reads their rows of a file."""
        levels = [
            torch.cat([torch.from_numpy(rows(self._file(hop, i))) for i in range(self.n_parts)], 1)
            for hop in range(self.detector.hops + 1)
        ]
        return self.detector.scaled_columns(levels, torch.from_numpy(degrees))

    def _file(self, hop: int, i: int) -> ArrayFile:
        return ArrayFile.open(self.files.folder / f"hop{hop}.{i}.npy")

    def _width(self, i: int) -> int:
        return min(COLUMNS, self.detector.n_features - i * COLUMNS)
