"""Long jobs: kept items are whole or refused, and workers end with what ends the work."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from calirare._util.errors import InputError
from calirare._util.store import write_json
from calirare_lab.jobs import KEY, Store, read_json, workers


def store(folder, key="k") -> Store:
    return Store(folder, key, "a row", "table")


def load(file) -> list[float]:
    with np.load(file, allow_pickle=False) as arrays:
        return arrays["a"].tolist()


def test_what_is_written_is_read_and_no_part_is_left(tmp_path):
    kept = store(tmp_path / "deep" / "s")
    assert not kept.has("one.npz")
    kept.write("one.npz", lambda file: np.savez(file, a=[1.5, 2.0]))
    assert kept.has("one.npz")
    assert store(kept.folder).read("one.npz", load) == [1.5, 2.0]
    assert sorted(path.name for path in kept.folder.iterdir()) == [KEY, "one.npz"]


@pytest.mark.parametrize("damage", [b"", b"PK\x03\x04 cut", b"text"])
def test_damage_is_said_in_one_sentence(tmp_path, damage):
    kept = store(tmp_path)
    kept.path("one.npz").write_bytes(damage)
    with pytest.raises(InputError, match=r"one\.npz must be a row, but is damaged \(.*\): delete it and run again$"):
        kept.read("one.npz", load)


def test_a_folder_belongs_to_one_problem(tmp_path):
    store(tmp_path, "first")
    store(tmp_path, "first")
    with pytest.raises(InputError, match="belongs to another table: give another folder"):
        store(tmp_path, "second")
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="file: the folder cannot be used"):
        store(tmp_path / "file")


def test_json_must_hold_its_keys(tmp_path):
    write_json(tmp_path / "a.json", {"x": [0.1], "y": None})
    assert read_json(tmp_path / "a.json", ("x", "y"), "a row") == {"x": [0.1], "y": None}
    with pytest.raises(InputError, match=r"damaged \(there is no 'z'\)"):
        read_json(tmp_path / "a.json", ("z",), "a row")


def late(begun: str, done: str) -> None:
    Path(begun).touch()
    time.sleep(3)
    Path(done).touch()


def interrupted(begun: Path, done: Path) -> None:
    """Gives a process work and is interrupted as soon as it has begun."""
    with workers(1) as pool:
        for _ in range(3):
            pool.submit(late, str(begun), str(done))
        until = time.monotonic() + 100
        while not begun.exists() and time.monotonic() < until:
            time.sleep(0.05)
        assert begun.exists(), "the work has begun"
        raise KeyboardInterrupt


@pytest.mark.slow
def test_an_interrupt_ends_the_processes_and_what_waits_for_them(tmp_path: Path) -> None:
    """A pool that waits for its work would have let the file be written."""
    with pytest.raises(KeyboardInterrupt):
        interrupted(tmp_path / "begun", tmp_path / "done")
    assert not (tmp_path / "done").exists()
