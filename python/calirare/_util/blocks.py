"""Finished blocks of rows on disk, which a stopped job resumes from.

A block's mark is written when its numbers are on the disk, and holds their checksums: on a start that resumes, blocks
that are not what was written are made again.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from calirare._util.array_files import checksum, map_tensor, release
from calirare._util.errors import InputError
from calirare._util.files import parse_json, read_text
from calirare._util.store import write_json

KEY = "job.json"


@dataclass(frozen=True)
class BlockFiles:
    """A folder with one `.npy` file per matrix, written a block of rows at a time, and a mark per finished block.

    Attributes:
        folder: where.
    """

    folder: Path

    def inside(self, name: str) -> BlockFiles:
        """Returns the folder of a part of the job."""
        return BlockFiles(self.folder / name)

    @contextmanager
    def resumable(self) -> Iterator[None]:
        """Prints that finished blocks are kept where what is within is stopped and there are some."""
        try:
            yield
        except (KeyboardInterrupt, SystemExit):
            if self.folder.is_dir():
                note = f"calirare: finished blocks are kept in {self.folder}: the same command goes on from there"
                print(note, file=sys.stderr)
            raise

    def start(self, key: str) -> bool:
        """Prepares the folder for a job, by a key from `store.key_of`; blocks of another job are removed.

        Returns:
            Whether blocks of the same job are there already.

        Raises:
            InputError: the folder cannot be written, or is none that this class made.
        """
        try:
            if self.folder.exists():
                if self._job() == key:
                    return self.keep_whole_blocks()
                self.remove()
            self.folder.mkdir(parents=True)
            (self.folder / KEY).write_text(json.dumps({"job": key}) + "\n", encoding="utf-8")
        except OSError as error:
            raise InputError(f"{self.folder}: blocks cannot be written: {error.strerror or error}") from error
        return False

    def _job(self) -> str | None:
        """Returns the key that `start` was given, None where the folder has none."""
        try:
            return parse_json(read_text(self.folder / KEY))["job"]
        except (OSError, ValueError, TypeError, LookupError):
            return None

    def keep_whole_blocks(self) -> bool:
        """Removes the marks of blocks whose numbers are gone or changed; returns whether one is left."""
        arrays: dict[str, Tensor | None] = {}
        for mark in sorted(self.folder.glob("*.done")):
            try:
                parts = parse_json(read_text(mark))
                whole = bool(parts) and all(self._is_whole(arrays, *part) for part in parts)
            except (OSError, ValueError, TypeError, LookupError):
                whole = False
            if not whole:
                mark.unlink(missing_ok=True)
        for array in arrays.values():
            if array is not None:
                release(array)
        return any(self.folder.glob("*.done"))

    def _is_whole(self, arrays: dict[str, Tensor | None], name: str, first: int, rows: int, expected: int) -> bool:
        """Returns whether rows of a matrix are those with a checksum; a matrix that cannot be read is removed."""
        if name not in arrays:
            try:
                arrays[name] = self.read(name)
            except InputError:
                (self.folder / f"{name}.npy").unlink(missing_ok=True)
                arrays[name] = None
        array = arrays[name]
        if array is None or not 0 <= first < first + rows <= len(array):
            return False
        return checksum(array[first : first + rows]) == expected

    def remove(self) -> None:
        """Removes the folder where it holds blocks; a folder of anything else stays.

        Raises:
            InputError: the folder holds something else.
        """
        if not self.folder.exists():
            return
        if any(self.folder.iterdir()) and not (self.folder / KEY).is_file():
            raise InputError(f"{self.folder}: holds something else than unfinished blocks: move it away")
        shutil.rmtree(self.folder, ignore_errors=True)

    def create(self, name: str, rows: int, columns: int) -> None:
        """Makes the file of a float32 matrix [rows, columns] where it is not there; its blocks are still unwritten."""
        path = self.folder / f"{name}.npy"
        if path.exists() and self._fits(name, rows, columns):
            return
        partial = path.with_suffix(".partial")
        with partial.open("wb") as file:
            np.lib.format.write_array_header_1_0(
                file, {"descr": "<f4", "fortran_order": False, "shape": (rows, columns)}
            )
            file.truncate(file.tell() + 4 * rows * columns)
        os.replace(partial, path)

    def _fits(self, name: str, rows: int, columns: int) -> bool:
        try:
            found = self.read(name)
        except InputError:
            return False
        return found.shape == (rows, columns) and found.dtype == torch.float32

    def write(self, name: str, first: int, block: Tensor) -> tuple[str, int, int, int]:
        """Writes rows `first` and on of a matrix; plainly, so that what was written takes no memory of this process.

        Returns:
            Name, first row, number of rows and checksum: what `done` keeps.
        """
        path = self.folder / f"{name}.npy"
        array = np.ascontiguousarray(block.detach().cpu().numpy(), dtype=np.float32)
        with path.open("r+b") as file:
            np.lib.format.read_magic(file)
            np.lib.format.read_array_header_1_0(file)
            file.seek(file.tell() + 4 * first * array.shape[1])
            file.write(array.data)
            file.flush()
            os.fsync(file.fileno())
        return name, first, len(array), checksum(torch.from_numpy(array))

    def keep(self, stage: str, first: int, block: Tensor) -> None:
        """Writes rows `first` and on of the matrix that a stage makes, and marks the block that begins there."""
        self.done(stage, first, self.write(stage, first, block))

    def left(self, stage: str, blocks: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Returns the blocks of a stage, first rows and ends, that are not marked by their first row."""
        return [block for block in blocks if not self._mark(stage, block[0]).exists()]

    def read(self, name: str) -> Tensor:
        """Returns a matrix, memory-mapped."""
        return map_tensor(self.folder / f"{name}.npy")

    def done(self, stage: str, block: int, *parts: tuple[str, int, int, int]) -> None:
        """Marks a block as finished; `parts` is what `write` returned of it."""
        write_json(self._mark(stage, block), parts)

    def _mark(self, stage: str, block: int) -> Path:
        return self.folder / f"{stage}-{block:07d}.done"
