"""Arrays in files: archives, never pickled, and single ones that are read page by page and given back."""

from __future__ import annotations

import mmap
import zipfile
import zlib
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import torch
from torch import Tensor

from calirare._util.errors import InputError

NumpyArray = np.ndarray[Any, Any]

CHECKED = 1 << 24  # numbers in one step of a checksum
# The arrays behind mapped tensors by address: `release` must never touch memory that no file stands behind. numpy makes
# the memmap the owner of a tensor's memory, so an entry lives as long as any tensor on it.
_MAPPED: WeakValueDictionary[int, np.memmap] = WeakValueDictionary()
_HAS_ADVICE = hasattr(mmap, "MADV_DONTNEED")  # not on Windows


def open_arrays(path: Path) -> dict[str, NumpyArray]:
    """Returns every array of an `.npz` archive by name.

    Args:
        path: the file.

    Raises:
        InputError: the file is missing, damaged, cut off, no archive, or holds pickled objects.
    """
    if not path.is_file():
        raise InputError(f"{path}: there is no such file: check the path")
    if not zipfile.is_zipfile(path):
        raise InputError(f"{path}: the file is damaged, cut off or not an .npz archive: get it again")
    try:
        # numpy leaves a file open that it opened itself and could not read.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            return {key: archive[key] for key in archive.files}
    except ValueError as error:
        if "allow_pickle" in str(error):
            raise InputError(
                f"{path}: the file holds pickled Python objects, which are never opened because they can run code: "
                "save plain arrays"
            ) from error
        raise InputError(f"{path}: the file is damaged ({error}): get it again") from error
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, MemoryError, NotImplementedError, RuntimeError) as error:
        raise InputError(f"{path}: the file is damaged or cut off ({error}): get it again") from error


def require(arrays: dict[str, NumpyArray], keys: tuple[str, ...], path: Path) -> None:
    """Checks that the archive of a file holds the named arrays.

    Raises:
        InputError: one is missing.
    """
    missing = [key for key in keys if key not in arrays]
    if missing:
        raise InputError(
            f"{path}: the file must hold {', '.join(keys)}, but {', '.join(missing)} is missing (it has "
            f"{', '.join(sorted(arrays)) or 'nothing'}): see the description of the .npz format"
        )


def integers(array: NumpyArray, what: str, path: Path) -> NumpyArray:
    """Returns a vector of whole numbers as int64, not copied where it is that already.

    Args:
        array: the vector.
        what: how a message calls it.
        path: where it comes from, for the message.

    Raises:
        InputError: it is no vector of integers.
    """
    if array.dtype.kind == "b":
        raise InputError(
            f"{path}: {what} must hold whole numbers, got a mask of shape {array.shape}: write its indices, "
            "np.flatnonzero(mask)"
        )
    if array.dtype.kind not in "iu" or array.ndim != 1:
        raise InputError(f"{path}: {what} must be a vector of whole numbers, got {array.dtype} of shape {array.shape}")
    return array.astype(np.int64, copy=False)


def map_array(path: Path) -> NumpyArray:
    """Returns the array of an `.npy` file without reading it; what is written to it stays in memory.

    Args:
        path: the file.

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


def release_array(array: NumpyArray) -> bool:
    """Gives the memory of a mapped array back, as `release`; what was written to a file's array stays in the file."""
    mapping = getattr(array, "_mmap", None)
    if mapping is None or not _HAS_ADVICE:
        return False
    mapping.madvise(mmap.MADV_DONTNEED)
    return True


def checksum(tensor: Tensor, value: int = 0) -> int:
    """Returns the CRC-32 of a tensor's bytes, going on from `value`; a mapped one need not be in memory at once."""
    for part in tensor.detach().reshape(-1).split(CHECKED):
        value = zlib.crc32(part.cpu().numpy().data, value)
        release(tensor)
    return value
