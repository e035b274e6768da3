"""A short turn of every fuzz target, in tests; `make fuzz` runs long ones."""

from __future__ import annotations

import numpy as np
import pytest

from tests.fuzz.targets import NAMES, targets_in

CASES = 20
SLOW = {"run", "score", "recalibrate", "folder", "prevalence", "calibrators", "run_facts", "slices", "tables"}


@pytest.fixture(scope="module")
def targets(tmp_path_factory):
    return targets_in(tmp_path_factory.mktemp("fuzz"))


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(NAMES))
def test_damaged_input_is_refused_or_sound(name, targets):
    cases = CASES // 2 if name in SLOW else CASES
    refused = [targets[name](np.random.default_rng([1, case])) for case in range(cases)]
    assert any(refused), "something was damaged"


# What long turns found, each mended: target, seed and number of the case.
FOUND = (
    ("measures", 2, 3511),
    ("measures", 2, 5126),
    ("run_facts", 2, 397),
    ("run_facts", 2, 459),
    ("slices", 2, 2994),
    ("predictions", 3, 1288),
    ("measures", 3, 15961),
    ("measures", 3, 16646),
    ("run_facts", 23, 401),
)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "seed", "case"), FOUND)
def test_what_was_found_stays_mended(name, seed, case, targets):
    targets[name](np.random.default_rng([seed, case]))
