"""Logits and intervals of every node of a large graph, a block of nodes at a time.

Two passes with one matrix of messages [n, m] between them: messages (what each row of A_hat X sends to its neighbours,
in the network and in each left-out model), then intervals.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from calirare._util.array_files import release, scratch
from calirare._util.memory import check_memory
from calirare._util.torch_state import named, threads_for
from calirare.graph import Graph, LazyPropagation, propagation
from calirare.graph.arrays import rows_of
from calirare.leave_one_out.directions import LeftOut, pre_activation, readable
from calirare_ext import Csr, Inputs, loo_messages, message_interval, propagate

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


class Streaming:
    """Evaluates the nodes of one large graph in blocks; `calirare.jackknife` calls it as its evaluator.

    Args:
        graph: the graph; its propagation must be lazy (see `streams`).
        report: called as blocks proceed.
        block: nodes in a block, >= 1; None: as many as fit the caches.

    Raises:
        ValueError: the graph does not stream, or a block holds no node.
    """

    def __init__(self, graph: Graph, *, report: Report | None = None, block: int | None = None) -> None:
        n = graph.n_nodes
        if not isinstance(propagation(graph), LazyPropagation):
            raise ValueError(f"Streaming: graph must be large with dense features, got {graph!r}")
        if block is not None and block < 1:
            raise ValueError(f"Streaming: block must be at least 1, got {block}")
        block = min(BLOCK, -(-n // BLOCKS)) if block is None else block
        self.graph = graph
        self.blocks = [slice(start, min(start + block, n)) for start in range(0, n, block)]
        self.report: Report = report or (lambda stage, done, total: None)

    def __call__(self, job: Evaluation, hops: int) -> tuple[Tensor, Tensor, Tensor]:
        """Returns what `Evaluation.ends` does of every node, by features propagated so often.

        Raises:
            InputError: the messages fit neither in memory nor, on the CPU, in a file of $TMPDIR.
        """
        kept = propagation(self.graph, hops)
        assert isinstance(kept, LazyPropagation)
        a_hat, n, n_models = kept.a_hat, kept.n_nodes, job.left.directions.n_models
        if a_hat.device.type != "cpu":
            remedy = "make intervals of fewer nodes (--interval-nodes alerts), or leave fewer labels out"
            check_memory(4 * n * n_models, None, a_hat.device, remedy)
        sent, base, out = (scratch(n, width, a_hat.device) for width in (n_models, 2, 4))
        for done, rows in enumerate(self.blocks, 1):
            with named("propagate features"):
                inputs = propagate(rows_of(a_hat, rows), kept.x)
            base[rows] = job.messages(inputs, sent[rows])[0]
            release(sent)
            self.report("messages", done, len(self.blocks))
        release(kept.x)
        for done, rows in enumerate(self.blocks, 1):
            logits, *ends = job.ends(rows_of(a_hat, rows), base, sent)
            out[rows] = torch.cat([logits, torch.stack(ends, 1)], 1)
            self.report("intervals", done, len(self.blocks))
        return out[:, :2].contiguous(), out[:, 2].contiguous(), out[:, 3].contiguous()


def streams(graph: Graph, n_layers: int, n_classes: int) -> bool:
    """Returns whether a graph is evaluated in blocks: large, with dense features, two layers, two classes."""
    return n_layers == 2 and n_classes == 2 and isinstance(propagation(graph), LazyPropagation)
