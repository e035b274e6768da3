"""Logits and intervals of every node of a large graph, a block of nodes at a time.

Two passes with one matrix of messages [n, m] between them, in memory or in a file: messages (what each row of A_hat X
sends to its neighbours, in the network and in each left-out model), then intervals. Blocks in files outlive a process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from calirare._util.array_files import IN_MEMORY, release
from calirare._util.blocks import BlockFiles
from calirare._util.memory import check_memory, free_bytes
from calirare._util.store import key_of
from calirare._util.torch_state import named, threads_for
from calirare.graph import Graph, LazyPropagation, fingerprint, propagation
from calirare.graph.arrays import rows_of
from calirare.leave_one_out.directions import LeftOut, pre_activation, readable
from calirare_ext import Csr, Inputs, ReceptiveField, loo_messages, message_interval, propagate

BLOCK = 32_768  # nodes; fewer where there would be less than BLOCKS of them
BLOCKS = 16
Report = Callable[[str, int, int], None]


@dataclass(frozen=True, eq=False)
class Evaluation:
    """How nodes are evaluated from their inputs: logits, and both ends of their intervals.

    Attributes:
        layers: weights and biases of the two layers.
        left: the left-out models.
        residuals: r_i, [m].
        levels: of the lower and the upper quantile.
        scale: of a calibrator scale z + bias on every logit difference before f is taken.
        bias: of the calibrator.
    """

    layers: tuple[tuple[Tensor, Tensor], ...]
    left: LeftOut
    residuals: Tensor
    levels: tuple[float, float]
    scale: float = 1.0
    bias: float = 0.0

    def messages(self, inputs: Inputs, out: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Returns the network's messages of rows by A_hat X there, [r, 2], and their changes in each model, [r, s]."""
        with named("messages"):
            z, directions = pre_activation(self.layers, inputs), self.left.directions
            sent = loo_messages(readable(inputs, directions), z, directions, out=out)
            return z.relu_() @ self.layers[1][0], sent

    def ends(self, a: Csr, base: Tensor, sent: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Returns logits [r, 2] before the calibrator, and interval ends [r] of A's rows by messages of its columns."""
        with named("propagate messages"), threads_for(base.shape[1] * a.nnz):
            logits = propagate(a, base) + self.layers[1][1]
        with named("intervals"):
            difference, how = logits[:, 1] - logits[:, 0], {"scale": self.scale, "bias": self.bias}
            ends = message_interval(a, sent, difference, self.left.shift, self.residuals, *self.levels, **how)
        return logits, *ends

    def of_field(self, field: ReceptiveField) -> tuple[Tensor, Tensor, Tensor]:
        """Returns the same of the nodes of a receptive field."""
        return self.ends(field.blocks[0], *self.messages(field.features))

    def tensors(self) -> list[Tensor]:
        """Returns every tensor, for a checksum."""
        d = self.left.directions
        parts = [part for layer in self.layers for part in layer] + [self.left.shift, self.residuals, d.second]
        parts += [d.first] if isinstance(d.first, Tensor) else []
        return parts + ([d.mix] if d.mix is not None else [])


class Streaming:
    """Evaluates the nodes of one large graph in blocks; `calirare.jackknife` calls it as its evaluator.

    Args:
        graph: the graph; its propagation must be lazy (see `streams`).
        folder: for finished blocks, kept when the job is stopped and removed by `finish`; None: nothing is kept.
        report: called as blocks proceed.
        block: nodes in a block, >= 1; None: as many as fit the caches.
        memory_limit: bytes of messages; None: most of what is free.

    Attributes:
        resumed: whether finished blocks of an earlier start were taken.

    Raises:
        ValueError: the graph does not stream, or a block holds no node.
    """

    def __init__(
        self,
        graph: Graph,
        folder: Path | None = None,
        *,
        report: Report | None = None,
        block: int | None = None,
        memory_limit: int | None = None,
    ) -> None:
        kept = propagation(graph)
        if not isinstance(kept, LazyPropagation):
            raise ValueError(f"Streaming: graph must be large with dense features, got {graph!r}")
        if block is not None and block < 1:
            raise ValueError(f"Streaming: block must be at least 1, got {block}")
        self.kept, self.graph, self.memory_limit = kept, graph, memory_limit
        self.block = min(BLOCK, -(-kept.n_nodes // BLOCKS)) if block is None else block
        self.files = None if folder is None else BlockFiles(folder)
        self.report: Report = report or (lambda stage, done, total: None)
        self.resumed = False

    def __call__(self, job: Evaluation, hops: int) -> tuple[Tensor, Tensor, Tensor]:
        """Returns what `Evaluation.ends` does of every node, by features propagated so often."""
        if self.files is not None:
            settings = (self.block, job.levels, job.scale, job.bias, hops)
            self.resumed = self.files.start(key_of(*job.tensors(), fingerprint(self.graph), *settings))
        kept = propagation(self.graph, hops)
        assert isinstance(kept, LazyPropagation)
        self.kept = kept
        out = self._evaluated(job)
        return out[:, :2].contiguous(), out[:, 2].contiguous(), out[:, 3].contiguous()

    def finish(self) -> None:
        """Removes the finished blocks."""
        if self.files is not None:
            self.files.remove()

    def _evaluated(self, job: Evaluation) -> Tensor:
        """Returns logits and ends of every node, [n, 4]."""
        files = self.files if self.resumed or not self._fits(job) else None
        n, m, new = self.kept.n_nodes, job.left.directions.n_models, self.kept.a_hat.values.new_empty
        if files is None:
            remedy = "give Streaming a folder for the messages, or leave fewer labels out"
            check_memory(self._bytes(job), self.memory_limit, self.kept.a_hat.device, remedy)
        else:
            for name, columns in (("sent", m), ("base", 2), ("ends", 4)):
                files.create(name, n, columns)
        sent, base, out = new(n if files is None else min(self.block, n), m), new(n, 2), new(n, 4)
        for number, rows in self._left(files, "messages"):
            into = sent[rows] if files is None else sent[: rows.stop - rows.start]
            base[rows] = self._messages(job, rows, into)
            if files is not None:
                parts = files.write("sent", rows.start, into), files.write("base", rows.start, base[rows])
                files.done("messages", number, *parts)
        release(self.kept.x)
        if files is not None:
            sent, base = files.read("sent"), files.read("base").to(out.device)
        for number, rows in self._left(files, "intervals"):
            out[rows] = self._intervals(job, rows, sent, base)
            if files is not None:
                files.done("intervals", number, files.write("ends", rows.start, out[rows]))
        release(sent)
        return out if files is None else files.read("ends").to(out.device, copy=True)

    def _left(self, files: BlockFiles | None, stage: str) -> Iterator[tuple[int, slice]]:
        """Yields the blocks of a stage that are not finished."""
        n = self.kept.n_nodes
        blocks = [slice(start, min(start + self.block, n)) for start in range(0, n, self.block)]
        left = [(i, rows) for i, rows in enumerate(blocks) if files is None or not files.is_done(stage, i)]
        for done, (number, rows) in enumerate(left, len(blocks) - len(left) + 1):
            yield number, rows
            self.report(stage, done, len(blocks))

    def _fits(self, job: Evaluation) -> bool:
        """Returns whether the messages may be kept in memory."""
        return self._bytes(job) < IN_MEMORY * free_bytes(self.kept.a_hat.device)

    def _bytes(self, job: Evaluation) -> int:
        return 4 * self.kept.n_nodes * job.left.directions.n_models

    def _messages(self, job: Evaluation, rows: slice, out: Tensor) -> Tensor:
        """Returns the network's messages of a block of rows, [r, 2], and writes their changes, [r, m]."""
        with named("propagate features"):
            inputs = propagate(rows_of(self.kept.a_hat, rows), self.kept.x)
        return job.messages(inputs, out)[0]

    def _intervals(self, job: Evaluation, rows: slice, sent: Tensor, base: Tensor) -> Tensor:
        """Returns logits and interval ends of a block of nodes, [r, 4]."""
        a_hat = self.kept.a_hat
        if not self._elsewhere(sent):
            return self._ends(job, rows_of(a_hat, rows), sent, base)
        most = int(IN_MEMORY * free_bytes(a_hat.device)) // (sent.element_size() * max(sent.shape[1], 1))
        parts = []
        for a, touched in pieces(a_hat, rows, most):
            with named("fetch messages"):
                near = sent.index_select(0, touched.to(sent.device)).to(a_hat.device)
            parts.append(self._ends(job, a, near, base.index_select(0, touched)))
        return torch.cat(parts)

    def _elsewhere(self, sent: Tensor) -> bool:
        """Returns whether messages lie on another device than the graph."""
        return sent.device != self.kept.a_hat.device

    def _ends(self, job: Evaluation, a: Csr, sent: Tensor, base: Tensor) -> Tensor:
        """Returns logits and interval ends of the rows of A, [r, 4], from the messages of its columns."""
        logits, *ends = job.ends(a, base, sent)
        return torch.cat([logits, torch.stack(ends, 1)], 1)


def streams(graph: Graph, n_layers: int, n_classes: int) -> bool:
    """Returns whether a graph is evaluated in blocks: large, with dense features, two layers, two classes."""
    return n_layers == 2 and n_classes == 2 and isinstance(propagation(graph), LazyPropagation)


def pieces(a: Csr, rows: slice, most: int) -> Iterator[tuple[Csr, Tensor]]:
    """Yields rows [rows.start, rows.stop) of a matrix cut to the columns they touch, in pieces that touch few.

    Args:
        a: the matrix.
        rows: which rows, at least one.
        most: columns that a piece may touch; a single row may touch more.

    Yields:
        Some of the rows, in order, their columns renumbered; and the columns, ascending, int64.
    """
    part = rows_of(a, rows)
    touched, place = torch.unique(part.indices, return_inverse=True)
    if touched.numel() > most and rows.stop - rows.start > 1:
        middle = (rows.start + rows.stop) // 2
        yield from pieces(a, slice(rows.start, middle), most)
        yield from pieces(a, slice(middle, rows.stop), most)
        return
    yield Csr.unchecked(part.indptr, place.to(torch.int32), part.values, touched.numel()), touched.long()
