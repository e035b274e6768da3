"""What a container, a job of a cluster or `ulimit` leaves of the machine's memory."""

from __future__ import annotations

import resource
from pathlib import Path

ROOT, OWN, STATM = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup"), Path("/proc/self/statm")
UNLIMITED = 2**62
# Of version 2 and of version 1: folder below the root, files of limit and use, and what of the use is given up at need.
FILES = (
    ("", "", "memory.max", "memory.current", "inactive_file"),
    ("memory", "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


def bytes_left() -> int:
    """Returns the bytes that the tightest limit on this process leaves, 2^62 where there is none."""
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
