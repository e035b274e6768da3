"""What must outlive a power cut: contents on the disk before the name that says they are there."""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path

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
