"""What `calirare train` writes and says, that it never spoils what is there, and that a run can be repeated."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import yaml

from calirare_lab.published import dataset_table
from tests.helpers.command import QUICK, call, few_candidates, succeed

FILES = {
    "files.json",
    "config.yaml",
    "metrics.json",
    "predictions.csv",
    "predictions.parquet",
    "review.csv",
    "model.safetensors",
    "precision_recall.png",
    "p_rare.png",
    "log.txt",
}
COLUMNS = "node,split,y,p_rare,p_balanced,p_raw,alert,threshold,prediction,confidence,p_correct,lower,upper,ice,ice_raw"


def metrics_of(folder: Path) -> dict:
    return json.loads((folder / "metrics.json").read_text())


@pytest.fixture
def table(finished):
    return pd.read_csv(finished[0] / "predictions.csv")


def test_the_files_are_those_promised_and_no_more(finished):
    folder, said = finished
    assert {path.name for path in folder.iterdir()} == FILES
    assert [path.name for path in folder.parent.iterdir()] == ["full"]
    for name in FILES:
        assert (folder / name).stat().st_size > 100, name
        assert (folder / name).stat().st_mode & 0o044 == 0o044, f"{name} may be read by others"
        assert str(folder / name) in said.out or name == "files.json"
    for name in (name for name in FILES if name.endswith(".png")):
        assert (folder / name).read_bytes().startswith(b"\x89PNG")


def test_the_columns_are_those_promised(finished, table):
    assert (finished[0] / "predictions.csv").read_text().splitlines()[0] == COLUMNS
    assert len(table) == 260
    assert table["node"].tolist() == list(range(260))
    assert table.notna().all().all()


def test_metrics_follow_from_the_predictions(finished):
    folder, _ = finished
    metrics, exact = metrics_of(folder), pd.read_parquet(folder / "predictions.parquet")
    test = exact[exact["split"] == "test"]
    y = torch.tensor(test["y"].to_list())
    assert metrics["n_judged"] == len(test) == 100
    assert metrics["n_judged_rare"] == int((test["y"] == 1).sum())
    for column, side in (("p_raw", "raw"), ("p_balanced", "balanced"), ("p_rare", "population")):
        p1 = torch.tensor(test[column].to_list())
        report = metrics["report"][side]
        predicted = (p1 > 0.5).long()
        hits = int(((predicted == 1) & (y == 1)).sum())
        assert report["recall"] == pytest.approx(hits / int((y == 1).sum()), rel=1e-6, abs=0)
        nll = -float(torch.where(y == 1, p1, 1 - p1).double().log().mean())
        assert report["nll"] == pytest.approx(nll, rel=1e-5, abs=0)
        assert report["brier"] == pytest.approx(float((p1 - y).double().square().mean()), rel=1e-5, abs=0)
    for column, side in (("ice_raw", "raw"), ("ice", "balanced")):
        assert metrics["eice"][side] == pytest.approx(exact[column].astype(np.float64).mean(), rel=1e-6, abs=0)


def test_metrics_report_both_targets_and_hold_no_time(finished):
    metrics = metrics_of(finished[0])
    assert set(metrics["report"]) == {"raw", "balanced", "population"}
    names = set(metrics["report"]["raw"])
    assert {"recall", "macro_f1", "ace_minority", "macro_ace", "ece", "mce", "nll", "brier"} <= names
    assert {name for name in names if name.endswith("_noise_floor")}
    assert metrics["target"] == "balanced"
    assert metrics["epochs"] == 100
    assert metrics["agreement"]["verdict"] in ("trust", "caution", "do not trust")
    assert not re.search(r"\bseconds?\b|\btime\b", json.dumps(metrics))


def test_the_summary_is_short_and_has_its_blocks(graph_file, tmp_path):
    run = tmp_path / "run"
    said = succeed("train", "--dataset", graph_file, *QUICK, "--out", run, report=True)
    lines = said.out.splitlines()
    assert len(lines) <= 25
    assert max(len(line) for line in lines if str(tmp_path) not in line) <= 80
    found = [line.split()[0] for line in lines if line[:1].isupper()]
    assert [word for word in found if word.isupper()] == ["CALIBRATION", "DETECTION", "ALERTS"]
    assert lines[-2:] == [f"  calirare review {run}", f"  open {run / 'report.html'}"]
    assert "<html" in (run / "report.html").read_text()
    again = call("train", "--dataset", graph_file, *QUICK, "--out", run, "--overwrite")
    assert again.code == 0, "the report is of the run, which --overwrite may replace"
    assert not (run / "report.html").exists()
    assert again.out.splitlines()[-1] == f"  calirare report {run}"


def test_the_config_is_resolved(finished, graph_file):
    config = yaml.safe_load((finished[0] / "config.yaml").read_text())
    data, training = config["data"], config["training"]
    assert data["dataset"] == str(graph_file)
    assert (data["label_rate"], data["split"], data["rare_class"]) == (None, "public", "1")
    assert (training["epochs"], config["calibration"]["folds"], config["loo"]["method"]) == (100, 2, "alo")
    assert (config["device"], config["seed"], config["method"]) == ("cpu", 0, "jackknife")


SAME = ("config.yaml", "metrics.json", "predictions.csv", "predictions.parquet", "model.safetensors")


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        ("--model", "gcn", "--epochs", "auto", "--folds", "0", "--calibrate-for", "population"),
        ("--split", "random", "--label-rate", "15", "--seed", "4", "--epochs", "auto", "--folds", "2"),
    ],
    ids=["auto epochs", "average of a random split"],
)
def test_a_run_repeats_from_its_own_config(options, graph_file, tmp_path, monkeypatch):
    monkeypatch.setattr("calirare.run.left_out.MAX_EPOCHS", 30)
    monkeypatch.setattr("calirare.run.left_out.CHECKPOINT_EVERY", 10)
    with few_candidates():
        succeed("train", "--dataset", graph_file, *options, "--out", tmp_path / "a")
        monkeypatch.undo()
        said = call("train", "--config", tmp_path / "a" / "config.yaml", "--out", tmp_path / "b")
    assert said.code == 0, said.err
    for name in SAME:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes(), name


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
