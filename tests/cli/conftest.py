"""Fixtures of the command-line tests: a graph on disk and one finished run, made once."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

from calirare.page import ReviewServer
from tests.helpers.command import QUICK, Said, succeed
from tests.helpers.hostile import HOSTILE
from tests.helpers.tasks import rare_task


@pytest.fixture(scope="session")
def graph_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A rare-class task with a split, as .npz. Read only."""
    path = tmp_path_factory.mktemp("graph") / "task.npz"
    rare_task().to_npz(path)
    return path


@pytest.fixture(scope="session")
def finished(graph_file: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Said]:
    """A run with everything a user gets, pictures too, and what was said. Read only."""
    folder = tmp_path_factory.mktemp("runs") / "full"
    options = ("--preset", "paper", "--epochs", "100", "--folds", "2", "--verbose", "--out", folder)
    said = succeed("train", "--dataset", graph_file, *options, pictures=True)
    return folder, said


@pytest.fixture(scope="session")
def trained_quickly(graph_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run without pictures, of few epochs. Read only."""
    folder = tmp_path_factory.mktemp("runs") / "quick"
    succeed("train", "--dataset", graph_file, *QUICK, "--out", folder)
    return folder


@pytest.fixture
def quick_run(trained_quickly: Path, tmp_path: Path) -> Path:
    """A run of this test's own, which it may spoil: a copy of the one that was trained."""
    return shutil.copytree(trained_quickly, tmp_path / "quick")


@pytest.fixture
def server(trained_quickly: Path, tmp_path: Path) -> Iterator[ReviewServer]:
    """The review of a run without an answer, which a test may give."""
    from tests.cli.test_review import served

    with served(trained_quickly, tmp_path / "a.sqlite") as server:
        yield server


@pytest.fixture(scope="session")
def hostile_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on tables with names that would do harm if a page took them for its own."""
    from tests.cli.test_tables import NAMES, write_tables

    folder = tmp_path_factory.mktemp("hostile")
    edges = write_tables(folder)
    names = [*HOSTILE, *NAMES[len(HOSTILE) :]]
    table = pd.read_csv(edges)
    place = dict(zip(NAMES, names, strict=True))
    table.replace(place).to_csv(edges, index=False)
    nodes = pd.read_csv(folder / "nodes.csv").rename(columns={"f0": HOSTILE[0]})
    nodes["label"] = nodes["label"].replace("fraud", HOSTILE[1]).where(nodes.index > 3)
    nodes.assign(node=names, split=nodes["split"].where(nodes.index > 3)).to_csv(folder / "nodes.csv", index=False)
    options = ("--rare-class", HOSTILE[1], "--map", "prior", "--decide", "budget", "--budget", 4)
    succeed("train", "--dataset", edges, *options, *QUICK, "--out", folder / "run", pictures=True)
    return folder
