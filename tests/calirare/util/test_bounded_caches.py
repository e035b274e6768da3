"""What is remembered of a user's data has a bound: a service reads many tables."""

from __future__ import annotations

import pytest

from calirare.calibration import prior_platt
from calirare.graph import columns


@pytest.mark.parametrize("remembers", [columns.default_names, columns.number_columns, prior_platt._log_ratios])
def test_caches_of_data_have_a_bound(remembers):
    assert remembers.cache_parameters()["maxsize"] is not None
