"""What fits into memory, said before it is taken."""

from __future__ import annotations

import resource
from pathlib import Path

import torch

from calirare._util.control_groups import UNLIMITED, bytes_left
from calirare._util.errors import InputError

SAFE_SHARE = 0.8  # of the free memory; the rest is for what an estimate does not see
BLOCK_BYTES = 200_000_000  # blocks of rows and directions, whatever the problem's size


def free_bytes(device: torch.device) -> int:
    """Returns the memory free on a device, in bytes; where that is the CPU what the machine and its limits leave."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    lines = Path("/proc/meminfo").read_text().splitlines() if Path("/proc/meminfo").exists() else []
    found = [line for line in lines if line.startswith("MemAvailable:")]
    machine = int(found[0].split()[1]) * 1024 if found else UNLIMITED
    return min(machine, bytes_left())


def peak_bytes() -> int:
    """Returns the largest resident set this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def check_memory(needed: int, limit: int | None, device: torch.device, remedy: str) -> None:
    """Refuses what will not fit.

    Args:
        needed: bytes.
        limit: bytes allowed; None: a share of what is free.
        device: where.
        remedy: the setting that would fit, as an imperative.

    Raises:
        InputError: it will not fit.
    """
    allowed = int(SAFE_SHARE * free_bytes(device)) if limit is None else limit
    if needed > allowed:
        said = f"about {needed / 1e9:.2f} GB are needed and {allowed / 1e9:.2f} GB are allowed"
        of, more = ("", "allow more memory") if limit is not None else (", a share of what is free", "free some memory")
        raise InputError(f"leave_one_out: {said}{of}: {remedy}, or {more}")
