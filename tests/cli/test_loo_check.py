"""`calirare loo-check`: a table, a picture and numbers that say the same."""

from __future__ import annotations

import json
import shutil

import pytest

from calirare._util.errors import InputError
from calirare.cli import loo_check
from tests.helpers.command import call


@pytest.mark.slow
def test_table_picture_and_numbers(finished, tmp_path, monkeypatch):
    # Far from a minimum on so few steps, but this is about the table; the numbers' truth is tested beside `alo`.
    monkeypatch.setattr(loo_check, "MAX_STEPS", 40)
    monkeypatch.setattr(loo_check, "RETRAIN_STEPS", 15)

    folder = tmp_path / "run"
    shutil.copytree(finished[0], folder)
    said = call("loo-check", "--run", folder, "--nodes", 4, "--resume", tmp_path / "kept")
    assert said.code == 0, said.err
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
    with pytest.raises(InputError, match="give --overwrite"):
        loo_check.run(folder, nodes=4)


def test_numbers_out_of_range(finished):
    with pytest.raises(InputError, match="--nodes must be at least 3"):
        loo_check.run(finished[0], nodes=2)
    with pytest.raises(InputError, match="--jobs must be at least 1"):
        loo_check.run(finished[0], jobs=0)
