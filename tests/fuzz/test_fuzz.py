"""A short turn of every fuzz target, in tests; `make fuzz` runs long ones."""

from __future__ import annotations

import numpy as np
import pytest

from tests.fuzz.targets import NAMES, targets_in

CASES = 60
SLOW = {"run", "score", "recalibrate", "explain", "folder", "prevalence", "calibrators", "run_facts", "slices"}


@pytest.fixture(scope="module")
def targets(tmp_path_factory):
    return targets_in(tmp_path_factory.mktemp("fuzz"))


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(NAMES))
def test_damaged_input_is_refused_or_sound(name, targets):
    cases = CASES // 3 if name in SLOW else CASES
    refused = [targets[name](np.random.default_rng([1, case])) for case in range(cases)]
    assert any(refused), "something was damaged"
