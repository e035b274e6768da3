"""Draws go through about as many samples, however many there are at once."""

from __future__ import annotations

import pytest

from calirare._util.memory import DRAWS, LEAST, RESAMPLES, WORK, draws_for, resamples_for


@pytest.mark.parametrize(("of", "most"), [(resamples_for, RESAMPLES), (draws_for, DRAWS)])
def test_as_many_as_are_affordable(of, most):
    assert of(0) == of(WORK // most) == most
    assert of(2 * WORK // most) == most // 2
    assert of(10 * WORK) == LEAST
