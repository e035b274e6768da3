"""Folders in the making: who writes where, told to other processes by locks that end with their owner."""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from calirare._util.errors import InputError
from calirare._util.files import parse_json

RANDOM = "[a-z0-9_]{8}"  # what `tempfile` puts into a name


@contextmanager
def locked(where: Path, what: str) -> Iterator[None]:
    """Holds a place for this process; another one that wants it is told who has it.

    Args:
        where: the file or folder that will be written; its parent must be there.
        what: put in front of a message.

    Yields:
        Nothing.

    Raises:
        InputError: another process holds the place.
        OSError: the lock's file cannot be made.
    """
    path = _lock_of(where)
    lock = _locked_file(path, what)
    try:
        os.ftruncate(lock, 0)
        os.pwrite(lock, json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode(), 0)
        yield
    finally:
        with suppress(OSError):
            path.unlink()  # before the lock ends, so that nobody's but ours is removed
        os.close(lock)


def is_left_lock(path: Path) -> bool:
    """Returns whether a file is what a killed process left of a `locked` place."""
    return bool(re.fullmatch(r"\..+\.lock", path.name)) and path.is_file() and not _is_locked(path)


def _lock_of(where: Path) -> Path:
    return where.with_name(f".{where.name}.lock")


def _is_locked(path: Path) -> bool:
    """Returns whether a process has locked a file; those that look do not lock each other out."""
    try:
        number = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(number, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(number)
    return False


def _locked_file(path: Path, what: str) -> int:
    """Returns an open file that this process alone has locked."""
    while True:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            if not _lock(lock):
                raise InputError(
                    f"{what}: another process is writing there{_owner(path)}: wait until it has ended, or name another "
                    "place"
                )
            if _is_still(lock, path):
                return lock
        except BaseException:
            os.close(lock)
            raise
        os.close(lock)


def _lock(number: int) -> bool:
    """Returns whether an open file or folder could be locked; true too where the file system has no locks."""
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def _is_still(number: int, path: Path) -> bool:
    """Returns whether an open file is the one of this path, and was not removed before it was locked."""
    try:
        return os.path.samestat(os.fstat(number), path.stat())
    except FileNotFoundError:
        return False


def _owner(path: Path) -> str:
    try:
        owner = parse_json(path.read_bytes()[:1000])
        return f" (process {int(owner['pid'])} on {owner['host']})"
    except (OSError, ValueError, LookupError, TypeError):
        return ""


@contextmanager
def part_folder(parent: Path, name: str = "") -> Iterator[Path]:
    """Gives an empty hidden folder that is removed at the end; what killed processes left of such is removed first.

    Args:
        parent: where.
        name: of what becomes of it.

    Yields:
        The folder, locked: another process leaves it alone until this one ends.

    Raises:
        OSError: it cannot be made.
    """
    remove_abandoned(parent, name)
    prefix = f".{name}." if name else "."
    while True:
        partial = Path(tempfile.mkdtemp(prefix=prefix, suffix=".partial", dir=parent))
        try:
            lock = os.open(partial, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue  # another process took it for abandoned in the moment before it was locked
        if _lock(lock) and _is_still(lock, partial):
            break
        os.close(lock)
    try:
        yield partial
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        os.close(lock)


@contextmanager
def part_file(path: Path) -> Iterator[tuple[Path, BinaryIO]]:
    """Gives a file to be renamed to `path` when it is whole, else removed; what killed processes left of such is too.

    Yields:
        The file beside `path`, and the same open, locked: another process leaves it alone until this one ends.

    Raises:
        OSError: it cannot be made.
    """
    ours = re.compile(rf"{re.escape(path.name)}\.\w+\.part")
    for left in [each for each in path.parent.iterdir() if ours.fullmatch(each.name)]:
        with suppress(OSError), left.open("rb") as file:
            if _lock(file.fileno()):
                left.unlink()
    while True:
        part = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")  # two containers have equal process numbers
        with part.open("xb") as file:
            if not _lock(file.fileno()) or not _is_still(file.fileno(), part):
                continue  # another process took it for abandoned in the moment before it was locked
            try:
                yield part, file
            finally:
                part.unlink(missing_ok=True)
            return


def is_part(path: Path, name: str = "") -> bool:
    """Returns whether a path is a folder that `part_folder` made for a name."""
    prefix = rf"\.{re.escape(name)}\." if name else r"\."
    return bool(re.fullmatch(rf"{prefix}{RANDOM}\.partial", path.name)) and path.is_dir() and not path.is_symlink()


def remove_abandoned(parent: Path, name: str = "") -> None:
    """Removes the folders of `part_folder` whose process has ended."""
    for path in [path for path in parent.iterdir() if is_part(path, name)]:
        with suppress(OSError):
            number = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                if _lock(number):
                    shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(number)
