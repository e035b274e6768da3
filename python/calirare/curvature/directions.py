"""How logits change when the parameters move along given directions: linearised, or the network evaluated there."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from calirare.curvature.module_tape import ModuleTape, Tape, Where
from calirare_ext import GcnTape, ReceptiveField, gcn_forward, move_logits, record

Forward = Literal["linearised", "full"]
BLOCK_NUMBERS = 16_000_000  # numbers in one block of directions


def change_along(tape: Tape, everywhere: Where, directions: Tensor, forward: Forward = "linearised") -> Tensor:
    """Returns how the logit differences at the nodes everywhere change along each direction.

    Args:
        tape: the network at its parameters.
        everywhere: receptive field of the nodes v; of a module the nodes themselves.
        directions: [b, p], changes of the parameters.
        forward: "linearised": J v; "full": z(theta + v) - z(theta).

    Returns:
        [n_v, k - 1, b].

    Raises:
        ValueError: `forward` is unknown.
    """
    if forward not in ("linearised", "full"):
        raise ValueError(f"change_along: forward must be linearised or full, got {forward!r}")
    if isinstance(tape, ModuleTape):
        return _of_module(tape, everywhere, directions, forward)
    assert isinstance(everywhere, ReceptiveField)
    n, b = everywhere.nodes.numel(), directions.shape[0]
    out = torch.empty(n, tape.n_classes - 1, b, dtype=directions.dtype, device=directions.device)
    if forward == "full":
        start = _differences(gcn_forward(everywhere, tape.layers))
        for j in range(b):
            out[:, :, j] = _differences(gcn_forward(everywhere, moved_layers(tape, directions[j]))) - start
        return out
    none = torch.zeros(n, dtype=torch.int64, device=tape.logits.device)
    there = record(everywhere, tape.layers, none)
    rows = max(x.numel() for x in everywhere.rows) * max(weight.shape[1] for weight, _ in tape.layers)
    step = max(1, BLOCK_NUMBERS // max(rows, directions.shape[1]))
    for start_at in range(0, b, step):
        moved = move_logits(there, directions[start_at : start_at + step])  # [n, b, k]
        out[:, :, start_at : start_at + step] = (moved[:, :, 1:] - moved[:, :, :1]).transpose(1, 2)
    return out


def _of_module(tape: ModuleTape, nodes: Where, directions: Tensor, forward: Forward) -> Tensor:
    assert isinstance(nodes, Tensor)
    return tape.change_after(nodes, directions) if forward == "full" else tape.change_along(nodes, directions)


def moved_layers(tape: GcnTape, direction: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Returns the layers of theta + direction ([p])."""
    layers, start = [], 0
    for weight, bias in tape.layers:
        middle, end = start + weight.numel(), start + weight.numel() + bias.numel()
        layers.append((weight + direction[start:middle].view_as(weight), bias + direction[middle:end]))
        start = end
    return layers


def _differences(logits: Tensor) -> Tensor:
    return logits[:, 1:] - logits[:, :1]
