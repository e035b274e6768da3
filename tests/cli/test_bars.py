"""The bars of the product on published graphs, by the command a user types; skipped where the data is not there."""

from __future__ import annotations

import json

import pytest

from calirare.datasets import dataset_table
from tests.helpers.command import call, rough_runs

AVAILABLE = {row.name for row in dataset_table() if row.available}


def report_of(name, tmp_path, *options):
    if name not in AVAILABLE:
        pytest.skip(f"{name} is not there: see `calirare datasets`")
    run = tmp_path / "run"
    with rough_runs():
        said = call("train", "--dataset", name, "--seed", 0, *options, "--out", run)
    assert said.code == 0, said.err
    return json.loads((run / "metrics.json").read_text())


@pytest.mark.slow
def test_cora(tmp_path):
    metrics = report_of("cora", tmp_path)
    balanced, population = metrics["report"]["balanced"], metrics["report"]["population"]
    assert balanced["recall"] >= 0.83
    assert balanced["macro_f1"] >= 0.81
    assert balanced["macro_ace"] <= 0.075
    assert balanced["ece"] <= 0.045
    assert population["ece"] <= 0.045
    assert population["nll"] < metrics["report"]["raw"]["nll"]
    assert metrics["graph"]["labels_trained_on"] == 640
    assert metrics["population_check"]["verdict"] in ("trust", "caution")
    assert metrics["choice"]["graph_gain"] > 0


@pytest.mark.slow
def test_citeseer(tmp_path):
    assert report_of("citeseer", tmp_path)["report"]["balanced"]["macro_ace"] <= 0.085
