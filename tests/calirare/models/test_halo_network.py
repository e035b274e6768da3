"""Two processes that share neither a disk nor a network interface: each in a network namespace of its own."""

from __future__ import annotations

import dataclasses
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

from calirare.graph import GraphOnDisk
from tests.calirare.models.test_halo import assert_alike, table
from tests.helpers.command import call
from tests.helpers.tasks import rare_task

BRIDGE, PORT = "crtest", 29533


def ip(*words: str) -> subprocess.CompletedProcess:
    return subprocess.run(["ip", *words], capture_output=True, text=True, check=False)


@pytest.fixture
def networks() -> Iterator[list[str]]:
    """Names of two network namespaces that see each other as 10.77.1.1 and 10.77.1.2."""
    if shutil.which("ip") is None:
        pytest.skip("the command ip is not installed (Debian's iproute2)")
    names = [f"crtest{rank}" for rank in (0, 1)]
    made = ip("link", "add", BRIDGE, "type", "bridge")
    if made.returncode != 0:
        pytest.skip(f"no network can be made here: {made.stderr.strip()}")
    try:
        ip("link", "set", BRIDGE, "up")
        for rank, name in enumerate(names):
            for words in (
                ("netns", "add", name),
                ("link", "add", f"crv{rank}", "type", "veth", "peer", "name", f"cre{rank}"),
                ("link", "set", f"crv{rank}", "master", BRIDGE, "up"),
                ("link", "set", f"cre{rank}", "netns", name),
                ("-n", name, "addr", "add", f"10.77.1.{rank + 1}/24", "dev", f"cre{rank}"),
                ("-n", name, "link", "set", f"cre{rank}", "up"),
                ("-n", name, "link", "set", "lo", "up"),
            ):
                done = ip(*words)
                if done.returncode != 0:
                    pytest.skip(f"no network namespace can be made here: {done.stderr.strip()}")
        yield names
    finally:
        for name in names:
            ip("netns", "del", name)
        ip("link", "del", BRIDGE)


@pytest.mark.slow
def test_processes_in_networks_of_their_own_agree_with_one(tmp_path, networks):
    graph = dataclasses.replace(rare_task(), split=None)
    rare_task().to_npz(tmp_path / "g.npz")
    graph.to_folder(tmp_path / "g")
    how = ("--model", "hops", "--epochs", "30", "--folds", "0", "--out", tmp_path / "run")
    assert call("train", "--dataset", tmp_path / "g.npz", *how).code == 0
    alone = call("predict", "--run", tmp_path / "run", "--graph", tmp_path / "g", "--scores-only", "--out",
                 tmp_path / "s.parquet")  # fmt: skip
    assert alone.code == 0, alone.err

    children = []
    for rank, name in enumerate(networks):
        own = tmp_path / f"own{rank}"
        GraphOnDisk.open(tmp_path / "g").part(rank, 2).write(own / str(rank))
        children.append(start(own, rank, name))
        if rank == 1:  # the slower of the two: stopped for a while as it starts
            children[1].send_signal(signal.SIGSTOP)
            time.sleep(1.0)
            children[1].send_signal(signal.SIGCONT)
    said = [child.communicate(timeout=200)[1] for child in children]
    assert [child.returncode for child in children] == [0, 0], said
    assert_alike(table(tmp_path, "own", 2), pd.read_parquet(tmp_path / "s.parquet"))


def start(folder: Path, rank: int, network: str) -> subprocess.Popen:
    place = {"RANK": rank, "WORLD_SIZE": 2, "MASTER_ADDR": "10.77.1.1", "MASTER_PORT": PORT}
    env = os.environ | {name: str(value) for name, value in place.items()} | {"GLOO_SOCKET_IFNAME": f"cre{rank}"}
    predict = ["predict", "--run", "../run", "--graph", "{rank}", "--scores-only", "--out", "s.parquet"]
    command = ["ip", "netns", "exec", network, sys.executable, "-m", "calirare", *predict]
    return subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
