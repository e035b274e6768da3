"""What `calirare train` writes and says, that it never spoils what is there, and that a run can be repeated."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from safetensors import safe_open

from calirare._util.output import fresh_folder
from calirare.graph import Graph
from calirare.run import outcome as outcome_module
from tests.helpers.command import QUICK, assert_one_sentence, call

FILES = {
    "files.json",
    "config.yaml",
    "metrics.json",
    "predictions.csv",
    "predictions.parquet",
    "review.csv",
    "model.safetensors",
    "reliability.png",
    "intervals.png",
    "precision_recall.png",
    "p_rare.png",
    "log.txt",
}
COLUMNS = (
    "node,split,y,p_rare,p_balanced,p_raw,alert,threshold,prediction,confidence,lower,upper,uncertainty,ice,ice_raw"
)
# CSV numbers have seven significant digits.
CSV_ULP = 1e-6


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


def test_the_columns_mean_what_they_say(finished, graph_file, table):
    graph = Graph.from_npz(graph_file)
    assert np.array_equal(table["y"], graph.y.numpy())
    for part in ("train", "val", "test"):
        assert np.array_equal(np.flatnonzero(table["split"] == part), getattr(graph.split, part).numpy())
    assert (table["split"] == "unused").sum() == 10
    p = table["p_balanced"]
    assert p.between(0, 1).all()
    assert table["p_raw"].between(0, 1).all()
    assert np.array_equal(table["prediction"], (p > 0.5).astype(int))
    assert np.array_equal(table["alert"], (table["p_rare"] >= 0.5).astype(int))
    assert (table["threshold"] == 0.5).all()
    assert (table["confidence"] - np.maximum(p, 1 - p)).abs().max() <= CSV_ULP
    # The uncertainty is P(the prediction is right) for the population, ICE its distance to the row's confidence.
    raw = table["p_raw"]
    assert (table["ice"] - (table["uncertainty"] - table["confidence"]).abs()).abs().max() <= CSV_ULP
    same = table["prediction"] == (raw > 0.5)
    own = table["uncertainty"].where(same, 1 - table["uncertainty"])
    assert (table["ice_raw"] - (own - np.maximum(raw, 1 - raw)).abs()).abs().max() <= CSV_ULP
    map_ = metrics_of(finished[0])["calibrators"]["population"]["map"]
    scores = map_["scale"] * np.log(raw / (1 - raw)) + map_["bias"][1] - map_["bias"][0]
    right = 1 / (1 + np.exp(np.where(table["prediction"] == 1, -scores, scores)))
    assert np.abs(table["uncertainty"] - right).max() < 1e-3, "fitted on float32 leave-one-out logits"
    assert (table["lower"] <= table["upper"]).all()
    assert len(np.unique(p)) > 200, "the network tells nodes apart"


def test_parquet_holds_the_same_as_csv(finished, table):
    parquet = pd.read_parquet(finished[0] / "predictions.parquet")
    assert list(parquet.columns) == COLUMNS.split(",")
    for name in ("node", "split", "y", "alert", "prediction"):
        assert parquet[name].tolist() == table[name].tolist()
    for name in (
        "p_rare",
        "p_balanced",
        "p_raw",
        "threshold",
        "confidence",
        "lower",
        "upper",
        "uncertainty",
        "ice",
        "ice_raw",
    ):
        exact = parquet[name].to_numpy(dtype=np.float64)
        # Half a unit of the seventh digit.
        assert (np.abs(exact - table[name]) <= 5e-7 * np.abs(exact)).all(), name


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


def test_the_summary_says_what_calibration_did(finished):
    folder, said = finished
    report = metrics_of(folder)["report"]
    for side, name in (("raw", "before"), ("balanced", "balanced *"), ("population", "population")):
        assert name in said.out
        assert f"{report[side]['macro_f1']:.3f}" in said.out
        assert f"{report[side]['ece']:.3f} ({report[side]['ece_noise_floor']:.3f})" in said.out
    assert "100 test nodes" in said.out


def test_progress_is_plain_when_piped(finished):
    _, said = finished
    assert "\x1b" not in said.err + said.out
    assert "\r" not in said.err
    assert [line for line in said.err.splitlines() if line.startswith("train: ")] == [
        f"train: {done} of 100" for done in (25, 50, 75, 100)
    ]


def test_the_log_has_times_and_versions(finished):
    log = (finished[0] / "log.txt").read_text()
    assert re.search(r"\d\.\d{3} s  calirare \d", log)
    for stage in ("train", "check", "calibrate", "jackknife", "everything but imports"):
        assert re.search(rf"  {stage}: \d+\.\d{{3}} s", log), stage


def test_the_config_is_resolved(finished, graph_file):
    config = yaml.safe_load((finished[0] / "config.yaml").read_text())
    data, training = config["data"], config["training"]
    assert data["dataset"] == str(graph_file)
    assert (data["label_rate"], data["split"], data["minority"]) == (None, "public", "1")
    assert (training["epochs"], config["calibration"]["folds"], config["loo"]["method"]) == (100, 2, "alo")
    assert (config["device"], config["seed"], config["method"]) == ("cpu", 0, "jackknife")


def test_the_model_is_plain_tensors(finished, graph_file):
    graph = Graph.from_npz(graph_file)
    with safe_open(str(finished[0] / "model.safetensors"), "pt") as file:
        fitted = {name.removeprefix("fit.") for name in file.keys() if name.startswith("fit.")}  # noqa: SIM118
        assert fitted == {
            *("weights.0", "weights.1", "biases.0", "biases.1", "targets", "sample_weights", "inputs"),
            *("rows.0", "rows.1", *(f"blocks.0.{part}" for part in ("indptr", "indices", "values", "n_cols"))),
        }
        assert {name for name in file.keys() if not name.startswith("fit.")} == {  # noqa: SIM118 (not a mapping)
            *("split.train", "split.val", "split.test", "calibration_nodes"),
        }
        assert file.get_tensor("fit.weights.0").shape == (graph.n_features, 16)
        labelled = torch.cat([graph.split.train, graph.split.val])
        assert torch.equal(file.get_tensor("fit.rows.1"), labelled)
        assert torch.equal(file.get_tensor("fit.targets"), graph.y[labelled])


SAME = ("config.yaml", "metrics.json", "predictions.csv", "predictions.parquet", "model.safetensors")


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize(("model", "folds"), [("gcn", 2), ("auto", 0)])
def test_the_same_command_gives_the_same_bytes(model, folds, count, graph_file, tmp_path, threads):
    for name in ("a", "b"):
        with threads(count):
            options = ("--model", model, "--epochs", 4, "--folds", folds, "--seed", 3, "--out", tmp_path / name)
            assert call("train", "--dataset", graph_file, *options).code == 0
    for name in SAME:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes(), name


def test_another_seed_gives_another_run(quick_run, graph_file, tmp_path):
    other = tmp_path / "other"
    assert call("train", "--dataset", graph_file, *QUICK, "--seed", 1, "--out", other).code == 0
    assert (other / "predictions.csv").read_bytes() != (quick_run / "predictions.csv").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        ("--model", "gcn", "--epochs", "auto", "--folds", "0", "--target", "population"),
        ("--model", "gcn", "--split", "random", "--label-rate", "15", "--seed", "4", "--epochs", "10", "--folds", "2"),
        ("--model", "gcn", "--label-rate", "21", "--seed", "5", "--epochs", "10", "--method", "ts"),
        ("--split", "random", "--label-rate", "15", "--seed", "4", "--epochs", "auto", "--folds", "2"),
    ],
    ids=["auto epochs", "random split", "higher label rate", "average"],
)
def test_a_run_repeats_from_its_own_config(options, graph_file, tmp_path, monkeypatch):
    monkeypatch.setattr("calirare.pipeline.networks.MAX_EPOCHS", 30)
    monkeypatch.setattr("calirare.pipeline.networks.CHECKPOINT_EVERY", 10)
    assert call("train", "--dataset", graph_file, *options, "--out", tmp_path / "a").code == 0
    monkeypatch.undo()
    said = call("train", "--config", tmp_path / "a" / "config.yaml", "--out", tmp_path / "b")
    assert said.code == 0, said.err
    for name in SAME:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes(), name


def test_an_option_wins_over_the_config(quick_run, tmp_path):
    said = call("train", "--config", quick_run / "config.yaml", "--seed", "9", "--out", tmp_path / "b")
    assert said.code == 0, said.err
    config = yaml.safe_load((tmp_path / "b" / "config.yaml").read_text())
    assert (config["seed"], config["training"]["epochs"]) == (9, 12)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_run_is_not_overwritten_unasked(quick_run, graph_file):
    before = contents(quick_run.parent)
    said = call("train", "--dataset", graph_file, *QUICK, "--seed", 1, "--out", quick_run)
    assert "--overwrite" in assert_one_sentence(said)
    assert contents(quick_run.parent) == before


def test_overwrite_replaces_the_whole_run(quick_run, graph_file):
    other = Path(shutil.copy(graph_file, quick_run.parent / "other.npz"))
    assert call("predict", "--run", quick_run, "--graph", other).code == 0
    assert (quick_run / "predictions_other.csv").is_file()
    other.unlink()
    assert call("train", "--dataset", graph_file, *QUICK, "--seed", 1, "--out", quick_run, "--overwrite").code == 0
    assert {path.name for path in quick_run.iterdir()} == FILES
    assert [path.name for path in quick_run.parent.iterdir()] == ["quick"]
    assert yaml.safe_load((quick_run / "config.yaml").read_text())["seed"] == 1


def test_overwrite_spares_a_folder_that_is_no_run(graph_file, tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("years of work")
    before = contents(tmp_path)
    said = call("train", "--dataset", graph_file, *QUICK, "--out", tmp_path / "thesis", "--overwrite")
    assert "replaces runs only" in assert_one_sentence(said)
    assert contents(tmp_path) == before
    (tmp_path / "empty").mkdir()
    assert call("train", "--dataset", graph_file, *QUICK, "--out", tmp_path / "empty", "--overwrite").code == 0


def test_overwrite_spares_what_no_run_wrote(quick_run, graph_file):
    shutil.copy(graph_file, quick_run / "mine.npz")
    before = contents(quick_run)
    said = call("train", "--dataset", quick_run / "mine.npz", *QUICK, "--out", quick_run, "--overwrite")
    assert "also holds mine.npz, which no run wrote: move it elsewhere" in assert_one_sentence(said)
    assert contents(quick_run) == before


@pytest.mark.parametrize(
    "name", ["my.png", "predictions_final.csv", "predictions_2024.parquet", "review.csv", "log.txt"]
)
def test_overwrite_spares_files_that_look_like_ours(name, quick_run, graph_file):
    """Of these names, a run writes the last two: there they were changed since."""
    with (quick_run / name).open("a") as file:
        file.write("mine")
    before = contents(quick_run)
    said = call("train", "--dataset", graph_file, *QUICK, "--out", quick_run, "--overwrite")
    expected = f"{name} has been changed since" if name in FILES else f"also holds {name}, which no run wrote"
    assert expected in assert_one_sentence(said)
    assert contents(quick_run) == before


def test_overwrite_spares_a_folder_whose_files_are_called_as_a_runs(graph_file, tmp_path):
    (tmp_path / "theirs").mkdir()
    for name in ("config.yaml", "model.safetensors", "metrics.json"):
        (tmp_path / "theirs" / name).write_text("of another program")
    before = contents(tmp_path)
    said = call("train", "--dataset", graph_file, *QUICK, "--out", tmp_path / "theirs", "--overwrite")
    assert "replaces runs only" in assert_one_sentence(said)
    assert contents(tmp_path) == before


KILLED = """
import os, signal, sys
from pathlib import Path
from calirare._util import output
from calirare._util.output import fresh_folder

