"""Tensors that live in files: read page by page when touched, and given back when no longer needed."""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import torch
from torch import Tensor

from calirare._util.errors import InputError

Array = np.ndarray[Any, Any]

# The arrays behind mapped tensors by address: `release` must never touch memory that no file stands behind. numpy makes
# the memmap the owner of a tensor's memory, so an entry lives as long as any tensor on it.
_MAPPED: WeakValueDictionary[int, np.memmap] = WeakValueDictionary()
_HAS_ADVICE = hasattr(mmap, "MADV_DONTNEED")  # not on Windows


def map_array(path: Path) -> Array:
    """Returns the array of an `.npy` file without reading it; what is written to it stays in memory.

    Args:
        path: the file.

    Returns:
        The array, memory-mapped.

    Raises:
        InputError: the file is missing, damaged, or holds pickled objects.
    """
    try:
        array = np.load(path, mmap_mode="c", allow_pickle=False)
    except FileNotFoundError as error:
        raise InputError(f"{path}: there is no such file: the folder is incomplete, write it again") from error
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"{path}: the file is damaged, cut off or no .npy file ({error}): write it again") from error
    if isinstance(array, np.memmap):
        _MAPPED[array.ctypes.data] = array
    return array


def map_tensor(path: Path) -> Tensor:
    """Returns the tensor in an `.npy` file without reading it; see `map_array`."""
    return torch.from_numpy(map_array(path))


def release(tensor: Tensor) -> bool:
    """Gives the memory of a mapped tensor back to the system; it is read again where it is touched again.

    Args:
        tensor: any tensor; nothing happens where no file stands behind it.

    Returns:
        Whether memory was given back.
    """
    array = _MAPPED.get(tensor.untyped_storage().data_ptr()) if tensor.device.type == "cpu" else None
    return array is not None and release_array(array)


def release_array(array: Array) -> bool:
    """Gives the memory of a mapped array back, as `release`; what was written to a file's array stays in the file."""
    mapping = getattr(array, "_mmap", None)
    if mapping is None or not _HAS_ADVICE:
        return False
    mapping.madvise(mmap.MADV_DONTNEED)
    return True
