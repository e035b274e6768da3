"""Tables of measures: what they show of few samples."""

from __future__ import annotations

import numpy as np
import pytest

from calirare._util.measure_tables import detection_table
from calirare.metrics import detection_report


@pytest.mark.parametrize(("n", "shown"), [(73, False), (100, True)])
def test_a_budget_of_less_than_a_node_is_not_shown(n, shown):
    y = (np.arange(n) % 9 == 0).astype(int)
    table = detection_table(detection_report(y, np.linspace(0, 1, n), n_draws=20))
    assert any("top 1 %" in cell for cell in table.columns[0].cells) is shown
    assert "AUPRC" in table.columns[0].cells
