from __future__ import annotations

import fcntl
import os

import pytest
import torch

from calirare._util import file_locks
from calirare._util.store import key_of, write_json, write_whole
from calirare_ext import Csr


def test_a_write_that_fails_leaves_what_was_there(tmp_path):
    def fail(file) -> None:
        file.write(b"half")
        raise RuntimeError

    write_whole(tmp_path / "f", lambda file: file.write(b"whole"))
    with pytest.raises(RuntimeError):
        write_whole(tmp_path / "f", fail)
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("f", b"whole")]


def test_parts_of_killed_processes_are_removed_and_those_of_living_ones_are_not(tmp_path):
    path = tmp_path / "one.json"
    theirs, dead, other = (tmp_path / f"{name}.part" for name in ("one.json.1a", "one.json.2", "two.json.3"))
    for each in (theirs, dead, other):
        each.write_text("half")
    with theirs.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        write_json(path, {"a": 1})
    assert sorted(tmp_path.iterdir()) == sorted([path, theirs, other])
    write_json(path, {"a": 2})
    assert sorted(tmp_path.iterdir()) == sorted([path, other])


def test_a_part_that_was_taken_for_abandoned_is_made_again(tmp_path, monkeypatch):
    lock, taken = file_locks._lock, []

    def lock_too_late(number):
        if not taken:
            taken.extend(tmp_path.glob("*.part"))
            taken[0].unlink()
        return lock(number)

    monkeypatch.setattr(file_locks, "_lock", lock_too_late)
    write_json(tmp_path / "one.json", [1])
    assert taken
    assert [path.name for path in tmp_path.iterdir()] == ["one.json"]


def test_a_folder_that_was_taken_for_abandoned_is_made_again(tmp_path, monkeypatch):
    make, taken = file_locks.tempfile.mkdtemp, []

    def made_and_gone(**how):
        path = make(**how)
        if not taken:
            taken.append(path)
            os.rmdir(path)
        return path

    monkeypatch.setattr(file_locks.tempfile, "mkdtemp", made_and_gone)
    with file_locks.part_folder(tmp_path) as folder:
        assert folder.is_dir()
        assert str(folder) not in taken
    assert not list(tmp_path.iterdir())


def test_a_key_tells_problems_apart():
    a = torch.tensor([[1.0, 0.0], [2.0, 0.0]])
    csr = Csr(torch.tensor([0, 1, 2]), torch.tensor([0, 0], dtype=torch.int32), torch.tensor([1.0, 2.0]), 2)
    wider = Csr(csr.indptr, csr.indices, csr.values, 3)
    parts = [a, a.double(), a.T, a.flatten(), a.to_sparse_coo(), csr, wider, (a, a), (a, (a, 1)), 1, "1", None]
    assert len({key_of(part) for part in parts}) == len(parts)
    assert key_of(a.T) == key_of(a.T.contiguous())
    assert key_of(1, a) == key_of(1, a.clone())