def kill(*_):
    os.kill(os.getpid(), signal.SIGKILL)

if sys.argv[2] == "renames":  # as where the file system cannot exchange two names
    output.exchange = lambda *_: False
    real = os.replace
    os.replace = lambda a, b: kill() if str(a).endswith(".partial") else real(a, b)
with fresh_folder(Path(sys.argv[1]), overwrite=True) as folder:
    (folder / "config.yaml").write_text("new")
    if sys.argv[2] == "writing":
        kill()
"""


@pytest.mark.parametrize("moment", ["writing", "renames"])
def test_what_a_killed_process_leaves_is_put_right(moment, quick_run, graph_file):
    before = contents(quick_run)
    found = subprocess.run([sys.executable, "-c", KILLED, quick_run, moment], capture_output=True, text=True)
    assert found.returncode == -signal.SIGKILL, found.stderr
    assert any(path.name.endswith(".partial") for path in quick_run.parent.iterdir())
    if moment == "renames":
        assert not quick_run.exists()
        said = assert_one_sentence(call("predict", "--run", quick_run, "--graph", graph_file))
        assert "a job that replaced it was killed and left it as" in said
    said = call("train", "--dataset", graph_file, *QUICK, "--out", quick_run)
    assert "exists already" in assert_one_sentence(said)
    assert contents(quick_run) == before
    assert call("train", "--dataset", graph_file, *QUICK, "--out", quick_run, "--overwrite").code == 0
    assert [path.name for path in quick_run.parent.iterdir()] == ["quick"]


def test_a_killed_predict_does_not_stand_in_the_way_of_overwrite(quick_run, graph_file):
    (quick_run / ".ab_12xyz.partial").mkdir()
    (quick_run / ".ab_12xyz.partial" / "p.csv").write_text("half")
    assert call("train", "--dataset", graph_file, *QUICK, "--out", quick_run, "--overwrite").code == 0
    assert {path.name for path in quick_run.iterdir()} == FILES
    (quick_run / ".ab_12xyz.partial").mkdir()
    assert call("predict", "--run", quick_run, "--graph", graph_file).code == 0
    assert not (quick_run / ".ab_12xyz.partial").exists()


def test_a_second_process_is_told_who_is_writing(graph_file, tmp_path):
    with fresh_folder(tmp_path / "run", overwrite=False) as partial:
        said = call("train", "--dataset", graph_file, *QUICK, "--out", tmp_path / "run")
        assert f"another process is writing there (process {os.getpid()} on " in assert_one_sentence(said)
        assert partial.is_dir()
        (partial / "config.yaml").write_text("")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_folder_behind_a_loop_of_links(graph_file, tmp_path):
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    assert_one_sentence(call("train", "--dataset", graph_file, *QUICK, "--out", tmp_path / "a" / "run"))
    assert_one_sentence(call("train", "--dataset", graph_file, *QUICK, "--out", tmp_path / "a"))


def test_a_failed_overwrite_keeps_the_old_run(quick_run, graph_file, monkeypatch):
    before = contents(quick_run.parent)
    options = ("--dataset", graph_file, *QUICK, "--seed", 1, "--out", quick_run, "--overwrite")
    monkeypatch.setattr("calirare.run.outcome.save_model", no_space)
    assert "No space left" in call("train", *options).err.splitlines()[-1]
    assert contents(quick_run.parent) == before
    monkeypatch.undo()
    # The new run is complete, but cannot take the old one's place.
    real = os.replace

    def no_second(source, target):
        if str(source).endswith(".partial"):
            no_space()
        real(source, target)

    monkeypatch.setattr("calirare._util.output.exchange", lambda *_: False)
    monkeypatch.setattr("calirare._util.output.os.replace", no_second)
    assert call("train", *options).code == 2
    assert contents(quick_run.parent) == before


def test_of_two_runs_with_one_out_the_later_is_kept_elsewhere(graph_file, tmp_path, monkeypatch):
    out, real = tmp_path / "run", outcome_module.save_model

    def meanwhile(*arguments):
        out.mkdir()
        (out / "config.yaml").write_text("theirs")
        real(*arguments)

    monkeypatch.setattr(outcome_module, "save_model", meanwhile)
    said = call("train", "--dataset", graph_file, *QUICK, "--out", out)
    assert said.code == 2
    assert contents(out) == {"config.yaml": b"theirs"}
    (kept,) = (path for path in tmp_path.iterdir() if path != out)
    assert f"another was written there while this one was made, which is kept as {kept}" in said.err.splitlines()[-1]
    assert {path.name for path in kept.iterdir()} == FILES
    assert not kept.name.startswith(".")


@pytest.mark.parametrize("out", [".", "", ".."])
def test_out_must_be_a_folder_of_its_own(out, graph_file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = call("train", "--dataset", graph_file, *QUICK, "--out", out)
    assert "--out must name a folder of its own" in assert_one_sentence(said)
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_the_way_stays(graph_file, tmp_path):
    (tmp_path / "file").write_text("mine")
    for out in (tmp_path / "file", tmp_path / "file" / "run"):
        said = call("train", "--dataset", graph_file, *QUICK, "--out", out, "--overwrite")
        assert str(out) in assert_one_sentence(said)
    assert contents(tmp_path) == {"file": b"mine"}


def no_space(*_: object, **__: object) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize(
    "writer",
    ["write_config", "write_json", "write_table", "save_model", "draw", "report"],
)
def test_a_full_disk_leaves_nothing(writer, graph_file, tmp_path, monkeypatch):
    monkeypatch.setattr(f"calirare.run.outcome.{writer}", no_space)
    said = call("train", "--dataset", graph_file, *QUICK, "--out", tmp_path / "runs" / "a", pictures=writer == "draw")
    assert (said.code, said.out) == (2, "")
    assert "nothing was kept: No space left on device" in said.err.splitlines()[-1]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [13, 30, 28], ids=["EACCES", "EROFS", "ENOSPC"])
def test_a_folder_that_cannot_be_made_leaves_nothing(number, graph_file, tmp_path, monkeypatch):
    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("calirare._util.claims.tempfile.mkdtemp", refuse)
    said = call("train", "--dataset", graph_file, *QUICK, "--out", tmp_path / "deep" / "runs" / "a")
    assert f"cannot be written: {os.strerror(number)}" in assert_one_sentence(said)
    assert list(tmp_path.iterdir()) == []


@contextmanager
def unprivileged(folder: Path) -> Iterator[None]:
    """Root may write everywhere: a test run by root is somebody else for a while, who can reach `folder`."""
    if os.geteuid() != 0:
        yield
        return
    for path in (folder, *list(folder.parents)[:2]):
        path.chmod(0o755)
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.parametrize("mode", [0o000, 0o555], ids=["closed", "read only"])
def test_a_folder_without_permission(mode, graph_file, tmp_path):
    # Once before, so that everything is imported that somebody else may not read.
    assert call("train", "--dataset", tmp_path / "none.npz", "--out", tmp_path / "run").code == 2
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    theirs.chmod(mode)
    with unprivileged(tmp_path):
        said = call("train", "--dataset", graph_file, *QUICK, "--out", theirs / "runs" / "a")
    theirs.chmod(0o755)
    assert "cannot be written: Permission denied" in assert_one_sentence(said)
    assert list(theirs.iterdir()) == []


def test_out_may_be_a_link_to_a_place_elsewhere(graph_file, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    for _ in range(2):
        assert call("train", "--dataset", graph_file, *QUICK, "--out", tmp_path / "link", "--overwrite").code == 0
    assert {path.name for path in (tmp_path / "elsewhere").iterdir()} == FILES
    assert (tmp_path / "link").is_symlink()
    assert {path.name for path in tmp_path.iterdir()} == {"elsewhere", "link"}
