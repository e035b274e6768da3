"""Help and exit codes: 0 done, 1 failure, 2 bad usage or input; one sentence, a traceback only with --debug."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from unittest import mock

import pytest

from calirare.cli import plugins
from calirare.cli.app import version
from calirare.cli.options import first
from calirare.cli.parser import COMMANDS, parser_of
from calirare_ext import __version__
from tests.helpers.command import QUICK, assert_refused, call, succeed

OTHERS = {name: entry for name, entry in plugins.commands().items() if name in plugins.OTHERS}


def test_the_commands_of_the_product_are_there():
    of_runs = {"train", "predict", "recalibrate", "explain", "audit", "report", "review"}
    assert of_runs | {"update", "datasets", "doctor", "metrics"} == set(COMMANDS)


def test_every_command_of_the_readme_is_there_with_its_options():
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    lines = re.findall(r"^calirare ([a-z-]+)(.*)", readme, re.MULTILINE)
    assert {"train", "predict"} <= {command for command, _ in lines}
    for command, rest in lines:
        known = {option for action in parser_of(command)._actions for option in action.option_strings}
        assert set(re.findall(r"--[a-z-]+", rest.partition("#")[0])) <= known, f"calirare {command}{rest}"


@pytest.mark.parametrize("arguments", [("--help",), ()], ids=["help", "nothing"])
def test_help_lists_every_command(arguments):
    said = succeed(*arguments, silent=True)
    for command in {*COMMANDS, *OTHERS}:
        assert re.search(rf"^  {command} +[A-Z]", said.out, re.MULTILINE), command
    assert "--debug" in said.out


def test_the_version_is_that_of_the_package():
    assert call("--version") == (0, f"calirare {__version__}\n", "")
    assert version() == __version__


def test_a_run_is_named_with_and_without_its_option(quick_run, tmp_path):
    for words in ((quick_run,), ("--run", quick_run)):
        assert (
            succeed("report", *words, "--out", tmp_path / "page.html", "--overwrite").out.strip().endswith("page.html")
        )
    assert "usage: calirare report RUN [OPTIONS]" in succeed("report", "--help", silent=True).out


def test_the_help_of_train_shows_the_options_most_used_and_where_the_others_are(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    said = succeed("train", "--help", silent=True).out
    assert len(said.splitlines()) <= 90
    assert all(f"--{name.replace('_', '-')}" in said for name in first())
    assert "--calibrate-on" not in said
    assert "calirare train --help-all" in said


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_of_every_command_is_explained(command):
    said = succeed(command, "--help-all", silent=True)
    # Long lines are broken at hyphens too.
    text = "".join(said.out.split())
    assert "".join(COMMANDS[command].help.split()) in text
    for action in parser_of(command, every=True)._actions:
        if action.help == argparse.SUPPRESS:
            continue
        assert action.help, f"{command} {action.dest} says nothing"
        assert "".join((action.help % {}).split()) in text
        assert all(spelling in said.out for spelling in action.option_strings)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["trian"], "no such command trian; did you mean train?"),
        (["recalibrated"], "no such command recalibrated; did you mean recalibrate?"),
        (["train", "--edges", "e.csv"], "no such option --edges; did you mean --dataset?"),
        (["predict", "--run", "r", "--dataset", "e.csv"], "no such option --dataset; did you mean --graph?"),
        (["train", "--graph=e.csv"], "no such option --graph; did you mean --dataset?"),
        (["train", "--nodes", "n.csv"], "no such option --nodes; did you mean --features?"),
        (["nothing"], "no such command nothing (see"),
        (["--versoin"], "no such option --versoin; did you mean --version?"),
        (["train", "--epoch", "3"], "no such option --epoch; did you mean --epochs?"),
        (["train", "--epoch=3"], "no such option --epoch; did you mean --epochs?"),
        (["train", "--set", "loo.step=3"], "unknown setting 'loo.step'; did you mean 'loo.steps'?"),
        (["train", "--set", "damping=3"], "unknown setting 'damping'; did you mean 'loo.damping'?"),
        (["train", "--set", "loo.damping"], "--set must be KEY=VALUE, such as loo.damping=0.01, got 'loo.damping'"),
        (["train", "--set", "seed.x=3"], "unknown setting 'seed.x'"),
        (["train", "--loo", "alo"], "no such option --loo"),
        (["predict", "--run", "r", "--graph", "g", "--epochs", "3"], "no such option --epochs (see"),
        (["train", "--label-rate", "many"], "--label-rate"),
        (["train", "--seed", "1.5"], "--seed"),
        (["train", "extra"], "unexpected word 'extra'"),
        (["train", "--epochs"], "--epochs expected one argument"),
        (["train", "--directed=yes"], "--directed ignored explicit argument 'yes'"),
        (["audit"], "missing --run"),
        (["predict", "--run", "r"], "missing --graph"),
        (["train", "--epochs", "many"], "--epochs must be a whole number or auto, got 'many'"),
        (["train", "--set", "hops=1.5"], "training.hops must be a whole number, auto or none, got '1.5'"),
        (
            ["train", "--dataset", "digits", "--set", "hops=0"],
            "setting hops must be from 1 to 100, got 0",
        ),
        (
            ["train", "--dataset", "digits", "--set", "hops=auto", "--method", "calirare"],
            "setting hops must be a number with method calirare, got 'auto'",
        ),
        (["train", "--dataset", "digits", "--split", "secret"], "split must be one of public, random, share, all"),
        (["train", "--dataset", "digits", "--label-rate", "0"], "label_rate must be"),
        (["train", "--set", "loo.damping=low"], "loo.damping must be a number or none, got 'low'"),
        (["train", "--target", "both"], "--target must be one of balanced, population, got 'both'"),
        (["audit", "--run", "r", "--at-least", "much"], "--at-least must be in (0, 1), got much"),
        (["explain", "--run", "r", "--top", "1.5"], "--top must be a whole number, got '1.5'"),
    ],
)
def test_bad_usage_is_one_sentence(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert message in assert_refused(call(*arguments))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["multilabel", "evaluate", "none.csv", "--floors", "1"], "--floors must be 0 (none) or at least 2, got 1"),
        (["study", "copula", "--seed", "-1"], "--seed must be from 0 to 2^63 - 1, got -1"),
        (["paper", "search", "--out", __file__], "--out must be a folder"),
    ],
)
def test_bad_usage_of_another_package_is_one_sentence(arguments, message, tmp_path, monkeypatch):
    if arguments[0] not in OTHERS:
        pytest.skip(f"{plugins.OTHERS[arguments[0]]} is not installed")
    monkeypatch.chdir(tmp_path)
    assert message in assert_refused(call(*arguments))
    assert list(tmp_path.iterdir()) == []


def test_debug_shows_the_traceback_and_keeps_the_code(tmp_path):
    said = call("train", "--dataset", tmp_path / "none.npz", "--debug")
    assert said.code == 2
    assert "Traceback" in said.err
    assert "InputError" in said.err


@pytest.mark.parametrize("debug", [False, True])
def test_a_failure_of_ours_is_code_1_and_leaves_nothing(debug, graph_file, tmp_path):
    arguments = ["train", "--dataset", graph_file, *QUICK, "--out", tmp_path / "deep" / "run"]
    with mock.patch("calirare.run.outcome.report", side_effect=ZeroDivisionError("by\nzero")):
        said = call(*arguments, *(["--debug"] if debug else []))
    assert (said.code, said.out) == (1, "")
    last = said.err.splitlines()[-1]
    if debug:
        assert "Traceback" in said.err
    else:
        assert "Traceback" not in said.err
        assert last == "calirare: failed: ZeroDivisionError: by zero (--debug shows where)"
    assert list(tmp_path.iterdir()) == []
