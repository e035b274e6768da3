"""Arrays in files: archives, never pickled, single ones read page by page, tensors, and room for large matrices."""

from __future__ import annotations

import math
import mmap
import shutil
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from weakref import WeakValueDictionary

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.numpy import save_file
from torch import Tensor

from calirare._util.errors import InputError
from calirare._util.files import check_plain
from calirare._util.memory import SAFE_SHARE, free_bytes

NumpyArray = np.ndarray[Any, Any]


MAX_INT = 2**63 - 1
CHECKED = 1 << 24  # numbers in one step of a checksum
BOMB_BYTES, BOMB_RATIO = 1_000_000_000, 300  # an archive of more bytes, packed more tightly, is nothing but zeros
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
            _check_sizes(archive, path)
            return {key: _native(archive[key]) for key in archive.files}
    except InputError:
        raise
    except ValueError as error:
        if "allow_pickle" in str(error):
            raise InputError(
                f"{path}: the file holds pickled Python objects, which are never opened because they can run code: "
                "save plain arrays"
            ) from error
        raise InputError(f"{path}: the file is damaged ({error}): get it again") from error
    except Exception as error:  # zip, zlib and numpy's evaluation of headers raise whatever they meet
        raise InputError(f"{path}: the file is damaged or cut off ({error}): get it again") from error


def _native(array: NumpyArray) -> NumpyArray:
    """Returns an array in the byte order of this machine; a ValueError where text holds numbers of no character."""
    out = array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))
    if out.dtype.kind == "U" and out.size and out.dtype.itemsize:
        largest = int(np.ascontiguousarray(out).reshape(-1).view(np.uint32).max())
        if largest > sys.maxunicode:
            raise ValueError(f"text holds {largest:#x}, which is no character")
    return out


def _check_sizes(archive: Any, path: Path) -> None:
    """Checks, before memory is taken, what an archive will hold: against the free memory."""
    entries = archive.zip.infolist()
    total, packed = sum(entry.file_size for entry in entries), max(path.stat().st_size, 1)
    free = int(SAFE_SHARE * free_bytes(torch.device("cpu")))
    if total > free:
        raise InputError(
            f"{path}: the arrays in the file take {total / 1e9:.2f} GB and {free / 1e9:.2f} GB may be used: store "
            "features sparse, or write the graph as a folder, which is mapped (`Graph.to_folder`)"
        )
    if total > BOMB_BYTES and total > BOMB_RATIO * packed:
        raise InputError(
            f"{path}: the file of {packed / 1e6:.2f} MB holds arrays of {total / 1e9:.2f} GB, nearly all of it zeros: "
            "store features sparse, or the file with np.savez, uncompressed"
        )


