"""How much memory a leave-one-out will take, said before it is taken."""

from __future__ import annotations

from pathlib import Path

import torch

from calirare._util.errors import InputError
from calirare.curvature.module_tape import Tape, Where, count
from calirare_ext import Csr, GcnTape, ReceptiveField

SAFE_SHARE = 0.8  # of the free memory; the rest is for what the estimate does not see
BLOCK_BYTES = 200_000_000  # blocks of rows and directions, whatever the problem's size


def estimate_bytes(method: str, form: str, tape: Tape, everywhere: Where, n_models: int) -> int:
    """Returns an upper estimate of the memory a method allocates, in bytes.

    Args:
        method: of `leave_one_out`, or "fused": `leave_one_out.evaluate`, or "left_out": its directions alone.
        form: the form or solver.
        tape: the network at the labelled nodes.
        everywhere: receptive field of the nodes v; of a module the nodes themselves.
        n_models: leave-one-out models whose effect on every node is wanted.

    Returns:
        Bytes.
    """
    size = tape.logits.element_size()
    k, p = tape.n_classes - 1, tape.n_parameters
    m, n = tape.n_nodes, count(everywhere)
    dual = m * k
    change = n * k * n_models * size
    rows_below = everywhere.rows[0].numel() if isinstance(everywhere, ReceptiveField) else n
    if method in ("fused", "left_out"):
        primal = form == "primal" or (form == "auto" and p < dual)
        solved = 3 * p * p * 8 + (dual * (size + 8) + 2 * n_models * 8) * p if primal else 4 * m * m * 8
        sparse = isinstance(tape, GcnTape) and isinstance(tape.field.inputs, Csr) and tape.logits.device.type == "cpu"
        factored = sparse and not primal and p >= rows_below  # directions stay in factors, see `left_out`
        models = (2 * m if factored else 3 * p) * n_models * size + solved + BLOCK_BYTES
        if method == "left_out":
            return models
        assert isinstance(tape, GcnTape)  # no change of any logit: messages, hidden states and both ends
        hidden = tape.layers[0][0].shape[1]
        return (rows_below * (n_models + 2 * hidden) + 4 * n) * size + models
    if method == "retrain":
        return change + 100 * p * size + BLOCK_BYTES
    if form == "steps":
        own = tape.field.rows[0].numel() * tape.layers[0][0].shape[0] if isinstance(tape, GcnTape) else dual * p
        return change + (3 * own + 60 * p) * size + 5 * dual * dual * 8 + 3 * BLOCK_BYTES
    if form == "kernel":
        return 2 * rows_below * m * size + 4 * dual * dual * 8 + BLOCK_BYTES
    if form == "spectrum":
        return dual * p * (size + 3 * 8) + 4 * p * p * 8 + BLOCK_BYTES
    if form == "gram":
        return change + n * k * dual * size + 2 * rows_below * m * size + 4 * dual * dual * 8 + BLOCK_BYTES
    if form == "primal":
        return change + (dual * (size + 8) + 2 * n_models * 8) * p + 3 * p * p * 8 + BLOCK_BYTES
    if form == "randomised":
        return 200 * (6 * p + 4 * m * (k + 1)) * size + BLOCK_BYTES
    if form == "dense":
        return change + 4 * p * p * 8 + 3 * m * p * size + BLOCK_BYTES
    if form == "lowrank":
        assert isinstance(tape, GcnTape)
        wide = dual + 2 * k * (tape.layers[0][0].shape[1] if len(tape.layers) > 1 else 0)
        return change + (2 * wide + 3 * dual) * p * size + 5 * wide * wide * 8 + BLOCK_BYTES
    columns = dual if method == "newton" else m
    return change + (dual + 9 * columns) * p * size + 3 * dual * dual * 8 + BLOCK_BYTES


def free_bytes(device: torch.device) -> int:
    """Returns the memory free on a device, in bytes; of the machine where the device is the CPU."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    lines = Path("/proc/meminfo").read_text().splitlines() if Path("/proc/meminfo").exists() else []
    found = [line for line in lines if line.startswith("MemAvailable:")]
    return int(found[0].split()[1]) * 1024 if found else 2**62


def check_memory(needed: int, limit: int | None, device: torch.device, remedy: str) -> None:
    """Refuses what will not fit.

    Args:
        needed: bytes, from `estimate_bytes`.
        limit: bytes allowed; None: a share of what is free.
        device: where.
        remedy: the setting that would fit, as an imperative.

    Raises:
        InputError: it will not fit.
    """
    allowed = int(SAFE_SHARE * free_bytes(device)) if limit is None else limit
    if needed > allowed:
        raise InputError(
            f"leave_one_out: about {needed / 1e9:.2f} GB are needed and {allowed / 1e9:.2f} GB are allowed: {remedy}"
        )
