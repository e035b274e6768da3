"""Processes that should find each other and do not: said in a sentence, ended by a signal, never asleep for ever."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from functools import partial

import pytest

from calirare import InputError
from calirare._util.ranks import NEEDED, Ranks, join

JOIN = "from calirare._util.ranks import join; print('joins', flush=True); join('cpu')"
# As torchrun does, starts a process that waits for another one, and then lives until it is killed.
LAUNCHER = f"""
import subprocess, sys
subprocess.Popen([sys.executable, "-c", {JOIN!r}])
sys.stdin.read()
"""


def environment(**others: str) -> dict[str, str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    place = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    return os.environ | place | {"GLOO_SOCKET_IFNAME": "lo"} | others


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"WORLD_SIZE": "abc", "RANK": "0"}, "the variable WORLD_SIZE must be a whole number, got 'abc'"),
        ({"WORLD_SIZE": "2", "RANK": "-1"}, "the variable RANK must be a whole number, got '-1'"),
        ({"WORLD_SIZE": "2", "RANK": "0"}, "MASTER_ADDR is not: start the command with torchrun, or unset RANK"),
        ({"WORLD_SIZE": "2", "RANK": "0", "MASTER_ADDR": "here"}, "MASTER_PORT is not"),
        ({"WORLD_SIZE": "2", "RANK": "2", "MASTER_ADDR": "a", "MASTER_PORT": "1"}, "RANK must be from 0 to"),
        ({"WORLD_SIZE": "2", "RANK": "1", "MASTER_ADDR": "a", "MASTER_PORT": "x"}, "MASTER_PORT must be a whole"),
        ({"WORLD_SIZE": "9" * 5000, "RANK": "1"}, "WORLD_SIZE must be a whole number"),
    ],
)
def test_what_is_left_of_another_job_is_one_sentence(variables, message, monkeypatch):
    for name in NEEDED:
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(InputError, match=message):
        join("cpu")


def test_one_process_is_alone(monkeypatch):
    for name in NEEDED:
        monkeypatch.delenv(name, raising=False)
    assert join("cpu") == Ranks()
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert join("cpu") == Ranks(), "without a rank"


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_a_process_that_waits_for_others_hears_signals(number):
    # A background job of a shell ignores SIGINT, and so would what it starts.
    heard = partial(signal.signal, number, signal.SIG_DFL)
    command = [sys.executable, "-c", JOIN]
    with subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, preexec_fn=heard) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"joins\n"
        process.send_signal(number)
        assert process.wait(timeout=60) != 0


@pytest.mark.slow
def test_a_process_whose_launcher_was_killed_ends():
    variables = environment(TORCHELASTIC_RUN_ID="test")
    command, pipe = [sys.executable, "-c", LAUNCHER], subprocess.PIPE
    with subprocess.Popen(command, env=variables, stdin=pipe, stdout=pipe, stderr=pipe) as launcher:
        assert launcher.stdout is not None
        assert launcher.stdout.readline() == b"joins\n"
        launcher.kill()
        said = launcher.communicate(timeout=60)[1]  # until the process it started has closed its end too
    assert b"did not find the other processes" in said
    assert b"the launcher has ended" in said


class Told(Ranks):
    """One of several processes; what each tells is known."""

    told: list = []  # noqa: RUF012

    def gather_all(self, what):
        return self.told


def test_processes_that_differ_are_named():
    alike, other = {"the run": "a" * 64, "--prevalence": 0.01}, {"the run": "b" * 64, "--prevalence": 0.01}
    ranks = Told(0, 3)
    ranks.told[:] = [alike, alike, alike]
    ranks.check_alike(alike, "mend it")
    ranks.told[:] = [alike, other, alike, *[other] * 7]
    with pytest.raises(InputError, match=r"^ranks: the run must be the same for all, got a{32}\.\. \(checksum") as said:
        ranks.check_alike(alike, "mend it")
    assert "for rank 1, 3, 4, 5, 6, 7 and others: mend it" in str(said.value)
    ranks.told[:] = [alike, alike | {"--prevalence": "none"}]
    with pytest.raises(
        InputError, match=r"--prevalence must be the same for all, got 0.01 for rank 0 and none for rank 1"
    ):
        ranks.check_alike(alike, "mend it")
    ranks.told[:] = [alike, {}]
    with pytest.raises(InputError, match="the run must be the same"):
        ranks.check_alike(alike, "mend it")
