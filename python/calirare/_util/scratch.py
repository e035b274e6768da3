"""Room for matrices of all nodes of a large graph: memory, or where it would take too much of it a file."""

from __future__ import annotations

import shutil
import tempfile

import numpy as np
import torch
from torch import Tensor

from calirare._util.array_files import known_mapped
from calirare._util.errors import InputError
from calirare._util.memory import free_bytes

IN_MEMORY = 0.25  # share of the free memory that a matrix may take before it goes to a file


def scratch(n_rows: int, n_columns: int, device: torch.device) -> Tensor:
    """Returns an uninitialised matrix, float32 [n_rows, n_columns].

    On the CPU it lies in a file of the folder for temporary files ($TMPDIR) where it would take more than a quarter of
    the free memory; the file has no name and goes with the matrix. `array_files.release` gives its pages back.

    Raises:
        InputError: the file would not fit.
    """
    needed = 4 * n_rows * n_columns
    if device.type != "cpu" or needed <= IN_MEMORY * free_bytes(device):
        return torch.empty(n_rows, n_columns, device=device)
    return in_file(n_rows, n_columns)


def in_file(n_rows: int, n_columns: int) -> Tensor:
    """Returns the same in a file; see `scratch`."""
    folder, needed = tempfile.gettempdir(), 4 * n_rows * n_columns
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise InputError(
            f"{folder}: {needed / 1e9:.2f} GB are needed for what lies between two passes over the graph, "
            f"{free / 1e9:.2f} GB are free: name a folder with more room in the environment as TMPDIR"
        )
    with tempfile.TemporaryFile(dir=folder) as file:
        array = np.memmap(file, dtype=np.float32, mode="w+", shape=(n_rows, n_columns))
    return torch.from_numpy(known_mapped(array))
