"""The numbers that the memory of a leave-one-out depends on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from calirare._util.memory import BLOCK_BYTES
from calirare.curvature import Linearisation


@dataclass(frozen=True)
class Size:
    """The numbers that memory depends on.

    Attributes:
        bytes: of a number.
        m: labelled nodes.
        k: classes less one.
        p: parameters.
        n: nodes to evaluate.
        rows: nodes that the first layer reads there.
    """

    bytes: int
    m: int
    k: int
    p: int
    n: int
    rows: int

    @classmethod
    def of(cls, linearised: Linearisation, field: Any) -> Size:
        """Returns the size of leaving labels out with their effect at a field's nodes."""
        n, rows, k = field.nodes.numel(), field.rows[0].numel(), linearised.n_classes - 1
        return cls(linearised.logits.element_size(), linearised.n_nodes, k, linearised.n_parameters, n, rows)

    @property
    def dual(self) -> int:
        """Side of the dual system, m (k - 1)."""
        return self.m * self.k

    def change(self, n_models: int) -> int:
        """Returns the bytes of what the models change at every node."""
        return self.n * self.k * n_models * self.bytes


def closed_bytes(size: Size, form: str, n_models: int) -> int:
    """Returns an upper estimate of the memory of a closed form with the effect of some models at every node."""
    b, m, k, p, dual = size.bytes, size.m, size.k, size.p, size.dual
    change = size.change(n_models)
    if form == "gram":
        return change + size.n * k * dual * b + 2 * size.rows * m * b + 4 * dual * dual * 8 + BLOCK_BYTES
    if form == "primal":
        return change + (dual * (b + 8) + 2 * n_models * 8) * p + 3 * p * p * 8 + BLOCK_BYTES
    return change + (dual + 9 * m) * p * b + 3 * dual * dual * 8 + BLOCK_BYTES
