"""The part of a graph that the logits of some nodes depend on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from calirare_ext._checks import check_index, check_shape, dtype_name
from calirare_ext.csr import Csr
from calirare_ext.inputs import Factored, Inputs, as_matrix, rows_of_inputs

FEW = 16  # columns of a matrix for each entry of a cut from which its entries are sorted, and not its columns marked


@dataclass(frozen=True, eq=False)
class ReceptiveField:
    """What an L-layer graph convolution must compute to know the logits of the given nodes, and nothing else.

    Rows of layer l are the nodes whose hidden state is needed after l layers; layer L's rows are the given nodes.
    Computing on the field is exact: it leaves out only what the logits do not depend on.

    Attributes:
        rows: int64 node ids of the rows of layers 1 .. L.
        features: (A_hat X) at the rows of layer 1, [r_1, d], dense, sparse or by its factors.
        blocks: A_hat cut to [rows of layer l, rows of layer l - 1], for l = 2 .. L.

    Raises:
        TypeError: the rows of a layer are not int64.
        ValueError: there is no layer, or rows, inputs and blocks do not fit together.
    """

    rows: tuple[Tensor, ...]
    features: Inputs
    blocks: tuple[Csr, ...]
    _cache: dict[str, Any] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        """Checks that the parts fit together."""
        op = "ReceptiveField"  # asks nothing of `inputs`: factors would be multiplied for it
        if not self.rows or len(self.blocks) != len(self.rows) - 1:
            raise ValueError(f"{op}: blocks must be one fewer than layers, got {len(self.blocks)} of {len(self.rows)}")
        device = self.features.device
        for number, rows in enumerate(self.rows, 1):
            check_index(op, f"rows {number}", rows, torch.int64, device)
        if len(self.features.shape) != 2 or self.features.shape[0] != self.rows[0].numel():
            raise ValueError(
                f"{op}: inputs must have {self.rows[0].numel()} rows, those of layer 1, got {list(self.features.shape)}"
            )
        for block, below, rows in zip(self.blocks, self.rows[:-1], self.rows[1:], strict=True):
            if block.shape != (rows.numel(), below.numel()):
                raise ValueError(
                    f"{op}: a block must be {(rows.numel(), below.numel())} as the rows of its layers are, got "
                    f"{block.shape}"
                )

    def __getstate__(self) -> dict[str, Any]:
        """Leaves out, in copies and files, what was computed from the field."""
        return {**self.__dict__, "_cache": {}}

    @property
    def inputs(self) -> Tensor | Csr:
        """(A_hat X) at the rows of layer 1 as one matrix, [r_1, d]; factors are multiplied once and that is kept."""
        return as_matrix(self.features)

    @property
    def n_layers(self) -> int:
        """Number of layers."""
        return len(self.rows)

    @property
    def nodes(self) -> Tensor:
        """The nodes whose logits are computed, in the order given."""
        return self.rows[-1]


def field_of_propagated(a_hat: Csr, propagated: Inputs, nodes: Tensor, n_layers: int) -> ReceptiveField:
    """Returns what `receptive_field` does where A_hat X is known for all nodes.

    Args:
        a_hat: propagation matrix [n, n].
        propagated: A_hat X [n, d], dense, sparse or by its factors.
        nodes: int64 [m], distinct node ids.
        n_layers: number of layers, >= 1.
    """
    rows, blocks = rows_and_blocks(a_hat, propagated, nodes, n_layers)
    return ReceptiveField(rows, rows_at(propagated, rows[0]), blocks)


def rows_and_blocks(a_hat: Csr, x: Inputs, nodes: Tensor, n_layers: int) -> tuple[tuple[Tensor, ...], tuple[Csr, ...]]:
    """Returns the rows of layers 1 .. L and the blocks between them."""
    n = a_hat.n_rows
    if a_hat.n_cols != n:
        raise ValueError(f"receptive_field: a_hat must be square, got shape {list(a_hat.shape)}")
    if n_layers < 1:
        raise ValueError(f"receptive_field: n_layers must be at least 1, got {n_layers}")
    if nodes.dtype != torch.int64:
        raise TypeError(f"receptive_field: nodes must be int64, got {dtype_name(nodes.dtype)}")
    check_shape("receptive_field", "nodes", nodes, (None,))
    if x.shape[0] != n:
        raise ValueError(f"receptive_field: x must have {n} rows, one per node, got {x.shape[0]}")
    if nodes.numel() and (int(nodes.min()) < 0 or int(nodes.max()) >= n):
        raise ValueError(f"receptive_field: nodes must be in [0, {n}), got {int(nodes.min())} to {int(nodes.max())}")
    if torch.unique(nodes).numel() != nodes.numel():
        raise ValueError(f"receptive_field: nodes must be distinct, got {nodes.numel()} ids with repetitions")
    rows = [nodes]
    blocks: list[Csr] = []
    for _ in range(n_layers - 1):
        block, below = cut(a_hat, rows[0])
        rows.insert(0, below)
        blocks.insert(0, block)
    return tuple(rows), tuple(blocks)


def part_of_field(field: ReceptiveField, places: Tensor) -> ReceptiveField:
    """Returns the receptive field of some of a field's nodes.

    Args:
        field: of all of them.
        places: int64 [m], distinct places among `field.nodes`.
    """
    rows, blocks, there = [field.nodes[places]], list[Csr](), places
    for block, below in zip(reversed(field.blocks), reversed(field.rows[:-1]), strict=True):
        own, there = cut(block, there)
        blocks.insert(0, own)
        rows.insert(0, below[there])
    return ReceptiveField(tuple(rows), rows_at(field.features, there), tuple(blocks))


def rows_at(inputs: Inputs, rows: Tensor) -> Inputs:
    """Returns the inputs at some rows; of factors with the columns that these do not touch left out."""
    if isinstance(inputs, Factored):
        block, below = cut(inputs.a, rows)
        return Factored(block, rows_at(inputs.x, below))
    everything = rows.numel() == inputs.shape[0] and bool(
        (rows == torch.arange(rows.numel(), device=rows.device)).all()
    )
    if everything:
        return inputs.contiguous() if isinstance(inputs, Tensor) else inputs
    found = rows_of_inputs(inputs, rows)
    return found.contiguous() if isinstance(found, Tensor) else found


def cut(a_hat: Csr, rows: Tensor) -> tuple[Csr, Tensor]:
    """Returns A at the given rows with its columns renumbered, and what the columns stand for, ascending int64."""
    block = a_hat.select_rows(rows)
    if block.nnz * FEW < a_hat.n_cols:
        below, number = torch.unique(block.indices.long(), return_inverse=True)
        return Csr.unchecked(block.indptr, number.to(torch.int32), block.values, below.numel()), below
    used = torch.zeros(a_hat.n_cols, dtype=torch.bool, device=rows.device)
    used[block.indices.long()] = True
    below = used.nonzero().squeeze(1)
    number = torch.cumsum(used, 0) - 1
    return Csr.unchecked(block.indptr, number[block.indices.long()].to(torch.int32), block.values, below.numel()), below
