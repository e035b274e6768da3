"""Whether jobs in one process leave something behind: growth per job with an interval, from readings after each job.

Allocators and caches warm up, make single steps and fluctuate. A leak goes on. It is reported where the lower end of
the 99 % interval is above a limit both in the first half of the jobs and in the second.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Z = 2.576  # a 99 % interval
NEAR = 2  # jobs of one kind are compared with the next two of it: few pairs have a single step between them
KIB = 1024


@dataclass(frozen=True)
class Reading:
    """What a process holds after a job, when its garbage is collected and free memory returned to the system.

    Attributes:
        kind: of the job; readings are compared with those after other jobs of this kind.
        in_use: bytes that the allocators have handed out.
        resident: bytes of its own memory that the system has given to the process.
        files: open ones.
        threads: of Python and of libraries.
    """

    kind: str
    in_use: int
    resident: int
    files: int
    threads: int


@dataclass(frozen=True)
class Held:
    """A quantity of readings: its name in words, its unit, how large that is, and the limit in units per job."""

    words: str
    unit: str
    size: int
    limit: float


# 16 KiB per job: a process that trains every ten minutes then takes less than 1 GiB more in a year. safetensors 0.8
# keeps 64 bytes of each tensor that it reads, 2 KiB and more per job. What the process takes from the system depends
# on how its memory is cut up as well: its limit is wider.
HELD = {
    "in_use": Held("memory in use", "KiB", KIB, 16),
    "resident": Held("memory of the process", "KiB", KIB, 64),
    "files": Held("the number of open files", "files", 1, 0.02),
    "threads": Held("the number of threads", "threads", 1, 0.02),
}
LEAST = 6  # readings of each kind, three in each half


def judge(readings: Sequence[Reading]) -> dict[str, Any]:
    """Returns each quantity's first and last reading and its growth per job [lower, slope, upper], and what leaks.

    Raises:
        ValueError: there are too few readings of a kind.
    """
    kinds = [reading.kind for reading in readings]
    if not kinds or min(kinds.count(kind) for kind in kinds) < LEAST:
        raise ValueError(f"at least {LEAST} readings of each kind are needed, got {len(kinds)} in all")
    found: dict[str, Any] = {"findings": []}
    for name, held in HELD.items():
        values = np.array([getattr(reading, name) for reading in readings]) / held.size
        lower, slope, upper = (round(float(end), 3) for end in slope_per_job(kinds, values))
        found[name] = {
            "unit": held.unit,
            "first_last": [round(float(values[i]), 1) for i in (0, -1)],
            "growth_per_job": [lower, slope, upper],
        }
        if leaks(kinds, values, held.limit):
            found["findings"].append(
                f"{held.words} grows by {slope:.3g} {held.unit} per job (99 % interval {lower:.3g} to {upper:.3g}, "
                f"limit {held.limit:g})"
            )
    return found


def leaks(kinds: Sequence[str], values: np.ndarray, limit: float) -> bool:
    """Returns whether values grow by more than the limit per job in each half of the jobs, with 99 % confidence."""
    half = len(kinds) // 2
    return all(slope_per_job(kinds[part], values[part])[0] > limit for part in (slice(half), slice(half, None)))


def slope_per_job(kinds: Sequence[str], values: np.ndarray) -> tuple[float, float, float]:
    """Returns the growth of values per job, between the ends of its 99 % interval.

    It is the median slope between two jobs of one kind (Theil-Sen) that are near each other. The interval is that of
    Sen (1968), by the variance of Kendall's S: the signs of two slopes with a job in common correlate by 1/3 where it
    is the earlier job of both or the later of both, and by -1/3 otherwise.
    """
    n, names = len(kinds), np.array(kinds)
    runs = [np.flatnonzero(names == name) for name in dict.fromkeys(kinds)]
    first, second = (np.concatenate(ends) for ends in zip(*(_near(run) for run in runs), strict=True))
    slopes = np.sort((values[second] - values[first]) / (second - first))
    before, after = np.bincount(first, minlength=n), np.bincount(second, minlength=n)
    together = before * (before - 1) + after * (after - 1) - 2 * before * after
    rank = math.floor((len(slopes) - Z * math.sqrt(len(slopes) + together.sum() / 3)) / 2)
    middle = float(np.median(slopes))
    return (float(slopes[rank - 1]), middle, float(slopes[-rank])) if rank >= 1 else (-math.inf, middle, math.inf)


def _near(run: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the earlier and the later job of each pair of a kind that is compared."""
    steps = range(1, NEAR + 1)
    return np.concatenate([run[:-step] for step in steps]), np.concatenate([run[step:] for step in steps])
