"""Logits of a graph on disk: passes over its rows, a block at a time, finished blocks kept where it is stopped."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from calirare._util.arrays import all_finite
from calirare._util.blocks import BlockFiles
from calirare._util.errors import InputError
from calirare._util.ranks import Ranks
from calirare._util.store import key_of
from calirare.graph import GraphOnDisk
from calirare.models.adopted import adopt
from calirare.models.halo import Alone, Halo, Made
from calirare.models.passes import Pass, Passes
from calirare_ext import Csr, neighbour_means, propagate, row_sums

ROWS = 1 << 18  # of a block
NUMBERS, LEAST = 1 << 20, 1 << 12  # features of a block of the first pass, which stay in cache, and its rows at least
LINE = 16  # float32 numbers of a cache line
Report = Callable[[str, int, int], None]  # stage, done, of how many
Read = TypeVar("Read")
Item = TypeVar("Item")


@dataclass(frozen=True, eq=False)
class Scales:
    """What A_hat = D^-1/2 (A + I) D^-1/2 is made of beside A: one number per node, no value per edge.

    Attributes:
        root: D^-1/2 of A + I, 0 where a sum is 0, float32 [n].
        loop: weight of the self loop that A_hat adds to each, float32 [n] of 0 and 1, or 1 for all.
    """

    root: Tensor
    loop: Tensor | float


def logits_of_passes(
    passes: Passes,
    graph: GraphOnDisk,
    files: BlockFiles | None = None,
    report: Report | None = None,
    ranks: Ranks | None = None,
) -> Tensor:
    """Returns the logits of every node by a network, float32 [n, k]; arguments and errors as of `logits_on_disk`.

    Precision: sums over a node's neighbours in float32, means in float64; weights before propagation. Within 1e-5 of
    `logits_of`.
    Cost: O(e h + n d h) time; 4 n (h + h') bytes for two passes of these widths, 8 n for degrees, and blocks.
    """
    if files is not None:
        job = job_of(passes)
        files.start(key_of(key_of_graph(graph), job), key_of(graph.whole, job), graph.first)
        adopt(files, graph, ranks or Ranks(), lambda _: block_ends(graph.n_nodes))
    blocks = block_ends(graph.n_nodes)
    at_once = min(ROWS, max(LEAST, NUMBERS // max(1, graph.n_features)))
    scales = _scales(graph, passes, blocks, report)
    halo = halo_of(graph, ranks)
    below = torch.empty(graph.n_nodes, 0)
    for number, (each, width) in enumerate(zip(passes.passes, passes.widths, strict=True)):
        kept = files if number else None  # the first pass reads as much as it writes
        later = passes.passes[number + 1] if number + 1 < len(passes.passes) else None
        ahead = scales.root if later is not None and later.kind == "gcn" else None
        run = _Run(each, passes, graph, scales, kept, number, halo)
        out = room(graph.n_nodes + halo.size, width)
        with (Alone() if later is None or later.kind == "none" else halo).sending(out) as told:
            run.all(below, out, blocks if number else block_ends(graph.n_nodes, at_once), ahead, report, told)
        below = out
    return below[: graph.n_nodes]


def block_ends(n: int, size: int | None = None) -> list[tuple[int, int]]:
    """Returns the first row of each block and the one behind its last; None: of `ROWS` rows."""
    return list(pairwise([*range(0, n, size or ROWS), n]))


def halo_of(graph: GraphOnDisk, ranks: Ranks | None) -> Alone | Halo:
    """Returns what the rows of a process read of others; every process calls it."""
    if ranks is None or ranks.size == 1:
        return Alone()
    found = read_ahead(lambda block: graph.edges(*block), block_ends(graph.n_nodes))
    return Halo.of(graph, ranks, (edges for _, edges in found))


def key_of_graph(graph: GraphOnDisk) -> str:
    """Returns the checksum of what is known of a graph's files, and of how blocks are cut."""
    files = graph.files.values()
    told = tuple((file.path.name, file.shape, str(file.dtype), file.path.stat().st_mtime_ns) for file in files)
    return key_of(told, str(sorted(graph.facts.items())), graph.rows, ROWS)


def job_of(passes: Passes) -> str:
    """Returns the checksum of all of a network that logits depend on."""
    maps = tuple((*each.state()[0].values(), str(each.state()[1])) for each in passes.read.maps)
    weights = tuple(
        (each.kind, each.own, each.degree, each.bias, each.layers, each.carry, each.stay) for each in passes.passes
    )
    bent = tuple((each.bent.weight, *each.bent.scaled.state()[0].values()) for each in passes.passes if each.bent)
    return key_of(maps, weights, bent)


@dataclass(frozen=True, eq=False)
class _Run:
    """One pass over the rows of a graph."""

    each: Pass
    passes: Passes
    graph: GraphOnDisk
    scales: Scales
    files: BlockFiles | None
    number: int
    halo: Alone | Halo

    @property
    def stage(self) -> str:
        """What its blocks are called."""
        return f"pass{self.number}"

    def all(
        self,
        below: Tensor,
        out: Tensor,
        blocks: list[tuple[int, int]],
        ahead: Tensor | None,
        report: Report | None,
        told: Made,
    ) -> None:
        """Writes what the pass makes of all rows, times `ahead`, which the next pass wants of them.

        `told` is told how many of the first rows are there, block by block.
        """
        left = finished(self.files, self.stage, out[: self.graph.n_nodes], blocks)
        side = self.scales.root if self.each.kind == "gcn" else None
        for number, (block, read) in enumerate(read_ahead(self._read, left)):
            (first, last), (edges, x, degrees) = block, read
            if edges is None:
                z = torch.zeros(last - first, self.each.width(below.shape[1])[0])
            elif side is None:
                z = neighbour_means(edges, below)
            else:
                z, loop = propagate(edges, below), self.scales.loop
                z += below[first:last] if isinstance(loop, float) else below[first:last] * loop[first:last, None]
                z *= side[first:last, None]
            made = self.each.after(z, below[first:last], x, degrees)
            if ahead is not None:
                made *= ahead[first:last, None]
            check_finite(made, self.graph, first)
            out[first:last] = made
            if self.files is not None:
                self.files.keep(self.stage, first, made)
            if report is not None:
                report(f"pass {self.number}" if self.number else "features", number + 1, len(left))
            told(last)
        told(self.graph.n_nodes)

    def _read(self, block: tuple[int, int]) -> tuple[Csr | None, Tensor | None, Tensor]:
        """Returns edges, features and degrees of a block, as far as the pass wants them."""
        edges = None if self.each.kind == "none" else self.halo.place(self.graph.edges(*block))
        x = None if self.each.own is None else self.passes.read(self.graph.features(*block))
        wanted = self.each.degree is not None or self.each.bent is not None
        degrees = self.graph.degrees(*block) if wanted else torch.empty(0, dtype=torch.int64)
        return edges, x, degrees


def finished(files: BlockFiles | None, stage: str, out: Tensor, blocks: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Fills in the blocks of a stage that are finished, [n, h]; returns the others."""
    if files is None:
        return blocks
    files.create(stage, *out.shape)
    left = files.left(stage, blocks)
    kept = files.read(stage) if len(left) < len(blocks) else out
    for first, last in set(blocks) - set(left):
        out[first:last] = kept[first:last]
    return left


def check_finite(made: Tensor, graph: GraphOnDisk, first: int) -> None:
    """Checks what was made of the rows `first` and on.

    Raises:
        InputError: a node's is infinite or NaN.
    """
    if all_finite(made):
        return
    node = graph.first + first + int((~made.isfinite().all(1)).nonzero()[0])
    raise InputError(
        f"{graph.path}: node {node} gets a score that is no number: its features or weights are infinite, "
        "missing where the run's graph misses none, or too large: mend them"
    )


def _scales(graph: GraphOnDisk, passes: Passes, blocks: list[tuple[int, int]], report: Report | None) -> Scales:
    """Returns degrees and self loops; edges are read for them only where they have weights or may have loops."""
    kinds = {each.kind for each in passes.passes}
    root = torch.zeros(graph.n_nodes)
    look = graph.weighted or graph.loops
    loop = torch.ones(graph.n_nodes) if graph.loops else 1.0
    if kinds == {"none"}:
        return Scales(root, loop)
    read = graph.edges if look else graph.degrees
    for number, ((first, last), found) in enumerate(read_ahead(lambda block: read(*block), blocks)):
        degree = (row_sums(found) if isinstance(found, Csr) else found).float()
        if isinstance(loop, Tensor):
            assert isinstance(found, Csr)
            rows = torch.arange(first, last).repeat_interleave(found.indptr.diff())
            loop[rows[rows + graph.first == found.indices]] = 0.0
        whole = degree.double() + (loop[first:last] if isinstance(loop, Tensor) else loop)
        lowest = float(whole.min())
        if not lowest >= 0:
            raise InputError(
                f"{graph.path}: sums of a node's weights must be >= 0, got {lowest:g}: weights must be >= 0"
            )
        root[first:last] = _inverse(whole.sqrt())
        if report is not None:
            report("degrees", number + 1, len(blocks))
    return Scales(root, loop)


def read_ahead(read: Callable[[Item], Read], items: Iterable[Item]) -> Iterator[tuple[Item, Read]]:
    """Yields items and what is read of each; the next one is read while the last is worked on."""
    with ThreadPoolExecutor(1) as reader:
        waiting = None
        for item in items:
            soon = item, reader.submit(read, item)
            if waiting is not None:
                yield waiting[0], waiting[1].result()
            waiting = soon
        if waiting is not None:
            yield waiting[0], waiting[1].result()


def room(n: int, width: int) -> Tensor:
    """Returns an uninitialised matrix, float32 [n, width], where rows are found fast.

    numpy asks for large pages; the first row begins with a line of the cache, or rows of 16 numbers would lie in two.
    """
    numbers = np.empty(n * width + LINE, dtype=np.float32)
    first = -numbers.ctypes.data // numbers.itemsize % LINE
    return torch.from_numpy(numbers[first : first + n * width].reshape(n, width))


def _inverse(x: Tensor) -> Tensor:
    return torch.where(x > 0, 1 / x, 0.0).float()
