"""Numbers as people write them, and patterns that Arrow knows too: pandas hands text to it as it sees fit."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from calirare.graph.tables import Table, node_cells

WRITTEN = {
    "English": (["$1,234.50", "$7", None, "$-12.5"], [1234.5, 7, np.nan, -12.5]),
    "codes": (["USD 1,234.50", "USD7", None, "USD -12.50"], [1234.5, 7, np.nan, -12.5]),
    "codes behind": (["12,50 EUR", "1.234,00 EUR", None, "3 EUR"], [12.5, 1234, np.nan, 3]),
    "Swiss": (["1'234", "1'000'000.5", None, "7"], [1234, 1000000.5, np.nan, 7]),
    "thousands": (["1,234", "12.5", None, "1,234,567"], [1234, 12.5, np.nan, 1234567]),
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


def test_a_column_of_them_is_numeric_and_a_note_says_so():
    table = Table(pd.DataFrame({"amount": ["1.234,5", "12", None]}), "nodes.csv")
    x, columns = node_cells.NodeCells(table).read(["amount"])
    assert (columns[0].kind, x[:2, 0].tolist(), table.faults) == ("numeric", [1234.5, 12], [])
    assert table.notes[0].startswith("'amount' is read as numbers, ")
