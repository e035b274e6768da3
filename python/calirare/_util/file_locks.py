"""Locks of files and folders that are being written, which end with the process that holds them."""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from calirare._util.errors import InputError
from calirare._util.files import parse_json

RANDOM = "[a-z0-9_]{8}"  # what `tempfile` puts into a name


@contextmanager
def locked(where: Path, what: str) -> Iterator[None]:
    """Holds a place for this process; another one that wants it gets a message with the owner.

    Args:
        where: the file or folder that will be written; its parent must be there.
        what: put in front of a message.

    Raises:
        InputError: another process holds the place.
        OSError: the lock's file cannot be made.
    """
    path = where.with_name(f".{where.name}.lock")

    def busy() -> InputError:
        return InputError(
            f"{what}: another process is writing there{_owner(path)}: wait until it has ended, or name another place"
        )

    _, lock = _made_and_locked(lambda: path, os.O_RDWR | os.O_CREAT, busy)
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
    if not re.fullmatch(r"\..+\.lock", path.name) or not path.is_file():
        return False
    with suppress(OSError), opened(path) as number:
        return _lock(number, fcntl.LOCK_SH)  # those that look do not lock each other out
    return True


@contextmanager
def opened(path: Path) -> Iterator[int]:
    """Opens a file or folder without waiting, to lock it, and gives its descriptor."""
    number = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        yield number
    finally:
        os.close(number)


def _made_and_locked(
    make: Callable[[], Path], flags: int, busy: Callable[[], InputError] | None = None
) -> tuple[Path, int]:
    """Returns a path and a descriptor with the only lock of it; made again where another process removed it before."""
    while True:
        path = make()
        try:
            number = os.open(path, flags | os.O_CLOEXEC, 0o666)
        except FileNotFoundError:
            if flags & os.O_CREAT:
                raise
            continue  # another process took it for abandoned in the moment before it was locked
        try:
            free = _lock(number)
            if not free and busy is not None:
                raise busy()
            if free and _is_still(number, path):
                return path, number
        except BaseException:
            os.close(number)
            raise
        os.close(number)


def _lock(number: int, kind: int = fcntl.LOCK_EX) -> bool:
    """Returns whether an open file or folder could be locked; true too where the file system has no locks."""
    try:
        fcntl.flock(number, kind | fcntl.LOCK_NB)
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


def _remove_abandoned(paths: Iterable[Path], remove: Callable[[Path], object]) -> None:
    """Removes those of the paths that no process holds."""
    for path in list(paths):
        with suppress(OSError), opened(path) as number:
            if _lock(number):
                remove(path)


def _remove_folder(path: Path) -> None:
    shutil.rmtree(path, ignore_errors=True)


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
    _remove_abandoned((each for each in parent.iterdir() if is_part(each, name)), _remove_folder)
    prefix = f".{name}." if name else "."
    partial, lock = _made_and_locked(
        lambda: Path(tempfile.mkdtemp(prefix=prefix, suffix=".partial", dir=parent)), os.O_RDONLY | os.O_DIRECTORY
    )
    try:
        yield partial
    finally:
        _remove_folder(partial)
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
    _remove_abandoned((each for each in path.parent.iterdir() if ours.fullmatch(each.name)), Path.unlink)
    part, lock = _made_and_locked(
        lambda: path.with_name(f"{path.name}.{secrets.token_hex(4)}.part"),  # containers have equal process numbers
        os.O_WRONLY | os.O_CREAT | os.O_EXCL,
    )
    with os.fdopen(lock, "wb") as file:
        try:
            yield part, file
        finally:
            part.unlink(missing_ok=True)


def is_part(path: Path, name: str = "") -> bool:
    """Returns whether a path is a folder that `part_folder` made for a name."""
    prefix = rf"\.{re.escape(name)}\." if name else r"\."
    return bool(re.fullmatch(rf"{prefix}{RANDOM}\.partial", path.name)) and path.is_dir() and not path.is_symlink()
