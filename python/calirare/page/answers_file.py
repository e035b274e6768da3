"""The SQLite file that answers lie in: a commit waits for the disk, and a file that goes while it is open is noticed.

What is open outlives its name: answers went on into a file that nobody found again after the review.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path

from calirare._util.errors import InputError
from calirare._util.files import sync

SIDES = ("", "-wal", "-shm")  # SQLite's files of one base: the newest answers are in the second


class AnswersFile:
    """An open SQLite file.

    Args:
        path: of the file; made where it is not there.

    Raises:
        InputError: it cannot be opened.

    Attributes:
        path: where it is; another one after `secure` has found somebody else's file there.
        base: the connection; each statement is a transaction unless it is within `written`.
        note: what became of the file while it was open, a sentence; empty: nothing.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.note = path, ""
        self._files: list[tuple[int, int] | None] = []
        with self.faults():
            path.parent.mkdir(parents=True, exist_ok=True)
            self.base = _opened(path)

    def keep(self) -> None:
        """Lets commits wait for the disk, and remembers which files are open; call it before the first answer."""
        self.base.execute("PRAGMA journal_mode = WAL")
        self.base.execute("PRAGMA synchronous = FULL")
        with self.written():
            pass
        self._files = _found(self.path)

    def secure(self) -> None:
        """Checks that the files at the path are those that are open; writes them again where some are missing.

        Where another file has taken the place, that one is left alone, and the file goes on under another name.

        Raises:
            InputError: it cannot be written again.
        """
        now = _found(self.path)
        if now == self._files:
            return
        foreign = any(new is not None and new != old for new, old in zip(now, self._files, strict=True))
        before, target = self.path, _free(self.path) if foreign else self.path
        with self.faults():
            self._write_anew(target, [] if foreign else [self.path.with_name(self.path.name + s) for s in SIDES[1:]])
        told = f"was replaced by another file while it was open: answers go on in {target}, which has all of them"
        self.note = (
            f"{before} {told if foreign else 'was removed while it was open, and was written again with all answers'}"
        )

    def _write_anew(self, target: Path, left: list[Path]) -> None:
        """Writes all answers to a path, removes leftover files next to it, and continues there."""
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(f"{target.name}.part")
        part.unlink(missing_ok=True)
        with closing(_opened(part)) as copy:
            self.base.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE")  # all in one file
        self.base.close()
        for path in left:
            path.unlink(missing_ok=True)
        part.replace(target)
        sync(target.parent)
        self.path, self.base = target, _opened(target)
        self.keep()

    @contextmanager
    def written(self) -> Iterator[None]:
        """Does what is within as a whole or not at all."""
        self.base.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self.base.execute("ROLLBACK")
            raise
        self.base.execute("COMMIT")

    @contextmanager
    def faults(self) -> Iterator[None]:
        """Says of a fault of the file which file it is."""
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise unusable(self.path, error) from error


def unusable(path: Path, error: Exception) -> InputError:
    """Returns what to say of a file that cannot be used."""
    return InputError(
        f"review: {path} cannot be used as a file of answers: {error}. Repair it, or choose another file with --out."
    )


def _opened(path: Path) -> sqlite3.Connection:
    # Handlers of requests are threads; the server lets one of them at a time in.
    return sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=10)


def _found(path: Path) -> list[tuple[int, int] | None]:
    """Returns which file lies at each of a base's names, None where there is none."""
    return [_identity(path.with_name(path.name + side)) for side in SIDES]


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _free(path: Path) -> Path:
    """Returns a free path next to another one."""
    beside = (path.with_name(f"{path.stem}-{i}{path.suffix}") for i in count(2))
    return next(each for each in beside if _found(each) == [None] * len(SIDES))
