"""Finished blocks of rows on disk: what several processes share, and what a stopped job resumes from."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from torch import Tensor

from calirare._util.array_files import map_tensor
from calirare._util.errors import InputError

KEY = "job.json"


@dataclass(frozen=True)
class BlockFiles:
    """A folder with one `.npy` file per matrix, written a block of rows at a time, and a mark per finished block.

    Attributes:
        folder: where.
    """

    folder: Path

    def start(self, key: str) -> bool:
        """Prepares the folder for a job; blocks of another job are removed.

        Args:
            key: of the job, from `store.key_of`.

        Returns:
            Whether blocks of the same job are there already.

        Raises:
            InputError: the folder cannot be written, or is none that this class made.
        """
        try:
            if self.folder.exists():
                if self._key() == key:
                    return any(self.folder.glob("*.done"))
                self.remove()
            self.folder.mkdir(parents=True)
            (self.folder / KEY).write_text(json.dumps({"job": key}) + "\n", encoding="utf-8")
        except OSError as error:
            raise InputError(f"{self.folder}: blocks cannot be written: {error.strerror or error}") from error
        return False

    def _key(self) -> str | None:
        try:
            return str(json.loads((self.folder / KEY).read_text(encoding="utf-8"))["job"])
        except (OSError, ValueError, LookupError, TypeError):
            return None

    def remove(self) -> None:
        """Removes the folder where it holds blocks; a folder of anything else stays.

        Raises:
            InputError: the folder holds something else.
        """
        if not self.folder.exists():
            return
        if any(self.folder.iterdir()) and not (self.folder / KEY).is_file():
            raise InputError(f"{self.folder}: holds something else than unfinished blocks: move it away")
        shutil.rmtree(self.folder)

    def create(self, name: str, rows: int, columns: int) -> None:
        """Makes the file of a float32 matrix [rows, columns] where it is not there; its blocks are still unwritten."""
        path = self.folder / f"{name}.npy"
        if path.exists():
            return
        partial = path.with_suffix(".partial")
        with partial.open("wb") as file:
            np.lib.format.write_array_header_1_0(
                file, {"descr": "<f4", "fortran_order": False, "shape": (rows, columns)}
            )
            file.truncate(file.tell() + 4 * rows * columns)
        os.replace(partial, path)

    def write(self, name: str, first: int, block: Tensor) -> None:
        """Writes rows `first` and on of a matrix; plainly, so that what was written takes no memory of this process."""
        path = self.folder / f"{name}.npy"
        array = np.ascontiguousarray(block.detach().cpu().numpy(), dtype=np.float32)
        with path.open("r+b") as file:
            np.lib.format.read_magic(file)
            np.lib.format.read_array_header_1_0(file)
            file.seek(file.tell() + 4 * first * array.shape[1])
            file.write(array.data)

    def read(self, name: str) -> Tensor:
        """Returns a matrix, memory-mapped."""
        return map_tensor(self.folder / f"{name}.npy")

    def is_done(self, stage: str, block: int) -> bool:
        """Returns whether a block of a stage is finished."""
        return self._mark(stage, block).exists()

    def done(self, stage: str, block: int) -> None:
        """Marks a block as finished."""
        self._mark(stage, block).touch()

    def count(self, stage: str) -> int:
        """Returns how many blocks of a stage are finished."""
        return sum(1 for _ in self.folder.glob(f"{stage}-*.done"))

    def _mark(self, stage: str, block: int) -> Path:
        return self.folder / f"{stage}-{block:07d}.done"
