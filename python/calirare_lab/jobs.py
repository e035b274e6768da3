"""Long jobs: worker processes, and finished work kept in files, one per item, from which a stopped job goes on."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from calirare._util.errors import InputError
from calirare._util.files import check_plain, parse_json, read_text
from calirare._util.store import write_whole

KEY = "key.txt"
DAMAGE = (OSError, ValueError, TypeError, LookupError, EOFError, zipfile.BadZipFile, zlib.error, MemoryError)
Item = TypeVar("Item")


@contextmanager
def workers(
    jobs: int, initializer: Callable[..., None] | None = None, initargs: tuple[Any, ...] = ()
) -> Iterator[ProcessPoolExecutor]:
    """Gives a pool of processes that end with whatever ends the work, and not when they have finished theirs.

    Args:
        jobs: processes.
        initializer: called in each process when it starts.
        initargs: with these.
    """
    # Spawned, not forked: torch's threads do not survive a fork.
    pool = ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=initializer, initargs=initargs)
    try:
        yield pool
    except BaseException:
        for process in list((pool._processes or {}).values()):
            process.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def read_whole(path: Path, load: Callable[[BinaryIO], Item], wrote: str) -> Item:
    """Returns what `load` makes of a file.

    Args:
        path: the file.
        load: reads the open file; may raise what numpy, json or a missing key raise.
        wrote: what the file should be, for the message: "a cell that `calirare paper` wrote".

    Raises:
        InputError: the file is missing or damaged.
    """
    try:
        check_plain(path)
        with path.open("rb") as file:
            return load(file)
    except InputError:
        raise
    except DAMAGE as error:
        raise InputError(f"{path} must be {wrote}, but is damaged ({error}): delete it and run again") from error


def read_json(path: Path, keys: Iterable[str], wrote: str) -> dict[str, Any]:
    """Returns what `write_json` wrote, where it holds all the keys; otherwise as `read_whole`."""

    def load(file: BinaryIO) -> dict[str, Any]:
        value: dict[str, Any] = parse_json(file.read())
        for key in keys:
            if key not in value:
                raise LookupError(f"there is no {key!r}")
        return value

    return read_whole(path, load, wrote)


@dataclass(frozen=True)
class Store:
    """A folder with one file per finished item of one problem.

    Attributes:
        folder: made where it is not there.
        key: of the problem, from `key_of`.
        wrote: what each file is, for messages: "a retraining".
        of: what must be the same for all of them, for messages: "network, graph or weight decay".

    Raises:
        InputError: the folder holds items of another problem, or cannot be written.
    """

    folder: Path
    key: str
    wrote: str
    of: str

    def __post_init__(self) -> None:
        """Makes the folder and writes the key, or checks the one that is there."""
        name = self.folder / KEY
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            if not name.exists():
                write_whole(name, lambda file: file.write(f"{self.key}\n".encode()))
            found = read_text(name).strip()
        except OSError as error:
            raise InputError(f"{self.folder}: the folder cannot be used: {error.strerror or error}") from error
        if found != self.key:
            raise InputError(f"{self.folder}: the folder belongs to another {self.of}: give another folder")

    def path(self, name: str) -> Path:
        """Returns the file of an item."""
        return self.folder / name

    def has(self, name: str) -> bool:
        """Returns whether an item is finished."""
        return self.path(name).is_file()

    def write(self, name: str, save: Callable[[BinaryIO], object]) -> None:
        """Keeps a finished item (`write_whole`)."""
        write_whole(self.path(name), save)

    def read(self, name: str, load: Callable[[BinaryIO], Item]) -> Item:
        """Returns a finished item (`read_whole`)."""
        return read_whole(self.path(name), load, self.wrote)
