"""Simulated rare-class graphs of any size, written as a folder in a few GB of memory.

Edges are drawn in chunks and sorted twice: into buckets, each the edges of some rows, on the disk, then bucket by
bucket in memory. Every chunk begins at its own place in the stream of random numbers, so that neither the sizes of
chunks and buckets nor the number of threads change the graph.
"""

from __future__ import annotations

import math
import shutil
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
import torch

from calirare._util.array_files import NumpyArray
from calirare._util.errors import InputError
from calirare.datasets.synthetic import BlockModel
from calirare.graph.folder import new_folder
from calirare_lab.simulation.array_writer import ArrayWriter
from calirare_lab.simulation.block_law import DegreeLaw, Places

PAIRS = 1 << 21  # edges drawn together, some 150 MB beside each other
BUCKET = 1 << 25  # directed edges of a bucket, some 600 MB while it is sorted
MOST_BUCKETS = 512  # files open at once; beyond 17 thousand million directed edges buckets grow
# Rows of features that share a stream of random numbers. Part of what a seed means: another number, another graph.
FEATURE_ROWS = 65536
# The streams of random numbers of a seed.
FIRST_ENDS, SECOND_ENDS, PLACES, SPLIT, DIRECTION, FEATURES = range(6)

Report = Callable[[str, int, int], None]
Result = TypeVar("Result")


def synthetic_on_disk(
    path: str | Path,
    n_nodes: int,
    *,
    seed: int = 0,
    direction_seed: int | None = None,
    dtype: Literal["float32", "float16"] = "float32",
    labels: bool = True,
    report: Report | None = None,
    **options: Any,
) -> None:
    """Writes a simulated rare-class graph that need not fit into memory as a folder that `load_dataset` maps.

    The model is that of `synthetic_rare` with labels="block", with expected degrees laid down instead of drawn: in
    either block the node before which a share x of the block lies has one proportional to (x + c)^(-1 /
    (degree_exponent - 1)), c such that the largest is sqrt(n_nodes * mean_degree). The rare block has
    round(share * n_nodes) nodes, spread evenly over all numbers. There is no `posterior`.

    The features' direction depends on `direction_seed` alone, all else on `seed` and `n_nodes`: a run trained on a
    graph of a million nodes scores one of a hundred million with the same seed, and no node of one is in the other.

    Args:
        path: the folder; it must not be there. A failure leaves nothing behind.
        n_nodes: number of nodes n, from 10 to 2^31 - 1.
        seed: of graph and split, >= 0.
        direction_seed: of the direction in which the features of the blocks differ, >= 0; None: `seed`.
        dtype: of the features in the file; float16 takes half of the disk.
        labels: whether to write classes and a split; without, the graph is one to score.
        report: called with "edges", "rows" or "features", how many are done and how many there are.
        **options: see `BlockModel`; of the split `label_rate`, the training nodes of each class, `n_val` and `n_test`,
            the validation and test nodes, all of which must fit.

    Raises:
        InputError: an argument is out of range, the folder is there or cannot be written, or the disk lacks room.

    Cost: O(n d + m log m) time. Memory: about 1 GB, and 0.8 GB per thread. Disk: 8 bytes per directed edge while edges
    are sorted, then 4, and the features.
    """
    sizes = _SplitSizes(options.pop("label_rate", 20), options.pop("n_val", 160), options.pop("n_test", 1000))
    rules = BlockModel(**options)
    direction_seed = seed if direction_seed is None else direction_seed
    _check("n_nodes", n_nodes, 10 <= n_nodes < 2**31, "from 10 to 2^31 - 1")
    _check("mean_degree", rules.mean_degree, rules.mean_degree < n_nodes, f"below n_nodes, {n_nodes}")
    _check("seed", seed, seed >= 0, ">= 0")
    _check("direction_seed", direction_seed, direction_seed >= 0, ">= 0")
    _check("dtype", dtype, dtype in ("float32", "float16"), "float32 or float16")
    job = _Job(n_nodes, (seed, direction_seed), rules, dtype, sizes if labels else None, report or _silent)
    _write(Path(path), job, {"name": "synthetic"})


