"""Files from outside, plain ones of a bounded size, and what must outlive a power cut: contents before names."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import stat
from pathlib import Path
from typing import Any

from calirare._util.errors import InputError

MOST_TEXT = 1 << 24  # bytes of a file of settings or facts; ours have some thousands


def check_plain(path: Path, what: str = "", most: int | None = None) -> None:
    """Checks that a path is a plain file of a bounded size, before it is opened: opening a pipe may wait for ever.

    Args:
        path: the file; links are followed.
        what: put in front of a message, such as "config c.yaml"; none: the path.
        most: bytes that it may hold; None: any number.

    Raises:
        InputError: it is a pipe or a device, or is too large.
        OSError: it is not there, is a folder or cannot be looked at.
    """
    found, what = path.stat(), what or str(path)
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(found.st_mode):
        raise InputError(f"{what}: must be a plain file, got a pipe or a device: copy its content to a file")
    if most is not None and found.st_size > most:
        raise InputError(f"{what}: must be at most {most:,} bytes, got {found.st_size:,}: this is another file")


def read_text(path: Path, what: str = "", most: int = MOST_TEXT) -> str:
    """Returns the text of a plain file in UTF-8; see `check_plain`.

    Raises:
        InputError: it is no plain file or too large.
        OSError: it cannot be read.
        UnicodeDecodeError: it is not UTF-8.
    """
    check_plain(path, what, most)
    return path.read_text(encoding="utf-8")


def parse_json(text: str | bytes) -> Any:
    """Returns a value of JSON; what is nested too deeply or has too many digits is a ValueError like any other."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


_AT_FDCWD, _EXCHANGE = -100, 2  # linux/fcntl.h, linux/fs.h


def sync(path: Path) -> None:
    """Waits until a file, or the names in a folder, are on the disk."""
    number = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(number)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # a file system that cannot
            raise
    finally:
        os.close(number)


def sync_folder(folder: Path) -> None:
    """Waits until all files of a folder, and then their names, are on the disk."""
    for path in sorted(folder.iterdir()):
        if path.is_file():
            sync(path)
    sync(folder)


def exchange(first: Path, second: Path) -> bool:
    """Lets two paths change places in one step, so that at no moment one of them is missing.

    Args:
        first: a file or folder.
        second: another on the same file system.

    Returns:
        Whether it was done; false where the system or the file system cannot.

    Raises:
        OSError: it can, but not with these paths.
    """
    library = ctypes.CDLL(None, use_errno=True)
    if not hasattr(library, "renameat2"):  # glibc 2.28 and later, musl, not macOS
        return False
    if library.renameat2(_AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second), _EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
        return False
    raise OSError(number, os.strerror(number), str(first))
