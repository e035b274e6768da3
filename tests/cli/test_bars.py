"""The bars of the product on a published graph, by the command a user types; skipped where the data is not there.

Other published graphs are measured by `benchmarks/bench_record.py`.
"""

from __future__ import annotations

import json

import pytest

from calirare.datasets import dataset_table
from tests.helpers.command import succeed


@pytest.mark.slow
def test_cora(tmp_path):
    if not any(row.name == "cora" and row.available for row in dataset_table()):
        pytest.skip("cora is not there: see `calirare datasets`")
    succeed("train", "--dataset", "cora", "--seed", 0, "--out", tmp_path / "run")
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    balanced, population = metrics["report"]["balanced"], metrics["report"]["population"]
    assert balanced["recall"] >= 0.83
    assert balanced["macro_f1"] >= 0.81
    assert balanced["macro_ace"] <= 0.075
    assert balanced["ece"] <= 0.045
    assert population["ece"] <= 0.045
    assert population["nll"] < metrics["report"]["raw"]["nll"]
    assert metrics["graph"]["labels_trained_on"] == 640
    assert metrics["verdict"]["answer"] == "calibrated"
    assert metrics["choice"]["graph_gain"] > 0
