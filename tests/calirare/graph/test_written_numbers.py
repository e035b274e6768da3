"""Numbers as people write them, and patterns that Arrow knows too: pandas hands text to it as it sees fit."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from calirare._util import text_tables
from calirare.graph.tables import name_faults, node_cells

WRITTEN = {
    "English": (["$1,234.50", "$7", None, "$-12.5"], [1234.5, 7, np.nan, -12.5]),
    "codes": (["USD 1,234.50", "USD7", None, "USD -12.50"], [1234.5, 7, np.nan, -12.5]),
    "codes behind": (["12,50 EUR", "1.234,00 EUR", None, "3 EUR"], [12.5, 1234, np.nan, 3]),
    "continental": (["12,50 €", "1.234,00 €", None, "3 €"], [12.5, 1234, np.nan, 3]),
    "narrow blanks": (["1\u202f234\u00a0€", "56\u00a0€", None, "7 €"], [1234, 56, np.nan, 7]),
    "losses": (["1,234.50", "(5.00)", None, "(1,000.25)"], [1234.5, -5, np.nan, -1000.25]),
    "losses of money": (["$12", "$(5.00)", None, "($7)"], [12, -5, np.nan, -7]),
    "per cent": (["5 %", "12.5%", None, "1\u00a0%"], [5, 12.5, np.nan, 1]),
}
KINDS = ["object", "str", "string[pyarrow]"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", WRITTEN)
def test_cells_are_read_whatever_holds_them(way, kind):
    cells, numbers = WRITTEN[way]
    assert np.array_equal(node_cells.written_numbers(pd.Series(cells, dtype=kind)), numbers, equal_nan=True)


@pytest.mark.parametrize(
    "cells", [["USD 1.50", "EUR 2.50"], ["ABC 123", "ABC 124"], ["USD", "USD 3"], ["1 USD 2"], ["(12)", "(13)"]]
)
def test_names_and_more_than_one_currency_are_no_numbers(cells):
    assert node_cells.written_numbers(pd.Series(cells)) is None


@pytest.mark.parametrize(
    "pattern",
    [
        node_cells.DRESSED,
        node_cells.LOSS,
        node_cells.WHITE,
        *(way[0] for way in node_cells.WAYS),
        text_tables.INERT,
        name_faults.WRITTEN_FLOAT,
        name_faults.SPREADSHEET,
    ],
)
def test_patterns_are_known_to_arrow(pattern):
    pc.match_substring_regex(pa.array(["text"]), pattern)