@dataclass(frozen=True)
class _SplitSizes:
    """How many nodes train, per class, validate and test."""

    label_rate: int = 20
    n_val: int = 160
    n_test: int = 1000

    def check(self, places: Places) -> None:
        """Refuses numbers that the classes do not hold."""
        smaller = min(places.n_rare, places.n - places.n_rare)
        _check("label_rate", self.label_rate, 1 <= self.label_rate <= smaller, f"from 1 to the rarer class's {smaller}")
        left = places.n - 2 * self.label_rate
        _check("n_val", self.n_val, 0 <= self.n_val <= left, f"from 0 to {left}")
        _check("n_test", self.n_test, 0 <= self.n_test <= left - self.n_val, f"from 0 to {left - self.n_val}")


class _Job:
    """What is written: the model, where its nodes and edges lie, and the streams of random numbers.

    Attributes:
        n: number of nodes.
        seed: of all but the direction.
        rules: the model.
        dtype: of the features.
        split: numbers of the split; None: neither classes nor a split are written.
        report: called with what is done.
        places: the nodes of both blocks.
        degrees: the law of the expected degrees.
        n_pairs: number of undirected edges drawn.
        after: where the edges end that join rest and rest, rest and rare, rare and rest, rare and rare.
        direction: unit vector, float64 [d].
    """

    def __init__(
        self,
        n: int,
        seeds: tuple[int, int],
        rules: BlockModel,
        dtype: str,
        split: _SplitSizes | None,
        report: Report,
    ) -> None:
        """Lays the model down; the second of the seeds is the direction's."""
        self.n, self.rules, self.dtype, self.split, self.report = n, rules, dtype, split, report
        self.seed, direction_seed = seeds
        rng = self.stream(PLACES)
        self.places = Places.drawn(n, min(max(round(rules.share * n), 1), n - 1), rng)
        self.degrees = DegreeLaw.cut(n, rules.mean_degree, rules.degree_exponent)
        self.n_pairs = round(rules.mean_degree * n / 2)
        blocks, h = np.array([n - self.places.n_rare, self.places.n_rare]) / n, rules.homophily
        shares = blocks[:, None] * ((1 - h) * blocks + h * np.eye(2))
        self.after = np.cumsum(rng.multinomial(self.n_pairs, shares.ravel() / shares.sum())).tolist()
        direction = np.random.default_rng(np.random.SeedSequence(direction_seed, spawn_key=(DIRECTION,)))
        self.direction = direction.standard_normal(rules.n_features)
        self.direction /= np.linalg.norm(self.direction)
        if split is not None:
            split.check(self.places)

    @property
    def n_buckets(self) -> int:
        """Files into which directed edges are sorted first."""
        return min(math.ceil(2 * self.n_pairs / BUCKET), MOST_BUCKETS, self.n)

    def stream(self, *key: int) -> np.random.Generator:
        """Returns the generator of a stream."""
        return np.random.Generator(np.random.PCG64(np.random.SeedSequence((self.seed, self.n), spawn_key=key)))

    def uniform(self, key: int, start: int, stop: int) -> NumpyArray:
        """Returns the numbers `start` to `stop` - 1 of a stream of uniform ones, whatever was drawn before."""
        bits = np.random.PCG64(np.random.SeedSequence((self.seed, self.n), spawn_key=(key,)))
        return np.random.Generator(bits.advance(start)).random(stop - start)


def _check(name: str, value: object, fits: bool, wanted: str) -> None:
    """Refuses an argument that is out of range."""
    if not fits:
        raise InputError(f"synthetic_on_disk: {name} must be {wanted}, got {value!r}")


def _silent(stage: str, done: int, total: int) -> None:
    """Reports nothing."""


