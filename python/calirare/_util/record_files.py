"""Append-only files of records, a line of JSON each with its CRC-32: durable, of one writer, whole after a crash."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any
from zlib import crc32

from calirare._util.claims import claimed
from calirare._util.durable import sync
from calirare._util.errors import InputError
from calirare._util.files import check_plain, parse_json


class RecordFile:
    """A file that records are added to, held by this process alone until `close`.

    A record is on the disk when `append` returns. A last line that a crash cut off is dropped when the file is read.

    Args:
        path: the file; made where it is not there.
        header: what its first line says; a file with another is refused and left as it is.
        what: put in front of a message.

    Raises:
        InputError: another process holds the file, it has another header, or it cannot be written.

    Attributes:
        notes: what was dropped, a sentence each.
    """

    def __init__(self, path: Path, header: dict[str, Any], what: str) -> None:
        self.path, self.what, self.notes = path, what, tuple[str, ...]()
        self._header, self._end, self._broken = _line(header), 0, False
        with ExitStack() as stack:
            try:
                stack.enter_context(claimed(path, what))
                self._number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o644)
                stack.callback(os.close, self._number)
                check_plain(path, what)
                self._begin(str(header["format"]))
            except OSError as error:
                raise InputError(
                    f"{what}: the file cannot be written ({error.strerror}): make its folder or choose another"
                ) from error
            self._held = stack.pop_all()

    def _begin(self, form: str) -> None:
        """Checks the header; writes that of a new file, or of one whose header a crash cut off.

        Raises:
            InputError: the file has another header.
        """
        with self.path.open("rb") as file:
            first = file.read(len(self._header))
            if first != self._header and not self._header.startswith(first):
                file.seek(0)
                said = _parsed(file.readline())
                if isinstance(said, dict) and said.get("format") == form:
                    raise InputError(
                        f"{self.what}: it belongs to another graph than this: name the graph that it was begun on, or "
                        "another file"
                    )
                raise InputError(f"{self.what}: the file is no {form}: name another")
        if first != self._header:
            os.ftruncate(self._number, 0)
            self._write(self._header, 0)
            sync(self.path.parent)
        self._end = len(self._header)

    def read(self) -> Iterator[tuple[int, Any]]:
        """Yields the number of the line of each record and the record; to be read to the end before `append`.

        Raises:
            InputError: a line before the last is damaged.
        """
        torn = 0
        with self.path.open("rb") as file:
            file.seek(self._end)
            for number, line in enumerate(file, 2):
                if torn:
                    raise InputError(
                        f"{self.what}: line {torn} is damaged, and others follow it: restore the file from a copy"
                    )
                record = _parsed(line)
                if record is None:
                    torn = number
                    continue
                yield number, record
                self._end += len(line)
        if torn:
            self._cut()
            self.notes += (f"{self.what}: the last record, line {torn}, was cut off by a crash and is dropped",)

    def append(self, record: Any) -> None:
        """Adds a record; when this returns it is on the disk, when it raises it is not in the file.

        Raises:
            InputError: it cannot be written, or the file is closed.
        """
        if self._broken:
            raise InputError(f"{self.what}: the file is closed, or writing to it failed before: open it again")
        line = _line(record)
        try:
            self._write(line, self._end)
        except OSError as error:
            self._cut()
            raise InputError(f"{self.what}: the record cannot be written ({error.strerror}): make room") from error
        except BaseException:
            self._cut()
            raise
        self._end += len(line)

    def close(self) -> None:
        """Lets another process write."""
        self._broken = True
        self._held.close()

    def _write(self, data: bytes, at: int) -> None:
        done = 0
        while done < len(data):
            done += os.pwrite(self._number, data[done:], at + done)
        os.fsync(self._number)

    def _cut(self) -> None:
        """Removes what lies behind the last whole record; no more is written where that fails."""
        self._broken = True
        with suppress(OSError):
            os.ftruncate(self._number, self._end)
            os.fsync(self._number)
            self._broken = False


def _line(record: Any) -> bytes:
    """Returns the line of a record."""
    text = json.dumps(record, separators=(",", ":"), allow_nan=False).encode()
    return b"%08x %s\n" % (crc32(text), text)


def _parsed(line: bytes) -> Any:
    """Returns the record of a line, None where it is not whole."""
    text = line[9:-1]
    if line[-1:] != b"\n" or line[:9] != b"%08x " % crc32(text):
        return None
    try:
        return parse_json(text)
    except ValueError:
        return None
