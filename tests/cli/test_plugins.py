"""Commands of other installed packages."""

from __future__ import annotations

import re
import sys

import pytest

from calirare.cli import plugins
from tests.helpers.command import assert_refused, call, succeed


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
        "import typer\napp = typer.Typer(add_completion=False)\nPRELOAD = 'greeter_heavy'\n\n"
        "@app.command()\ndef greet(name: str):\n    'Say hello.'\n    print('hello', name)\n\n"
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
    assert re.search(r"^  greet +Command of the package greeter\.$", call("--help").out, re.MULTILINE)
    assert "Usage: calirare greet" in call("greet", "--help").out
    assert call("wave", "a", "b") == (2, "waves a b\n", "")
    assert "calirare greet --help" in assert_refused(call("greet", "you", "--twice"))


def test_our_own_commands_are_not_replaced_and_help_imports_no_other_package(other):
    assert "greet" in call("--help").out
    assert "List the data sets" in call("datasets", "--help").out
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