def _header(file: Any) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Returns shape, order and type of an array in `.npy`, after the magic bytes, of which two are the version."""
    major = file.read(2)[0]
    read = np.lib.format.read_array_header_1_0 if major == 1 else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = read(file)
    return shape, fortran, dtype


@dataclass(frozen=True)
class ArrayFile:
    """An array in an `.npy` file, of which rows are read where they are wanted; nothing of it is mapped or kept.

    Attributes:
        path: the file.
        shape: of the array.
        dtype: of its numbers.
        start: where in the file they begin, in bytes.
    """

    path: Path
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    start: int

    @classmethod
    def open(cls, path: Path) -> Self:
        """Returns the array of a file whose header fits its length.

        Raises:
            InputError: the file is missing, damaged, of objects, or in another order than that of C.
        """
        shape, fortran, dtype, start = _checked_header(path)
        if fortran and len(shape) > 1:
            raise InputError(f"{path}: the array must be in the order of C, got that of Fortran: write it again")
        return cls(path, shape, dtype, start)

    def rows(self, first: int, last: int) -> NumpyArray:
        """Returns the rows [first, last) in memory of their own.

        Raises:
            InputError: they cannot be read.
        """
        out = np.empty((last - first, *self.shape[1:]), self.dtype)
        self._read(((first, _bytes(out)),))
        return out

    def rows_at(self, rows: NumpyArray) -> NumpyArray:
        """Returns some rows (int64 [r]), each read by itself: a map would bring the pages around it as well.

        Raises:
            InputError: they cannot be read.
        """
        out = np.empty((len(rows), *self.shape[1:]), self.dtype)
        width, into = self.dtype.itemsize * math.prod(self.shape[1:]), _bytes(out)
        self._read((row, into[i * width : (i + 1) * width]) for i, row in enumerate(rows.tolist()))
        return out

    def _read(self, parts: Iterable[tuple[int, memoryview]]) -> None:
        """Fills memory with what stands from a first row on."""
        width = self.dtype.itemsize * math.prod(self.shape[1:])
        try:
            with self.path.open("rb") as file:
                for first, into in parts:
                    file.seek(self.start + first * width)
                    if file.readinto(into) != into.nbytes:
                        raise InputError(f"{self.path}: the file was cut off while it was read: write the folder again")
        except OSError as error:
            raise InputError(f"{self.path}: cannot be read ({error.strerror}): write the folder again") from error


def _bytes(array: NumpyArray) -> memoryview:
    """Returns the memory of an array without gaps."""
    return array.reshape(-1).view(np.uint8).data


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


def integers(array: NumpyArray, what: str, path: Path | str) -> NumpyArray:
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
    if array.dtype.kind == "u" and array.size and int(array.max()) > MAX_INT:
        raise InputError(f"{path}: {what} must be below 2^63, got {int(array.max())}: write it again")
    return array.astype(np.int64, copy=False)


def map_array(path: Path) -> NumpyArray:
    """Returns the array of an `.npy` file without reading it; what is written to it stays in memory.

    Args:
        path: the file.

    Raises:
        InputError: the file is missing, damaged, or holds pickled objects.
    """
    shape, fortran, dtype, start = _checked_header(path)
    return known_mapped(np.memmap(path, dtype, "c", start, shape, "F" if fortran else "C"))


def _checked_header(path: Path) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
    """Returns shape, order (of Fortran?), type and first byte of the array in an `.npy` file, checked with its length.

    Raises:
        InputError: the file is missing, damaged, of objects or of another machine's byte order.
    """
    try:
        check_plain(path)
        with path.open("rb") as file:
            if file.read(len(np.lib.format.MAGIC_PREFIX)) != np.lib.format.MAGIC_PREFIX:
                raise ValueError("its first bytes are others")
            shape, fortran, dtype = _header(file)
            start = file.tell()
        claimed, held = math.prod(shape) * dtype.itemsize, path.stat().st_size - start
        if dtype.hasobject or not dtype.isnative:
            raise ValueError(f"it holds {dtype}")
        if claimed != held:
            raise ValueError(f"it claims {claimed:,} bytes and holds {held:,}")
    except FileNotFoundError as error:
        raise InputError(f"{path}: there is no such file: the folder is incomplete, write it again") from error
    except InputError:
        raise
    except Exception as error:  # numpy's reader of headers evaluates them, and raises whatever that raises
        raise InputError(f"{path}: the file is damaged, cut off or no .npy file ({error}): write it again") from error
    return shape, fortran, dtype, start


def known_mapped(array: np.memmap) -> NumpyArray:
    """Returns a mapped array, whose memory `release` can give back from now on."""
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
    mapping = None if array is None else getattr(array, "_mmap", None)
    if mapping is None or not _HAS_ADVICE:
        return False
    mapping.madvise(mmap.MADV_DONTNEED)
    return True


def checksum(tensor: Tensor) -> int:
    """Returns the CRC-32 of a tensor's bytes; a mapped one need not be in memory at once."""
    value = 0
    for part in tensor.detach().reshape(-1).split(CHECKED):
        value = zlib.crc32(part.cpu().numpy().data, value)
        release(tensor)
    return value


def file_checksum(path: Path) -> int:
    """Returns the CRC-32 of a plain file, read in parts.

    Raises:
        InputError: it is a pipe or a device.
        OSError: it cannot be read.
    """
    check_plain(path)
    value = 0
    with path.open("rb") as file:
        while part := file.read(CHECKED):
            value = zlib.crc32(part, value)
    return value


IN_MEMORY = 0.25  # share of the free memory that a matrix may take before it goes to a file
SMALL = 1 << 20  # bytes that need no look at the free memory, which takes a millisecond


def scratch(n_rows: int, n_columns: int, device: torch.device) -> Tensor:
    """Returns an uninitialised matrix, float32 [n_rows, n_columns].

    On the CPU it lies in a file of the folder for temporary files ($TMPDIR) where it would take more than a quarter of
    the free memory; the file has no name and goes with the matrix. `array_files.release` gives its pages back.

    Raises:
        InputError: the file would not fit.
    """
    needed = 4 * n_rows * n_columns
    if device.type != "cpu" or needed <= SMALL or needed <= IN_MEMORY * free_bytes(device):
        return torch.empty(n_rows, n_columns, device=device)
    folder, free = tempfile.gettempdir(), shutil.disk_usage(tempfile.gettempdir()).free
    if needed > free:
        raise InputError(
            f"{folder}: {needed / 1e9:.2f} GB are needed for what lies between two passes over the graph, "
            f"{free / 1e9:.2f} GB are free: name a folder with more room in the environment as TMPDIR"
        )
    with tempfile.TemporaryFile(dir=folder) as file:
        array = np.memmap(file, dtype=np.float32, mode="w+", shape=(n_rows, n_columns))
    return torch.from_numpy(known_mapped(array))


def write_tensors(tensors: Mapping[str, Tensor], path: Path, facts: Mapping[str, str]) -> None:
    """Writes tensors and texts to a file that everybody may read.

    `safetensors.torch.save_file` makes ctypes define a type for each size of a tensor in bytes. These types are never
    freed: about 30 KiB per run in a process that trains and saves many. Writing NumPy arrays makes no types.

    Args:
        tensors: of types that NumPy has, thus not bfloat16; they are copied, so they may share memory.
        path: of the file.
        facts: the texts. With more than one entry, safetensors writes them in random order.

    Raises:
        OSError: the file cannot be written.
    """
    arrays = {name: tensor.detach().cpu().numpy().copy() for name, tensor in tensors.items()}
    try:
        save_file(arrays, str(path), dict(facts))
    except SafetensorError as error:
        raise OSError(str(error)) from error
    path.chmod(0o644)  # safetensors leaves it to its owner alone