def _check_room(path: Path, job: _Job) -> None:
    """Refuses a graph for which the disk lacks room: while edges are sorted, or when all is written."""
    per_node = job.rules.n_features * np.dtype(job.dtype).itemsize + 8 * (job.split is not None)
    needed = 8 * (job.n + 1) + max(16 * job.n_pairs, 8 * job.n_pairs + per_node * job.n)
    there = next((each for each in path.absolute().parents if each.exists()), Path("/"))
    free = shutil.disk_usage(there).free
    if needed > free:
        raise InputError(
            f"{path}: {needed / 1e9:.2f} GB are needed while the graph is written, {free / 1e9:.2f} GB are free: make "
            "room, or lower n_nodes, mean_degree or n_features"
        )


def _write(path: Path, job: _Job, facts: dict[str, Any]) -> None:
    """Writes the folder, with the facts given and those of classes and split."""
    _check_room(path, job)
    if job.split is not None:
        facts |= {"class_names": ["rest", "rare"], "minority": 1}
        facts["split_name"] = f"simulated(label_rate={job.split.label_rate}, seed={job.seed})"
    with new_folder(path, facts) as folder, _workers() as pool:
        facts["checksums"] = _write_edges(folder, job, pool) | _write_nodes(folder, job, pool)
        if job.split is not None:
            facts["checksums"] |= _write_split(folder, job.split, job)


@contextmanager
def _workers() -> Iterator[Executor]:
    """Yields as many threads as torch has; numpy draws, sorts and copies without holding Python's lock."""
    pool = ThreadPoolExecutor(torch.get_num_threads())
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def _in_order(pool: Executor, work: Callable[..., Result], tasks: Iterable[tuple[Any, ...]]) -> Iterator[Result]:
    """Yields the results of tasks in their order, and begins no more than one per thread ahead."""
    waiting: deque[Future[Result]] = deque()
    for task in tasks:
        waiting.append(pool.submit(work, *task))
        if len(waiting) > torch.get_num_threads():
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


