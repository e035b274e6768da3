"""What each stage must read, write and multiply: formulas, checked against measurements in docs/scaling.md."""

from __future__ import annotations

from dataclasses import dataclass

INDEX, REAL = 4, 4  # bytes of a column index and of a float32


@dataclass(frozen=True)
class Sizes:
    """The numbers a cost depends on.

    Attributes:
        n: nodes.
        e: directed edges, self loops of A_hat included.
        d: features.
        h: hidden units.
        m: labelled nodes, each left out once.
        r: rows of the first layer in the receptive field of the labelled nodes.
        steps: gradient steps in all: epochs times (1 + folds of the check).
        groups: passes over the features per block of messages, about 2 for 16 hidden units.
    """

    n: int
    e: int
    d: int
    h: int
    m: int
    r: int
    steps: int
    groups: int = 2


@dataclass(frozen=True)
class Cost:
    """Bytes from and to memory, without any reuse of gathered rows in cache; and flops, two per multiply-add."""

    bytes: int
    flops: int

    def floor_seconds(self, bytes_per_second: float, flops_per_second: float) -> float:
        """Returns the time a machine of that bandwidth and rate needs at least, were it to do both at once."""
        return max(self.bytes / bytes_per_second, self.flops / flops_per_second)


def stage_costs(s: Sizes) -> dict[str, Cost]:
    """Returns the cost of each stage.

    Args:
        s: the sizes.

    Returns:
        Costs by stage, in the order of a run: "prepare" (A_hat), "train" (all gradient steps), "propagate features"
        (rows of A_hat X), "messages", "propagate messages" (logits), "intervals".
    """
    matrix = s.e * (INDEX + REAL)
    p = (s.d + 1) * s.h + 2 * (s.h + 1)
    return {
        # Read A; write with loops; read twice for degrees and scaling; write.
        "prepare": Cost(5 * matrix, 6 * s.e),
        # Forward and the weights' gradient read the field's inputs once each; Adam's share is p alone.
        "train": Cost(s.steps * (2 * s.r * s.d + 6 * s.r * s.h + 10 * p) * REAL, s.steps * 4 * s.r * s.d * s.h),
        "propagate features": Cost(matrix + (s.e * s.d + s.n * s.d) * REAL, 2 * s.e * s.d),
        "messages": Cost(
            s.n * (s.groups * s.d + s.m + s.h + 2) * REAL,
            2 * s.n * s.d * (s.groups * s.m + s.h),
        ),
        "propagate messages": Cost(matrix + (2 * s.e + 2 * s.n) * REAL, 4 * s.e),
        "intervals": Cost(matrix + (s.e * s.m + 2 * s.n) * REAL, 2 * s.e * s.m),
    }


def memory_bytes(s: Sizes, *, messages_in_file: bool = False) -> int:
    """Returns about how much memory a run on a graph's folder takes beside interpreter and libraries (some 0.4 GB).

    Args:
        s: the sizes.
        messages_in_file: the messages are written to a file; then its pages and those of the features, which are given
            back before, are never in memory together.

    Returns:
        Bytes.
    """
    adjacency = 2 * s.e * (INDEX + REAL) + 16 * s.n  # A and A_hat
    per_node = 120 * s.n  # labels, posterior, logits, ends, probabilities, columns of a table
    columns = max(s.d, s.m) if messages_in_file else s.d + s.m
    return adjacency + s.n * columns * REAL + per_node
