"""Names of nodes that break tables: they come back as they were, and start nothing where a table is opened."""

from __future__ import annotations

import csv
import io

import numpy as np
import pandas as pd
import pytest

from calirare._util.run_files import seal
from calirare.run.tables import inert, read_predictions, write_predictions

NAMES = [
    "a\rb",
    "c\nd",
    'say "x"',
    "e,f",
    "=1+1",
    "+2*3",
    "-2+3",
    "@sum",
    "'=x",
    "\tcmd",
    "-5",
    "plain",
    "ä\u2028",
    "'q",
]


def table(names: list[str]) -> pd.DataFrame:
    return pd.DataFrame({"node": names, "split": "test", "p": np.linspace(0, 1, len(names))})


@pytest.mark.parametrize("names", [NAMES, NAMES[1:]], ids=["carriage return", "without"])
def test_names_come_back_as_they_were(names, tmp_path):
    write_predictions(table(names), tmp_path)
    seal(tmp_path)
    found = read_predictions(tmp_path)
    assert found["node"].tolist() == names
    assert found["p"].dtype == np.float64
    rows = list(csv.reader(io.StringIO((tmp_path / "predictions.csv").read_bytes().decode(), newline="")))
    assert [len(row) for row in rows] == [3] * (len(names) + 1)
    assert pd.read_parquet(tmp_path / "predictions.parquet")["node"].tolist() == names


def test_no_name_is_a_formula():
    shown = inert(table(NAMES))["node"]
    for before, now in zip(NAMES, shown, strict=True):
        assert now == before or now == "'" + before
        assert now == "-5" or now[0] not in "=+-@\t\r", before


def test_numbers_stay():
    numbers = table(["1", "2"]).assign(node=[1, -2])
    assert inert(numbers) is numbers


def test_the_name_of_a_class_is_no_formula_either():
    shown = inert(pd.DataFrame({"node": [1, 2], "given": ["=HYPERLINK(1)", "fine"], "reason": ["=", "-"]}))
    assert shown["given"].tolist() == ["'=HYPERLINK(1)", "fine"]
    assert shown["node"].tolist() == [1, 2]
