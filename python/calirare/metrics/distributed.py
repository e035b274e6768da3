"""Predictions of all processes in one place, for the measures whose parts do not add up."""

from __future__ import annotations

import torch

from calirare._util.arrays import Array, to_tensor


def gather(*arrays: Array, group: torch.distributed.ProcessGroup | None = None) -> tuple[torch.Tensor, ...]:
    """Rows of every process, in the order of ranks, on every process: any measure of them is that of the whole.

    Collective: every process of the group must call it, with arrays that differ in their number of rows alone. ECE, MCE
    and classwise ECE need less: `confidence_statistics(...).all_reduce()` sends a few sums in place of the rows.

    Args:
        *arrays: of one process [rows, ...], such as probabilities, labels and weights; the same number of rows, which
            may be 0. Tensors must lie where the group's backend can reach them (the GPU for nccl).
        group: None for the default process group.

    Returns:
        One tensor per array, [all rows, ...]. No derivative flows through it.

    Raises:
        TypeError: not numbers.
        ValueError: the arrays differ in their rows, or the processes in anything else.
        RuntimeError: torch.distributed is not initialised.
    """
    if not torch.distributed.is_available() or not torch.distributed.is_initialized():
        raise RuntimeError("gather: torch.distributed must be initialised (run under torchrun)")
    tensors = [to_tensor("gather", f"array {i}", array).detach() for i, array in enumerate(arrays)]
    forms = [str((t.dtype, tuple(t.shape[1:]))) if t.ndim else "a single number" for t in tensors]
    rows = [len(t) if t.ndim else -1 for t in tensors]
    found: list[tuple[list[int], list[str]]] = [([], [])] * torch.distributed.get_world_size(group)
    torch.distributed.all_gather_object(found, (rows, forms), group=group)
    # Checked on what all know, so that all raise together and none is left waiting.
    for rank, (counts, kinds) in enumerate(found):
        if kinds != found[0][1]:
            raise ValueError(f"gather: arrays must be alike on every process, got {found[0][1]} and {kinds} ({rank})")
        if len(set(counts)) > 1 or -1 in counts:
            raise ValueError(f"gather: arrays must have the same number of rows, got {counts} on process {rank}")
    return tuple(_concatenated(t, [counts[i] for counts, _ in found], group) for i, t in enumerate(tensors))


def _concatenated(mine: torch.Tensor, rows: list[int], group: torch.distributed.ProcessGroup | None) -> torch.Tensor:
    """All rows; every process sends as many, since not every backend takes unequal numbers."""
    sent = mine.to(torch.uint8) if mine.dtype == torch.bool else mine
    padded = sent.new_zeros((max(rows), *mine.shape[1:]))
    padded[: len(mine)] = sent
    received = [torch.empty_like(padded) for _ in rows]
    torch.distributed.all_gather(received, padded, group=group)
    return torch.cat([part[:n] for part, n in zip(received, rows, strict=True)]).to(mine.dtype)
