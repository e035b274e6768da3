"""What every leave-one-out method returns, and the sizes that its memory depends on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from calirare._util.arrays import brief
from calirare._util.memory import BLOCK_BYTES
from calirare.curvature import Linearisation


@dataclass(frozen=True)
class Diagnostics:
    """How a leave-one-out was computed and how far it can be trusted.

    Attributes:
        method: such as "alo".
        form: how it was computed, such as "gram".
        damping: added to the curvature.
        damping_reason: why this one; filled in by `leave_one_out`.
        lowest_curvature: estimate of the smallest eigenvalue of the exact Hessian without damping, or None.
        solver: how the right-hand sides of an iterative solver ended; empty without one.
        sampling_error: relative error of what was estimated at random, or of a quantile of a subset; 0 for none.
        unconverged: share of retrainings whose gradient stayed above the tolerance, as it does at kinks of ReLU units.
        seconds: wall time.
        estimated_bytes: memory it was expected to need before it started.
        peak_bytes: growth of the process's largest resident set; 0 where nothing larger than before was needed.
    """

    method: str
    form: str
    damping: float
    damping_reason: str = ""
    lowest_curvature: float | None = None
    solver: str = ""
    sampling_error: float = 0.0
    unconverged: float = 0.0
    seconds: float = 0.0
    estimated_bytes: int = 0
    peak_bytes: int = 0


def models_of(m: int, chosen: Tensor) -> Tensor:
    """Returns the model without each of m labels, int64 [m]: c for label chosen[c], -1 for a label not chosen."""
    out = torch.full((m,), -1, dtype=torch.int64, device=chosen.device)
    out[chosen] = torch.arange(chosen.numel(), device=chosen.device)
    return out


@dataclass(frozen=True, eq=False)
class LooResult:
    """What leaving each labelled node out does to the logit differences z_c - z_0.

    Attributes:
        change: how node v's logits move in each leave-out model c, [n_v, k - 1, n_models].
        own: how node i's logits move when itself is left out, [m, k - 1].
        leverage: h_i, mean eigenvalue of the block of the hat matrix, float64 [m], in [0, 1); NaN where unknown.
        damping: mu, added to the curvature.
        model_of: the model that leaves node i out, int64 [m], -1 where none was computed; None: model i.
        diagnostics: how it was computed, or None.
        nodes: the nodes v, int64 [n_v], or None where unknown.
    """

    change: Tensor
    own: Tensor
    leverage: Tensor
    damping: float
    model_of: Tensor | None = field(default=None)
    diagnostics: Diagnostics | None = field(default=None)
    nodes: Tensor | None = field(default=None)

    __repr__ = brief

    def samples(self) -> tuple[Tensor, Tensor]:
        """Returns the labelled nodes that have a model (int64 [s], places) and the model of each (int64 [s])."""
        if self.model_of is None:
            every = torch.arange(self.own.shape[0], device=self.own.device)
            return every, every
        places = (self.model_of >= 0).nonzero().flatten()
        return places, self.model_of[places]


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
