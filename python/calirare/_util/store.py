"""Finished work kept in files, one per item, from which a stopped job goes on: a file that is there is whole."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import torch
from torch import Tensor

from calirare._util.errors import InputError
from calirare._util.file_locks import part_file
from calirare._util.files import check_plain, parse_json, read_text

KEY = "key.txt"
DAMAGE = (OSError, ValueError, TypeError, LookupError, EOFError, zipfile.BadZipFile, zlib.error, MemoryError)
Item = TypeVar("Item")


def key_of(*parts: object) -> str:
    """Returns a checksum of everything a job depends on: numbers of tensors, whatever holds them, and plain values."""
    digest = hashlib.sha256()
    for chunk in _bytes_of(parts):
        digest.update(chunk)
    return digest.hexdigest()


def _bytes_of(part: Any) -> Iterator[bytes | memoryview]:
    if is_dataclass(part):  # what a `_name` holds is made of the rest
        part = tuple(getattr(part, f.name) for f in fields(part) if not f.name.startswith("_"))
    if isinstance(part, Tensor) and part.layout == torch.strided:
        yield f"{part.dtype}{list(part.shape)}".encode()
        yield part.detach().cpu().reshape(-1).numpy().data  # without a copy
    elif isinstance(part, Tensor):
        coo = part.detach().to_sparse_coo().coalesce()
        yield from _bytes_of((coo.indices(), coo.values(), str(part.shape)))
    elif isinstance(part, tuple):
        for inner in part:
            yield from _bytes_of(inner)
    else:
        yield pickle.dumps(part)


def write_whole(path: Path, save: Callable[[BinaryIO], object]) -> None:
    """Writes a file at once or not at all, its folder too: `save` writes into a part file, which is then renamed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with part_file(path) as (part, file):
        save(file)
        file.flush()
        os.fsync(file.fileno())  # else a power cut may leave the name without the content
        part.replace(path)


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


def write_json(path: Path, value: object) -> None:
    """Writes a value as JSON on one line, at once or not at all."""
    write_whole(path, lambda file: file.write((json.dumps(value) + "\n").encode()))


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
