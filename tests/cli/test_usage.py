"""Help and exit codes: 0 done, 1 failure, 2 bad usage or input; one sentence, a traceback only with --debug."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from unittest import mock

import pytest
import torch

from calirare.cli import plugins
from calirare.cli.app import GROUPS, version
from calirare.cli.options import OLD_OPTIONS, first
from calirare.cli.parser import COMMANDS, parser_of
from calirare.datasets import published_sets
from calirare_ext import __version__
from calirare_ext.self_check import CHECKS
from calirare_lab.published import dataset_table
from tests.helpers.command import QUICK, assert_refused, call, succeed

OTHERS = {name: entry for name, entry in plugins.commands().items() if name in plugins.OTHERS}


def test_the_commands_of_the_product_are_there():
    assert sorted(name for names in GROUPS.values() for name in names) == sorted(COMMANDS)


def test_old_names_work_and_are_noted(quick_run, tmp_path):
    said = call("audit", "--run", quick_run, "--next", "2", "--out", tmp_path / "next.csv")
    assert said.code == 0
    for old, new in (("calirare audit", "calirare suggest"), ("--next", "--top")):
        assert f"note: {old} is now {new}. The old name works until version 2.0." in said.err
    parser = parser_of("train")
    words = ["--features", "n.csv", "--minority=fraud", "--labels", "positive-only", "--cost-miss", "5"]
    assert parser.values(words)["settings"] == {
        **{"nodes": "n.csv", "rare_class": "fraud", "positive_only": True, "cost_fn": 5.0}
    }
    for old, new in OLD_OPTIONS.items():
        assert old != new
        assert any(new in parser_of(name)._option_string_actions for name in COMMANDS), new


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
    for command in COMMANDS:
        assert re.search(rf"^  {command} +[A-Z]", said.out, re.MULTILINE), command
    assert all(re.search(rf"of other packages: .*\b{command}\b", said.out) for command in OTHERS)
    assert "--debug" in said.out
    assert len(said.out.splitlines()) <= 30


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
        (["nothing"], "no such command nothing (see"),
        (["--versoin"], "no such option --versoin; did you mean --version?"),
        (["train", "--epoch", "3"], "no such option --epoch; did you mean --epochs?"),
        (["train", "--epoch=3"], "no such option --epoch; did you mean --epochs?"),
        (["train", "--set", "loo.sed=3"], "unknown setting 'loo.sed'; did you mean 'loo.seed'?"),
        (["train", "--set", "damping=3"], "unknown setting 'damping'; did you mean 'loo.damping'?"),
        (["train", "--set", "loo.damping"], "--set must be KEY=VALUE, such as loo.damping=0.01, got 'loo.damping'"),
        (["train", "--set", "seed.x=3"], "unknown setting 'seed.x'"),
        (["train", "--loo", "alo"], "no such option --loo"),
        (["predict", "--run", "r", "--graph", "g", "--epochs", "3"], "no such option --epochs"),
        (["train", "--label-rate", "many"], "--label-rate"),
        (["train", "--seed", "1.5"], "--seed"),
        (["train", "extra"], "unexpected word 'extra'"),
        (["train", "--epochs"], "--epochs expected one argument"),
        (["train", "--directed=yes"], "--directed ignored explicit argument 'yes'"),
        (["audit"], "missing --run"),
        (["predict", "--run", "r"], "name either --graph or --transactions"),
        (["train", "--epochs", "many"], "--epochs must be a whole number or auto, got 'many'"),
        (["train", "--set", "hops=1.5"], "training.hops must be a whole number or none, got '1.5'"),
        (["train", "--dataset", "digits", "--set", "hops=0"], "setting hops must be from 1 to 100, got 0"),
        (["train", "--dataset", "digits", "--split", "secret"], "split must be one of public, random, share, all"),
        (["train", "--dataset", "digits", "--label-rate", "0"], "label_rate must be"),
        (["train", "--set", "loo.damping=low"], "loo.damping must be a number, auto or none, got 'low'"),
        (["train", "--calibrate-for", "both"], "--calibrate-for must be one of balanced, population, got 'both'"),
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


def test_datasets_lists_every_data_set_with_its_statistics(tmp_path):
    said = succeed("datasets", "--root", tmp_path, silent=True)
    lines = said.out.splitlines()
    for row in dataset_table(tmp_path):
        line = next(line for line in lines if line.startswith("│") and line.split("│")[1].strip() == row.name)
        cells = [cell.strip() for cell in line.split("│")[1:-1]]
        assert cells[1:4] == [f"{row.entry.n_nodes:,}", f"{row.entry.n_edges:,}", f"{row.entry.n_features:,}"]
        assert cells[5] == f"{row.entry.minority_share:.2%}"
        assert cells[7] == ("embedded" if row.name == "digits" else "no")
        if row.name != "digits":
            told = next(line for line in lines if line.startswith(f"{row.name}: "))
            assert str(tmp_path) in told
            assert row.how in told
    assert {"digits", "cora", "citeseer", "pubmed", "dblp", "facebook"} <= {row.name for row in dataset_table(tmp_path)}


def test_without_the_lab_a_name_says_what_to_install(tmp_path, monkeypatch):
    published_sets.cache_clear()
    with monkeypatch.context() as without:
        without.setattr("calirare.datasets.by_name.entry_points", lambda group: ())
        for words in (("datasets",), ("train", "--dataset", "cora", "--out", tmp_path / "run")):
            assert "pip install 'calirare[lab]'" in assert_refused(call(*words))
    published_sets.cache_clear()


def test_doctor_says_what_was_built_and_checks_every_kernel():
    said = succeed("doctor", silent=True)
    assert said.out.startswith(f"calirare {__version__}, Python ")
    assert f"torch {torch.__version__}" in said.out
    assert f"threads: {torch.get_num_threads()} in use" in said.out
    assert "CUDA kernels: " in said.out
    for name in CHECKS:
        assert f"cpu {name}: agrees with its reference" in said.out
    assert said.out.splitlines()[-1] == "everything agrees"


def test_doctor_names_the_kernel_that_is_wrong(monkeypatch):
    name = next(iter(CHECKS))
    monkeypatch.setitem(CHECKS, name, lambda device: "off by 0.5")
    said = call("doctor")
    assert said.code == 1
    assert f"cpu {name}: off by 0.5" in said.out
    assert "something is wrong: rebuild" in said.out
    assert "Traceback" not in said.err


@pytest.fixture
def other(tmp_path, monkeypatch):
    """A package `greeter` with the commands `greet` and, taken already, `datasets`."""
    info = tmp_path / "greeter-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: greeter\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        f"[{plugins.GROUP}]\ngreet = greeter:app\nwave = greeter:wave\ndatasets = greeter:app\n"
    )
    (tmp_path / "greeter.py").write_text(
        "PRELOAD = 'greeter_heavy'\n\n"
        "def app(words):\n    print('hello', *words)\n\n"
        "def wave(words):\n    print('waves', *words)\n    return len(words)\n"
    )
    (tmp_path / "greeter_heavy.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    for name in ("greeter", "greeter_heavy"):
        sys.modules.pop(name, None)


def test_a_command_of_another_package_is_listed_and_runs(other):
    assert call("greet", "you") == (0, "hello you\n", "")
    assert "greeter_heavy" in sys.modules
    assert re.search(r"^  of other packages: .*greet", call("--help").out, re.MULTILINE)
    assert call("wave", "a", "b") == (2, "waves a b\n", "")
    if "study" in OTHERS:
        assert "calirare study" in assert_refused(call("study", "copula", "--twice"))


def test_our_own_commands_are_not_replaced_and_help_imports_no_other_package(other):
    assert "greet" in call("--help").out
    assert "List data sets" in call("datasets", "--help").out
    assert "greeter" not in sys.modules


def test_our_own_commands_ask_for_no_other(monkeypatch):
    monkeypatch.setattr(plugins, "commands", lambda: pytest.fail("looked up"))
    succeed("datasets", "--help")


@pytest.mark.parametrize("command", plugins.OTHERS)
def test_where_a_package_is_missing_its_commands_say_how_to_install_it(command, monkeypatch):
    monkeypatch.setattr(plugins, "commands", dict)
    said = assert_refused(call(command, "--help"))
    package = plugins.OTHERS[command]
    extra = package.removeprefix("calirare-")
    assert f"{command} is a command of {package}, which is not installed: `pip install calirare[{extra}]`" in said
    assert command not in call("--help").out
