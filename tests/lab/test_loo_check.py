"""`calirare study loo-check`: a table, a picture and numbers that say the same."""

from __future__ import annotations

import json
import shutil

import pytest

from calirare_lab.studies import loo_check
from tests.helpers.command import assert_refused, call, succeed


@pytest.mark.slow
def test_table_picture_and_numbers(finished, tmp_path, monkeypatch):
    # Far from a minimum on so few steps, but this is about the table; the numbers' truth is tested beside `alo`.
    monkeypatch.setattr(loo_check, "MAX_STEPS", 40)
    monkeypatch.setattr(loo_check, "RETRAIN_STEPS", 15)

    folder = tmp_path / "run"
    shutil.copytree(finished[0], folder)
    words = ("study", "loo-check", "--run", folder, "--nodes", 4)
    said = succeed(*words, "--resume", tmp_path / "kept")
    out = said.out
    assert (folder / "loo_check.png").stat().st_size > 10_000
    numbers = json.loads((folder / "loo_check.json").read_text())
    rows = {row["method"]: row for row in numbers["methods"]}
    assert rows["alo"]["correlation"] > rows["paper"]["correlation"]
    assert len(numbers["truth"]) == len(numbers["labels"]) == 4
    assert numbers["unconverged"] == 1.0
    assert "note: 100% of the retrainings stood still with a gradient left" in out
    for name, row in rows.items():
        line = next(line for line in out.splitlines() if line.startswith(f"{name:<20}"))
        assert f"{row['correlation']:.3f}" in line
    assert "give --overwrite" in assert_refused(call(*words))


@pytest.mark.parametrize(("option", "value", "least"), [("--nodes", 2, 3), ("--jobs", 0, 1)])
def test_numbers_out_of_range(option, value, least):
    said = assert_refused(call("study", "loo-check", "--run", "r", option, value))
    assert f"study loo-check: {option} must be from {least}" in said
