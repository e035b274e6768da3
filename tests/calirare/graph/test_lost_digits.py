"""Numbers that float32 cannot tell apart are noted, others are not."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from calirare import load_dataset
from calirare.graph.tables import Table
from calirare.graph.tables.node_cells import NodeCells

RNG = np.random.default_rng(0)
Z = RNG.normal(size=40)


def notes_of(tmp_path, values):
    pd.DataFrame({"node": range(40), "z": values, "label": np.arange(40) % 2}).to_csv(tmp_path / "n.csv", index=False)
    edges = pd.DataFrame({"source": range(39), "target": range(1, 40)})
    edges.to_csv(tmp_path / "e.csv", index=False)
    return [note for note in load_dataset(tmp_path / "e.csv", features=tmp_path / "n.csv").notes if "rounded" in note]


@pytest.mark.parametrize("values", [Z, Z + 1000, 1e6 * Z + 1.7e9, np.full(40, 1e8), np.full(40, 0.1), Z * 1e-30])
def test_columns_that_float32_tells_apart(tmp_path, values):
    assert notes_of(tmp_path, values) == []


@pytest.mark.parametrize("values", [Z + 1e8, 600 * Z + 1.7e9, np.round(1000 * Z) + 2.0**40])
def test_columns_that_lose_what_they_tell(tmp_path, values):
    (note,) = notes_of(tmp_path, values)
    assert note.startswith("nodes: 'z' is rounded by up to ")
    assert f"subtract {np.median(values):.10g} or so" in note


@pytest.mark.parametrize(("hours", "told"), [(1, True), (24 * 30, False)])
def test_times_that_float32_does_not_tell_apart(tmp_path, hours, told):
    times = pd.Timestamp("2026-01-01T12:00:07") + pd.to_timedelta(hours * RNG.random(40), "h")
    notes = notes_of(tmp_path, times.strftime("%Y-%m-%d %H:%M:%S"))
    assert [note.startswith("nodes: 'z' is rounded by up to 4") for note in notes] == [True] * told


def test_a_column_known_to_hold_names_is_not_read_as_numbers():
    table = Table(pd.DataFrame({"a": np.arange(4.0), "b": np.arange(4.0)}), "table")
    _, columns = NodeCells(table, {"b": "categorical"}).read(["a", "b"])
    assert [column.kind for column in columns] == ["numeric", "categorical"]
