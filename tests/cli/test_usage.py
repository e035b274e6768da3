"""Help and exit codes: 0 done, 1 failure, 2 bad usage or input; one sentence, a traceback only with --debug."""

from __future__ import annotations

import re
from pathlib import Path
from unittest import mock

import pytest
import typer.main

from calirare.cli.app import app
from tests.helpers.command import QUICK, assert_one_sentence, call

GROUP = typer.main.get_group(app)
COMMANDS = GROUP.list_commands(None)


def test_the_commands_of_the_product_are_there():
    assert {"train", "eice", "predict", "datasets", "doctor"} <= set(COMMANDS)


def test_every_command_of_the_readme_is_there():
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"`calirare ([a-z-]+)(?: ([a-z0-9, -]+))?[^`]*`", readme)
    assert {"train", "loo-check", "paper"} <= {command for command, _ in rows}
    for command, rest in rows:
        found = GROUP.get_command(None, command)
        assert found is not None, f"calirare {command}"
        for word in re.findall(r"[a-z]\w*", rest) if command in ("multilabel", "paper", "study") else ():
            assert word in found.commands, f"calirare {command} {word}"


@pytest.mark.parametrize("arguments", [("--help",), ()], ids=["help", "nothing"])
def test_help_lists_every_command(arguments):
    said = call(*arguments)
    assert (said.code, said.err) == (0, "")
    for command in COMMANDS:
        assert re.search(rf"^  {command} +[A-Z]", said.out, re.MULTILINE), command
    assert "--debug" in said.out


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_of_every_command_is_explained(command):
    said = call(command, "--help")
    assert (said.code, said.err) == (0, "")
    text = " ".join(said.out.split())
    for parameter in GROUP.get_command(None, command).params:
        assert parameter.help, f"{command} {parameter.name} says nothing"
        assert " ".join(parameter.help.split()) in text
        assert parameter.param_type_name == "argument" or parameter.opts[0] in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["trian"], "No such command 'trian'"),
        (["train", "--epoch", "3"], "No such option: --epoch"),
        (["train", "--label-rate", "many"], "--label-rate"),
        (["train", "--seed", "1.5"], "--seed"),
        (["train", "extra"], "extra"),
        (["eice"], "Missing option '--run'"),
        (["predict", "--run", "r"], "Missing option '--graph'"),
        (["train", "--epochs", "many"], "--epochs must be a whole number or auto, got 'many'"),
        (["train", "--hops", "1.5"], "--hops must be a whole number or auto, got '1.5'"),
        (["train", "--dataset", "digits", "--hops", "0"], "setting hops must be at least 1, got 0"),
        (
            ["train", "--dataset", "digits", "--hops", "auto", "--method", "calirare"],
            "setting hops must be a number with method calirare, got 'auto'",
        ),
        (["train", "--damping", "low"], "--damping must be a number or auto, got 'low'"),
        (["paper", "table2", "--datasets", ""], "--datasets must name at least one, got ''"),
        (["paper", "table2", "--label-rates", ""], "--label-rates must name at least one, got ''"),
        (["paper", "figure1", "--jobs", "0"], "--jobs must be at least 1, got 0"),
        (["paper", "figure2", "--jobs", "-3"], "--jobs must be at least 1, got -3"),
        (["paper", "search", "--out", __file__], "--out must be a folder"),
        (["paper", "search", "--datasets", ","], "--datasets must name at least one, got ','"),
        (
            ["multilabel", "train", "--dataset", "x.npz", "--floors", "1"],
            "--floors must be 0 (none) or at least 2, got 1",
        ),
        (
            ["multilabel", "train", "--dataset", "x.npz", "--floors", "-1"],
            "--floors must be 0 (none) or at least 2, got -1",
        ),
        (["multilabel", "train", "--dataset", "x.npz", "--seed", str(10**20)], "--seed must be from 0 to 2^63 - 1"),
        (["study", "copula", "--seed", "-1"], "--seed must be from 0 to 2^63 - 1, got -1"),
        (["multilabel", "evaluate", "none.csv", "--floors", "1"], "--floors must be 0 (none) or at least 2, got 1"),
    ],
)
def test_bad_usage_is_one_sentence(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert message in assert_one_sentence(call(*arguments))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--method", "magic", "method must be one of jackknife, calirare, ts, uncalibrated"),
        ("--target", "everyone", "target must be one of balanced, population"),
        ("--device", "tpu", "device must be auto, cpu, cuda or cuda:N"),
        ("--device", "cuda:x", "device must be auto, cpu, cuda or cuda:N"),
        ("--split", "secret", "split must be public or random"),
        ("--duplicates", "maybe", "duplicates must be one of error, drop, sum"),
        ("--self-loops", "maybe", "self_loops must be one of error, drop, keep"),
        ("--epochs", "0", "epochs must be auto or a whole number of at least 1"),
        ("--epochs", "-5", "epochs must be auto or a whole number of at least 1"),
        ("--hidden", "0", "hidden must be at least 1"),
        ("--n-layers", "0", "n_layers must be at least 1"),
        ("--dropout", "1.0", "dropout must be in [0, 1)"),
        ("--dropout", "nan", "dropout must be in [0, 1)"),
        ("--learning-rate", "0", "learning_rate must be positive"),
        ("--learning-rate", "inf", "learning_rate must be finite"),
        ("--weight-decay", "0", "weight_decay must be positive"),
        ("--weight-decay", "nan", "weight_decay must be finite"),
        ("--coverage", "1", "coverage must be in (0, 1)"),
        ("--coverage", "nan", "coverage must be in (0, 1)"),
        ("--damping", "0", "damping must be auto or a positive number"),
        ("--damping", "inf", "damping must be finite"),
        ("--folds", "1", "folds must be 0 (no check) or at least 2"),
        ("--seed", "-1", "seed must be from 0"),
        ("--seed", str(2**63), "seed must be from 0"),
        ("--label-rate", "0", "label_rate must be"),
        ("--label-rate", "-3", "label_rate must be"),
    ],
)
def test_a_setting_out_of_range_is_one_sentence(option, value, message, graph_file, tmp_path):
    said = call("train", "--dataset", graph_file, *QUICK, option, value, "--out", tmp_path / "run")
    assert message in assert_one_sentence(said)
    assert list(tmp_path.iterdir()) == []


