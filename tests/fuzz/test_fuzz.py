"""A short turn of every fuzz target, in tests; `make fuzz` runs long ones."""

from __future__ import annotations

import numpy as np
import pytest

from tests.fuzz.targets import Targets

CASES = 60


@pytest.fixture(scope="module")
def targets(tmp_path_factory):
    return Targets(tmp_path_factory.mktemp("fuzz")).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", sorted(name.removeprefix("fuzz_") for name in dir(Targets) if name.startswith("fuzz_"))
)
def test_damaged_input_is_refused_or_sound(name, targets):
    refused = [targets[name](np.random.default_rng([1, case])) for case in range(CASES)]
    assert any(refused), "something was damaged"
