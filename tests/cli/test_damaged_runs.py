"""`calirare audit` and `calirare predict` of a run that is damaged, exchanged or of another version: one sentence."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import pytest
import yaml
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from calirare import InputError, load
from calirare._util.run_files import seal
from calirare.run.model_file import FORMAT
from calirare_ext import __version__
from tests.helpers.command import assert_refused, call, succeed


@pytest.mark.parametrize("command", [("audit",), ("predict", "--graph", "g.npz")], ids=["audit", "predict"])
def test_a_folder_that_is_no_run(command, tmp_path):
    assert "there is no such folder" in assert_refused(call(*command, "--run", tmp_path / "none"))
    (tmp_path / "empty").mkdir()
    assert "config.yaml is missing" in assert_refused(call(*command, "--run", tmp_path / "empty"))


def without_metadata(path: Path) -> None:
    save_file(load_file(path), path)


def without_a_tensor(path: Path) -> None:
    shutil.copy(path, path.with_suffix(".bak"))
    with safe_open(str(path), "pt") as file:
        metadata = file.metadata()
    save_file({k: v for k, v in load_file(path).items() if not k.endswith("weights.1")}, path, metadata)


@pytest.mark.parametrize("spoil", [without_metadata, without_a_tensor])
def test_a_damaged_model_is_one_sentence(spoil, quick_run, graph_file):
    spoil(quick_run / "model.safetensors")
    seal(quick_run)
    sentence = assert_refused(call("predict", "--run", quick_run, "--graph", graph_file))
    assert "model.safetensors is damaged or was" in sentence


@pytest.mark.parametrize("command", [("audit",), ("predict", "--graph", "g.npz")], ids=["audit", "predict"])
def test_a_run_of_another_version_says_how_to_train_it_again(command, quick_run):
    found, path = "calirare run 99", quick_run / "model.safetensors"
    save_file(load_file(path), path, {"calirare": json.dumps({"format": found})})
    sentence = assert_refused(call(*command, "--run", quick_run))
    assert f"it was written by another version of calirare ({found!r}, {FORMAT!r} is known): train it again" in sentence
    assert "`calirare train --help`" in sentence
    save_file(load_file(path), path, {"calirare": json.dumps({"format": found, "version": "9.1.0"})})
    assert f"was written by calirare 9.1.0 ({found!r}," in assert_refused(call(*command, "--run", quick_run))


def test_a_run_says_which_version_trained_it(quick_run, graph_file, tmp_path):
    assert load(quick_run).version == __version__
    assert (quick_run / "config.yaml").read_text().startswith(f"# calirare {__version__}\n")
    run = Path(shutil.copytree(quick_run, tmp_path / "other"))
    path = run / "model.safetensors"
    with safe_open(str(path), "pt") as file:
        facts = json.loads(file.metadata()["calirare"]) | {"version": "9.1.0"}
    save_file(load_file(path), path, {"calirare": json.dumps(facts, sort_keys=True)})
    metrics = json.loads((run / "metrics.json").read_text())
    assert metrics["version"] == __version__
    (run / "metrics.json").write_text(json.dumps(metrics | {"version": "9.1.0"}))
    seal(run)
    for folder in (run, quick_run):
        said = succeed("predict", "--run", folder, "--graph", graph_file, "--out", tmp_path / f"{folder.name}.csv")
        noted = f"the run was trained by calirare 9.1.0; this is {__version__}" in said.err
        assert noted == (folder == run)
    assert json.loads((tmp_path / "other.json").read_text())["version"] == {"run": "9.1.0", "predict": __version__}
    del metrics["decision"]
    (run / "metrics.json").write_text(json.dumps(metrics | {"version": "9.1.0"}))
    seal(run)
    sentence = assert_refused(call("report", "--run", run, "--out", tmp_path / "no.html"))
    assert "of another version of calirare, 9.1.0 (there is no 'decision')" in sentence


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"training": {"hidden": 0}}, "hidden must be"),
        ({"method": "magic"}, "method must be one of"),
        ({"data": {"dataset": 3}}, "data.dataset must be text"),
        ({"data": {"dataset": "digits", "label_rate": "many"}}, "data.label_rate must be a whole number"),
        ({"data": {"dataset": None}}, "its graph was given in Python: write it to a file (graph.to_npz)"),
        ({"data": {"dataset": "none.npz"}}, "none.npz"),
    ],
)
def test_a_damaged_config_is_one_sentence(change, message, quick_run):
    path = quick_run / "config.yaml"
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | change))
    seal(quick_run)
    assert message in assert_refused(call("audit", "--run", quick_run))


def flip_a_bit(path: Path, place: float) -> None:
    content = bytearray(path.read_bytes())
    content[int(place * len(content))] ^= 4
    path.write_bytes(content)


@pytest.mark.parametrize("name", ["model.safetensors", "config.yaml"])
@pytest.mark.parametrize("place", [0.3, 0.9999])
def test_a_flipped_bit_is_noticed(name, place, quick_run, graph_file):
    flip_a_bit(quick_run / name, place)
    sentence = assert_refused(call("predict", "--run", quick_run, "--graph", graph_file))
    assert f"{name} is damaged or was" in sentence


def test_a_run_without_its_checksums_is_noticed(quick_run):
    (quick_run / "files.json").unlink()
    assert "files.json is missing or damaged" in assert_refused(call("audit", "--run", quick_run))


@pytest.mark.parametrize(("name", "value"), [("weights.0", float("nan")), ("sample_weights", float("inf"))])
def test_a_model_with_a_number_that_is_none_is_refused(name, value, quick_run, graph_file):
    path = quick_run / "model.safetensors"
    with safe_open(str(path), "pt") as file:
        metadata = file.metadata()
    tensors = load_file(path)
    name = next(key for key in tensors if key.endswith(name) and tensors[key].is_floating_point())
    tensors[name].view(-1)[1] = value
    save_file(tensors, path, metadata)
    seal(quick_run)
    sentence = assert_refused(call("predict", "--run", quick_run, "--graph", graph_file))
    assert f"{name} must hold finite numbers" in sentence


def test_the_files_of_a_run_that_are_read_later_are_looked_at_too(quick_run):
    run = load(quick_run)
    run.summary()
    for name, read in (("metrics.json", run.summary), ("predictions.csv", run.to_frame)):
        flip_a_bit(quick_run / name, 0.5)
        with pytest.raises(InputError, match=f"{name} is damaged or was exchanged"):
            read()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"threshold": float("nan")}, "threshold must be a finite number"),
        ({"threshold": 1.5}, "threshold must be a finite number"),
        ({"threshold": True}, "threshold must be a finite number"),
        ({"damping": float("inf")}, "damping must be a finite number"),
        ({"damping": -1}, "damping must be a finite number"),
        ({"class_names": ["a", "a"]}, "class_names must be the names of two classes"),
        ({"class_names": [{}, 1]}, "class_names must be the names of two classes"),
        ({"class_names": ["a", "b", "a"]}, "class_names must be there once each"),
        ({"calibrators": {"population": {"theta": [0, float("nan")]}}}, "the calibrators must hold finite numbers"),
    ],
)
def test_facts_beside_a_model_that_cannot_be_are_one_sentence(change, message, quick_run):
    path = quick_run / "model.safetensors"
    with safe_open(str(path), "pt") as file:
        facts = json.loads(file.metadata()["calirare"])
    save_file(load_file(path), path, {"calirare": json.dumps(facts | change)})
    seal(quick_run)
    with pytest.raises(InputError, match=message):
        load(quick_run)


def test_an_audit_of_a_run_that_kept_no_folds_says_why(quick_run, graph_file):
    run = dataclasses.replace(load(quick_run), held_out=None)
    folds = "kept" if run.settings.calibration.folds else "made"
    with pytest.raises(InputError, match=f"the run {folds} no cross-validation"):
        run.audit()
    calibration = dataclasses.replace(run.settings.calibration, folds=5)
    scorer = dataclasses.replace(run.scorer, settings=dataclasses.replace(run.settings, calibration=calibration))
    with pytest.raises(InputError, match=r"the run kept no cross-validation \(by its method, or of an earlier version"):
        dataclasses.replace(run, scorer=scorer).audit()
