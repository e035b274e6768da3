"""A graph convolution as passes over the rows of a graph that is never in memory as a whole.

Weights come before propagation, A_hat (X W) in the place of (A_hat X) W, so that what is kept between two passes is as
wide as a layer and not as the features are. Finished blocks of a pass are kept where it is stopped.
"""

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
from calirare._util.store import key_of
from calirare.features import FeatureMap
from calirare.graph import Graph, GraphOnDisk
from calirare.models.fitted import Fitted
from calirare.models.folded import FoldedNetwork
from calirare.models.gcn_fit import GcnFit
from calirare.models.mlp import MlpFit
from calirare_ext import Csr, propagate, row_sums

ROWS = 1 << 18  # of a block
LINE = 16  # float32 numbers of a cache line
Block = tuple[int, int]  # first row, and the one behind the last
Report = Callable[[str, int, int], None]  # stage, done, of how many
Read = TypeVar("Read")
Item = TypeVar("Item")


def block_ends(n: int, size: int | None = None) -> list[Block]:
    """Returns the first row of each block and the one behind its last; of `ROWS` rows, or of fewer."""
    return list(pairwise([*range(0, n, min(ROWS, size or ROWS)), n]))


def key_of_graph(graph: GraphOnDisk) -> str:
    """Returns the checksum of what is known of a graph's files, and of how blocks are cut."""
    files = graph.files.values()
    contents = tuple((file.path.name, file.shape, str(file.dtype), file.path.stat().st_mtime_ns) for file in files)
    return key_of(contents, str(sorted(graph.facts.items())), ROWS)


def finished(files: BlockFiles | None, stage: str, out: Tensor, blocks: list[Block]) -> list[Block]:
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
    node = first + int((~made.isfinite().all(1)).nonzero()[0])
    raise InputError(
        f"{graph.path}: the score of node {node} is not finite: its features or edge weights are infinite, "
        "too large, or missing where the run's graph has values. Fix them."
    )


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


NUMBERS, LEAST = 1 << 20, 1 << 12  # features of a block of the first pass, which stay in cache, and its rows at least


@dataclass(frozen=True, eq=False)
class Mapped:
    """Features as maps make them.

    Attributes:
        maps: one after the other: a run's, then a detector's own.
    """

    maps: tuple[FeatureMap, ...]

    def __call__(self, rows: Graph) -> Tensor:
        """Returns the features of some nodes, float32 [r, d]."""
        for each in self.maps:
            rows = each.transform(rows)
        return rows.x if isinstance(rows.x, Tensor) else rows.x.to_dense()


@dataclass(frozen=True, eq=False)
class Passes:
    """h = X V, then for each pass h = A_hat h + b, and relu(h) W where a layer follows; the last h are logits.

    Attributes:
        read: makes X of some nodes, float32 [r, d].
        own: V, float32 [d, h].
        passes: b [h] or None, and W [h, h'] or None, of each pass.
    """

    read: Mapped
    own: Tensor
    passes: tuple[tuple[Tensor | None, Tensor | None], ...]

    def key(self) -> str:
        """Returns the checksum of all that logits depend on."""
        maps = tuple((*each.state()[0].values(), str(each.state()[1])) for each in self.read.maps)
        return key_of(maps, self.own, self.passes)


def passes_of(fitted: Fitted, features: FeatureMap) -> Passes | str:
    """Returns a graph convolution as passes over the rows of a graph.

    Args:
        fitted: the detector.
        features: the map of the run.

    Returns:
        The passes, or why there are none, as a sentence goes on after "because".
    """
    network = fitted.network if isinstance(fitted, FoldedNetwork) else fitted
    if not isinstance(network, GcnFit) or isinstance(network, MlpFit):
        return "its detector is no graph convolution and reads no columns (train with --model gcn, hops, trees or auto)"
    layers = [(weight.detach().float(), bias.detach().float()) for weight, bias in network.model.layers()]
    later = [*(weight for weight, _ in layers[1:]), None]
    steps = [(None, None)] * (network.model.hops - 1)
    passes = (*steps, *((bias, weight) for (_, bias), weight in zip(layers, later, strict=True)))
    return Passes(Mapped((features,)), layers[0][0], passes)


def logits_of_passes(
    passes: Passes, graph: GraphOnDisk, files: BlockFiles | None = None, report: Report | None = None
) -> Tensor:
    """Returns the logits of every node by a network, float32 [n, k]; arguments and errors as of `logits_on_disk`.

    Precision: sums over a node's neighbours in float32; weights before propagation. Within 1e-5 of `logits_of`.
    Cost: O(e h + n d h) time; 4 n (h + h') bytes for two passes of these widths, 8 n for degrees, and blocks.
    """
    if files is not None:
        files.start(key_of(key_of_graph(graph), passes.key()))
    n, blocks = graph.n_nodes, block_ends(graph.n_nodes)
    root, loop = _scales(graph, blocks, report)
    h, tiles = room(n, passes.own.shape[1]), block_ends(n, max(LEAST, NUMBERS // max(1, graph.n_features)))
    # The blocks of the features are not kept: making them reads as much as it writes.
    for done, (block, x) in enumerate(read_ahead(lambda tile: passes.read(graph.features(*tile)), tiles), start=1):
        rows = slice(*block)
        h[rows] = (x @ passes.own).mul_(root[rows, None])
        check_finite(h[rows], graph, block[0])
        if report is not None:
            report("features", done, len(tiles))
    for number, (bias, weight) in enumerate(passes.passes, start=1):
        below, h = h, room(n, h.shape[1] if weight is None else weight.shape[1])
        left = finished(files, f"pass{number}", h, blocks)
        for done, (block, edges) in enumerate(read_ahead(lambda block: graph.edges(*block), left), start=1):
            rows = slice(*block)
            z = propagate(edges, below)
            z += below[rows] if loop is None else below[rows] * loop[rows, None]
            z *= root[rows, None]
            if bias is not None:
                z += bias
            if weight is not None:
                z = z.relu_() @ weight
            if number < len(passes.passes):
                z *= root[rows, None]  # as the next pass wants it
            check_finite(z, graph, block[0])
            h[rows] = z
            if files is not None:
                files.keep(f"pass{number}", block[0], z)
            if report is not None:
                report(f"pass {number}", done, len(left))
    return h


def _scales(graph: GraphOnDisk, blocks: list[Block], report: Report | None) -> tuple[Tensor, Tensor | None]:
    """Returns what A_hat = D^-1/2 (A + I) D^-1/2 needs in addition to A: one number per node, no value per edge."""
    root = torch.zeros(graph.n_nodes)
    loop = torch.ones(graph.n_nodes) if graph.loops else None
    read = graph.edges if graph.weighted or graph.loops else graph.degrees
    for done, ((first, last), found) in enumerate(read_ahead(lambda block: read(*block), blocks), start=1):
        degree = (row_sums(found) if isinstance(found, Csr) else found).float()
        if loop is not None:
            assert isinstance(found, Csr)
            rows = torch.arange(first, last).repeat_interleave(found.indptr.diff())
            loop[rows[rows == found.indices]] = 0.0
        whole = degree.double() + (1.0 if loop is None else loop[first:last])
        lowest = float(whole.min())
        if not lowest >= 0:
            raise InputError(
                f"{graph.path}: sums of a node's weights must be >= 0, got {lowest:g}: weights must be >= 0"
            )
        root[first:last] = torch.where(whole > 0, whole.rsqrt(), 0.0).float()
        if report is not None:
            report("degrees", done, len(blocks))
    return root, loop
