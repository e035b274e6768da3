"""Finished rows of an earlier start by another number of processes: who holds which, and how they come to their places.

Every process looks for folders of blocks beside its own. What any of them holds of the same job goes to the process
that has the rows now; blocks that nobody holds in whole are made anew.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path

import torch
from torch import Tensor

from calirare._util.blocks import BlockFiles
from calirare._util.ranks import Ranks
from calirare.graph import GraphOnDisk
from calirare.models.halo import AT_ONCE

MARK = re.compile(r"(.+)-(\d+)\.done")


@dataclass(frozen=True)
class Stretch:
    """Rows [first, last) of the whole graph, of a stage; with the folder that holds them, where one does."""

    stage: str
    first: int
    last: int
    folder: Path = Path()
    start: int = 0  # the node that its first row is


@dataclass(frozen=True)
class Piece:
    """Rows [first, last) that go from one process to another, which puts them into the block that begins at `block`."""

    giver: int
    taker: int
    first: int
    last: int
    block: int
    held: Stretch


def adopt(files: BlockFiles, graph: GraphOnDisk, ranks: Ranks, ends: Callable[[str], list[tuple[int, int]]]) -> None:
    """Puts what other folders hold of the same job into this one's; every process calls it.

    Args:
        files: this process's folder, started.
        graph: its rows.
        ranks: the processes.
        ends: the first row of each block of a stage and the one behind its last.

    Raises:
        RankLostError: a process ended.
    """
    job = files.said()["of"]
    held = [each for folder in files.others for each in _held(BlockFiles(folder), job)]
    offers = ranks.gather_all(held)
    stages = sorted({each.stage for offer in offers for each in offer})
    wanted = list[Stretch]()
    for stage in stages:
        wanted += [Stretch(stage, graph.first + a, graph.first + b) for a, b in files.left(stage, ends(stage))]
    wants = ranks.gather_all(wanted)
    for stage in stages:
        of_stage = [[each for each in some if each.stage == stage] for some in (*offers, *wants)]
        pieces = _pieces(of_stage[: ranks.size], of_stage[ranks.size :])
        if pieces:
            _move(files, graph, ranks, stage, pieces)


def _held(files: BlockFiles, job: str) -> list[Stretch]:
    """Returns the whole blocks of a folder where they are of a job."""
    said = files.said()
    if said.get("of") != job or not files.keep_whole_blocks():
        return []
    start, out = int(said["first"]), list[Stretch]()
    for path in sorted(files.folder.glob("*.done")):
        match = MARK.fullmatch(path.name)
        if match is not None:
            _, first, rows, _ = files.parts(match[1], int(match[2]))[0]
            out.append(Stretch(match[1], start + first, start + first + rows, files.folder, start))
    return out


def _pieces(offers: Sequence[Sequence[Stretch]], wants: Sequence[Sequence[Stretch]]) -> list[Piece]:
    """Returns what goes where: every process finds the same. Of a block that nobody holds in whole nothing goes."""
    out = list[Piece]()
    for taker, wanted in enumerate(wants):
        order = [taker, *(rank for rank in range(len(offers)) if rank != taker)]  # its own disk first
        for want in wanted:
            at, found = want.first, list[Piece]()
            while at < want.last:
                near = [(rank, each) for rank in order for each in offers[rank] if each.first <= at < each.last]
                if not near:
                    break
                giver, held = near[0]
                end = min(held.last, want.last)
                found.append(Piece(giver, taker, at, end, want.first, held))
                at = end
            out += found if at == want.last else []
    return out


def _move(files: BlockFiles, graph: GraphOnDisk, ranks: Ranks, stage: str, pieces: list[Piece]) -> None:
    """Brings the rows of a stage to their processes, and marks their blocks."""
    going = sorted((p for p in pieces if p.giver == ranks.rank), key=lambda p: p.taker)
    coming = sorted((p for p in pieces if p.taker == ranks.rank), key=lambda p: p.giver)
    names = ranks.gather_all({name: w for p in going for name, w in _widths(p.held).items()})
    give, take = ([sum(p.last - p.first for p in some if side(p) == rank) for rank in range(ranks.size)]
                  for some, side in ((going, lambda p: p.taker), (coming, lambda p: p.giver)))  # fmt: skip
    done: dict[int, list[tuple[str, int, int, int]]] = {}
    for name, width in sorted({item for some in names for item in some.items()}):
        rows = torch.cat([torch.empty(0, width), *(_rows(p, name) for p in going)])
        came = rows if ranks.size == 1 else ranks.exchange(rows, give, take, AT_ONCE)
        files.create(name, graph.n_nodes, width)
        ends = [0, *accumulate(p.last - p.first for p in coming)]
        parts: dict[int, list[tuple[int, Tensor]]] = {}
        for piece, (a, b) in zip(coming, pairwise(ends), strict=True):
            parts.setdefault(piece.block, []).append((piece.first, came[a:b]))
        for block, some in parts.items():
            whole = torch.cat([part for _, part in sorted(some, key=lambda each: each[0])])
            done.setdefault(block, []).append(files.write(name, block - graph.first, whole))
    for block, written in done.items():
        files.done(stage, block - graph.first, *written)


def _widths(held: Stretch) -> dict[str, int]:
    """Returns the matrices that a stage's mark tells of, and how wide they are."""
    files = BlockFiles(held.folder)
    return {name: files.read(name).shape[1] for name, *_ in files.parts(held.stage, held.first - held.start)}


def _rows(piece: Piece, name: str) -> Tensor:
    return BlockFiles(piece.held.folder).read(name)[piece.first - piece.held.start : piece.last - piece.held.start]
