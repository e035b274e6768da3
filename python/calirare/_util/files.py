"""Files that come from outside: plain ones of a bounded size, never a pipe or a device that a reader waits for."""

from __future__ import annotations

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
