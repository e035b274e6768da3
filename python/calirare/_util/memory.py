"""What is affordable: memory, and how many resamples of data."""

from __future__ import annotations

import resource
from pathlib import Path

import torch

from calirare._util.errors import InputError

SAFE_SHARE = 0.8  # of the free memory; the rest is for what an estimate does not see
BLOCK_BYTES = 200_000_000  # blocks of rows and directions, whatever the problem's size
ROOT, OWN, STATM = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup"), Path("/proc/self/statm")
UNLIMITED = 2**62
# Of version 2 and of version 1: folder below the root, files of limit and use, and what of the use is given up at need.
FILES = (
    ("", "", "memory.max", "memory.current", "inactive_file"),
    ("memory", "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


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
        needs = f"about {needed / 1e9:.2f} GB are needed and {allowed / 1e9:.2f} GB are allowed"
        of, more = ("", "allow more memory") if limit is not None else (", a share of what is free", "free some memory")
        raise InputError(f"leave_one_out: {needs}{of}: {remedy}, or {more}")


def bytes_left() -> int:
    """Returns the bytes that a container, a cluster's job or `ulimit` leaves this process, 2^62 without a limit."""
    return max(0, min(_of_groups(), _of_process()))


def _of_groups() -> int:
    """Returns what the control groups leave, this process's own and those around it."""
    lines = _read(OWN).splitlines()
    left = [UNLIMITED]
    for line in lines:
        _, controllers, path = line.split(":", 2)
        for controller, folder, *names in FILES:
            if controller in controllers.split(","):
                top = ROOT / folder
                here = top / path.strip("/")
                left += [_of_group(each, *names) for each in (here, *here.parents) if each.is_relative_to(top)]
    return min(left)


def _of_group(folder: Path, limit: str, use: str, reclaimed: str) -> int:
    """Returns what one group leaves; files that were read and may be dropped from memory do not count as used."""
    most, used = _read(folder / limit).strip(), _read(folder / use).strip()
    if not (most.isdigit() and used.isdigit()):  # "max", or the file is not there
        return UNLIMITED
    facts = dict(line.split() for line in _read(folder / "memory.stat").splitlines())
    return int(most) - int(used) + int(facts.get(reclaimed, 0))


def _of_process() -> int:
    """Returns the address space that `ulimit -v` leaves."""
    most = resource.getrlimit(resource.RLIMIT_AS)[0]
    if most == resource.RLIM_INFINITY:
        return UNLIMITED
    return int(most) - int((_read(STATM) or "0").split()[0]) * resource.getpagesize()


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


WORK, RESAMPLES, DRAWS, LEAST = 20_000_000, 1000, 200, 50


def resamples_for(samples: int) -> int:
    """Returns how many resamples of an interval take about a second."""
    return max(LEAST, min(RESAMPLES, WORK // max(samples, 1)))


def draws_for(samples: int) -> int:
    """Returns how many simulations of a perfect model take about a second; with k classes a row counts as k samples."""
    return max(LEAST, min(DRAWS, WORK // max(samples, 1)))
