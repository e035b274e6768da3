"""The calibration record's page says what its results files say; its comparisons are paired, rivals chosen alike."""

from __future__ import annotations

from typing import Any

import pytest


def _row(track: str, name: str, seed: int, value: float, split: int) -> dict:
    measures = {"nll": value, "brier": value, "ece": 1 - value}
    cell = {"dataset": "cora", "network": "gcn", "track": track, "map": name, "seed": seed}
    return cell | {"draw": {"split": split, "start": seed}} | measures


def test_the_best_rival_is_that_of_the_lowest_mean_by_each_measure(bench: Any) -> None:
    rows = list[dict]()
    for seed in range(3):
        rows += [_row("frozen", "neighbours", seed, 0.5 + 0.01 * seed, seed)]
        rows += [_row("frozen", "temperature", seed, 0.6 + 0.02 * seed, seed)]
        rows += [_row("peers", "gats", seed, 0.7 + 0.03 * seed, seed)]
        rows += [_row("frozen", "matrix", seed, 0.1, seed)]  # neither ours nor a rival
    rows += [_row("peers", "cagcn", 0, 0.0, 0)]  # one draw of three: not compared
    found = bench("record_pairs").pairs(rows)
    by = {pair["measure"]: pair for pair in found}
    assert set(by) == {"nll", "brier", "ece"}
    assert {pair["track"] for pair in found} == {"A"}
    assert by["nll"]["rival"] == "temperature"
    assert by["ece"]["rival"] == "gats"
    assert by["nll"]["difference"] == pytest.approx(-0.11)
    assert by["ece"]["difference"] == pytest.approx(0.22)
    assert by["nll"]["units"] == 3
    assert by["nll"]["p"] == pytest.approx(0.0027, abs=2e-4)  # t = .11 / (.01 / sqrt 3) = 19.05 with 2 degrees
