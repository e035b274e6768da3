"""What passes over the rows of a graph on disk share: blocks that are read ahead, checked, and kept when finished."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from calirare._util.arrays import all_finite
from calirare._util.blocks import BlockFiles
from calirare._util.errors import InputError
from calirare._util.store import key_of
from calirare.graph import GraphOnDisk

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
    told = tuple((file.path.name, file.shape, str(file.dtype), file.path.stat().st_mtime_ns) for file in files)
    return key_of(told, str(sorted(graph.facts.items())), ROWS)


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
