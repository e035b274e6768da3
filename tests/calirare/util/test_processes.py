"""Processes end with the work they share."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from calirare._util.torch_state import workers


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