def test_debug_shows_the_traceback_and_keeps_the_code(tmp_path):
    said = call("train", "--dataset", tmp_path / "none.npz", "--debug")
    assert said.code == 2
    assert "Traceback" in said.err
    assert "InputError" in said.err


@pytest.mark.parametrize("debug", [False, True])
def test_a_failure_of_ours_is_code_1_and_leaves_nothing(debug, graph_file, tmp_path):
    arguments = ["train", "--dataset", graph_file, *QUICK, "--out", tmp_path / "deep" / "run"]
    with mock.patch("calirare.cli.train.judge", side_effect=ZeroDivisionError("by\nzero")):
        said = call(*arguments, *(["--debug"] if debug else []))
    assert (said.code, said.out) == (1, "")
    last = said.err.splitlines()[-1]
    if debug:
        assert "Traceback" in said.err
    else:
        assert "Traceback" not in said.err
        assert last == "calirare: failed: ZeroDivisionError: by zero (--debug shows where)"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("stop", [KeyboardInterrupt(), SystemExit(143)], ids=["ctrl-c", "terminated"])
@pytest.mark.parametrize("where", ["calirare.cli.train.train", "calirare.cli.train.save_model"])
def test_an_interrupted_run_leaves_nothing(where, stop, graph_file, tmp_path):
    with mock.patch(where, side_effect=stop):
        said = call("train", "--dataset", graph_file, *QUICK, "--out", tmp_path / "run")
    assert said.code == (130 if isinstance(stop, KeyboardInterrupt) else 143)
    assert "Traceback" not in said.err
    assert list(tmp_path.iterdir()) == []
