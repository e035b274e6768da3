"""Opens `.npz` archives from anywhere: never pickles, and each fault one sentence that names the file."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path

import numpy as np

from calirare._util.errors import InputError
from calirare.graph.edges import Array


def open_arrays(path: Path) -> dict[str, Array]:
    """Returns every array of an `.npz` archive.

    Args:
        path: the file.

    Returns:
        The arrays by name.

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


def require(arrays: dict[str, Array], keys: tuple[str, ...], path: Path) -> None:
    """Checks that an archive holds the named arrays.

    Args:
        arrays: the archive.
        keys: names that must be there.
        path: for the message.

    Raises:
        InputError: one is missing.
    """
    missing = [key for key in keys if key not in arrays]
    if missing:
        raise InputError(
            f"{path}: the file must hold {', '.join(keys)}, but {', '.join(missing)} is missing (it has "
            f"{', '.join(sorted(arrays)) or 'nothing'}): see the description of the .npz format"
        )


def integers(array: Array, what: str, path: Path) -> Array:
    """Returns a vector of whole numbers as int64.

    Args:
        array: the vector.
        what: how a message calls it.
        path: for the message.

    Returns:
        The vector, not copied where it fits.

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
