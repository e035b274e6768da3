"""What is fuzzed: each target makes one case from a generator; anything but a refusal or a sound result is a finding.

A case may end in a refusal of the kind its target names, or in a result that its checks accept. All else is raised.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from tests.fuzz.files import Files
from tests.fuzz.operators import Operators
from tests.fuzz.requests import Requests
from tests.fuzz.runs import Runs
from tests.fuzz.values import NAMES as NAMES_AT_ONCE
from tests.fuzz.values import Values

Target = Callable[[np.random.Generator], int]  # how many cases were refused
GROUPS = (Files, Operators, Requests, Runs, Values)
NAMES = {
    name.removeprefix("fuzz_"): group for group in GROUPS for name in sorted(vars(group)) if name.startswith("fuzz_")
}
AT_ONCE = {"names": NAMES_AT_ONCE}  # cases of a call that are not one


def targets_in(folder: Path, names: tuple[str, ...] = tuple(NAMES)) -> dict[str, Target]:
    """Returns targets by name, each on files of its own under a folder; only the groups asked for are made ready."""
    made = {}
    for group in dict.fromkeys(NAMES[name] for name in names):
        place = folder / group.__name__.lower()
        place.mkdir()
        made[group] = group(place)
    return {name: getattr(made[NAMES[name]], f"fuzz_{name}") for name in names}