def _write_edges(folder: Path, job: _Job, pool: Executor) -> dict[str, int]:
    """Writes `indptr` and `indices`; returns their checksums."""
    (folder / "buckets").mkdir()
    files = [folder / "buckets" / str(number) for number in range(job.n_buckets)]
    first_rows = [job.n * number // len(files) for number in range(len(files) + 1)]
    _fill_buckets(files, first_rows, job, pool)
    with ArrayWriter(folder / "indptr.npy", "int64") as indptr, ArrayWriter(folder / "indices.npy", "int32") as indices:
        indptr.append(np.zeros(1, dtype=np.int64))
        tasks = zip(files, first_rows[:-1], first_rows[1:], strict=True)
        for ends, columns in _in_order(pool, _rows_of_bucket, tasks):
            ends += indices.n_rows
            indptr.append(ends)
            indices.append(columns)
            job.report("rows", indptr.n_rows - 1, job.n)
    (folder / "buckets").rmdir()
    return {"indptr": indptr.checksum, "indices": indices.checksum}


def _fill_buckets(files: list[Path], first_rows: list[int], job: _Job, pool: Executor) -> None:
    """Draws all edges and writes both directions of each, as one number, into the file of its row."""
    cuts = np.array(first_rows[1:-1], dtype=np.int64) << 32
    tasks = [(job, start, min(start + PAIRS, job.n_pairs)) for start in range(0, job.n_pairs, PAIRS)]
    with ExitStack() as stack:
        buckets = [stack.enter_context(file.open("wb")) for file in files]
        for (_, _, done), keys in zip(tasks, _in_order(pool, _draw_keys, tasks), strict=True):
            for bucket, part in zip(buckets, np.split(keys, np.searchsorted(keys, cuts)), strict=True):
                bucket.write(part.data)
            job.report("edges", done, job.n_pairs)


def _draw_keys(job: _Job, start: int, stop: int) -> NumpyArray:
    """Returns both directions of some edges as row * 2^32 + column, sorted, without self loops."""
    ends = []
    for stream, blocks in ((FIRST_ENDS, (0, 0, 1, 1)), (SECOND_ENDS, (0, 1, 0, 1))):
        x = job.degrees.drawn(job.uniform(stream, start, stop))
        cuts = np.clip(np.array(job.after[:-1]) - start, 0, stop - start)
        parts = zip(blocks, np.split(x, cuts), strict=True)
        ends.append(np.concatenate([job.places.nodes(block, part) for block, part in parts]))
    u, v = ends
    apart = u != v
    if not apart.all():
        u, v = u[apart], v[apart]
    keys = np.concatenate([u << 32 | v, v << 32 | u])
    keys.sort()
    return keys


def _rows_of_bucket(file: Path, first: int, last: int) -> tuple[NumpyArray, NumpyArray]:
    """Returns where each row of a bucket ends, int64, and its columns, int32, and removes the bucket's file."""
    keys = np.fromfile(file, dtype=np.int64)
    file.unlink()
    keys.sort()
    ends = np.searchsorted(keys, np.arange(first + 1, last + 1, dtype=np.int64) << 32)
    repeated = np.flatnonzero(keys[1:] == keys[:-1]) + 1
    ends -= np.searchsorted(repeated, ends)
    # The lower half of a number is its column, below 2^31.
    return ends, np.delete(keys.astype(np.int32), repeated)


def _write_nodes(folder: Path, job: _Job, pool: Executor) -> dict[str, int]:
    """Writes `x`, and `y` where the graph has labels; returns their checksums."""
    starts = range(0, job.n, FEATURE_ROWS)
    tasks = [(job, number, start, min(start + FEATURE_ROWS, job.n)) for number, start in enumerate(starts)]
    with ExitStack() as stack:
        files = {"x": stack.enter_context(ArrayWriter(folder / "x.npy", job.dtype, job.rules.n_features))}
        if job.split is not None:
            files["y"] = stack.enter_context(ArrayWriter(folder / "y.npy", "int64"))
        for x, rare in _in_order(pool, _draw_features, tasks):
            files["x"].append(x)
            if job.split is not None:
                files["y"].append(rare.astype(np.int64))
            job.report("features", files["x"].n_rows, job.n)
    return {name: file.checksum for name, file in files.items()}


def _draw_features(job: _Job, number: int, start: int, stop: int) -> tuple[NumpyArray, NumpyArray]:
    """Returns the features of some nodes and which of them are rare."""
    rare = job.places.is_rare(start, stop)
    x = job.stream(FEATURES, number).standard_normal((stop - start, job.rules.n_features), dtype=np.float32)
    shift = (np.array([[-0.5], [0.5]]) * job.rules.separation * job.direction).astype(np.float32)
    x += shift[rare.astype(np.intp)]
    return x.astype(job.dtype, copy=False), rare


def _write_split(folder: Path, sizes: _SplitSizes, job: _Job) -> dict[str, int]:
    """Writes a random split with as many training nodes of either class; returns the checksums of its files."""
    rng, places = job.stream(SPLIT), job.places
    rest = rng.choice(places.n - places.n_rare, sizes.label_rate, replace=False)
    rare = places.n - places.n_rare + rng.choice(places.n_rare, sizes.label_rate, replace=False)
    train = np.concatenate([rest, rare])
    n_others = sizes.n_val + sizes.n_test
    # As many more as may already train: what is left is a sample of the other nodes, in random order.
    others = rng.choice(places.n, n_others + len(train), replace=False)
    others = others[~np.isin(others, train)][:n_others]
    checksums = {}
    for part, ranks in zip(("train", "val", "test"), (train, *np.split(others, [sizes.n_val])), strict=True):
        with ArrayWriter(folder / f"{part}_idx.npy", "int64") as file:
            file.append(places.of_ranks(ranks.astype(np.int64)))
        checksums[f"{part}_idx"] = file.checksum
    return checksums
