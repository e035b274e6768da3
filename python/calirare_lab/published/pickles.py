"""Reads arrays out of Python pickles without running anything a pickle asks for.

A pickle is a program. Only the few names that numpy arrays, scipy's `csr_matrix` and `defaultdict(list)` need are
known here, and each stands for something inert of ours: not even numpy's own reconstruction runs. Any other name ends
the reading with a sentence.
"""

from __future__ import annotations

import io
import pickle
import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from calirare._util.errors import InputError

_PLAIN_DTYPE = re.compile(r"[biuf][1248]")


class _Dtype:
    """Stands in for numpy's dtype."""

    def __init__(self, code: Any, *_: Any) -> None:
        self.code = str(code)
        self.order = "="

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.order = str(state[1])

    def resolve(self) -> np.dtype[Any]:
        if not _PLAIN_DTYPE.fullmatch(self.code) or self.order not in ("<", ">", "=", "|"):
            raise pickle.UnpicklingError(f"an array of the type {self.code} is not a plain one")
        return np.dtype(self.order.replace("|", "=") + self.code)


class _Array:
    """Stands in for numpy's ndarray."""

    state: tuple[Any, ...] = ()

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.state = state

    def resolve(self) -> Any:
        _, shape, dtype, fortran, raw = self.state
        if dtype.code.startswith("O"):
            if shape != () or len(raw) != 1:
                raise pickle.UnpicklingError("an array of objects is not a plain one")
            return _resolve(raw[0])
        data = raw.encode("latin1") if isinstance(raw, str) else raw
        return np.frombuffer(data, dtype.resolve()).reshape(shape, order="F" if fortran else "C")


class _Sparse:
    """Stands in for scipy's csr_matrix."""

    state: dict[str, Any] = {}  # noqa: RUF012 - replaced, never changed

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.state = state

    def resolve(self) -> Any:
        import scipy.sparse as sp

        indptr, indices, data = (_resolve(self.state[key]) for key in ("indptr", "indices", "data"))
        matrix = sp.csr_matrix((data, indices, indptr), shape=tuple(self.state["_shape"]))
        matrix.check_format(full_check=True)
        return matrix


def _resolve(thing: Any) -> Any:
    """Returns what a stand-in stands for."""
    return thing.resolve() if isinstance(thing, (_Array, _Sparse)) else thing


def _encode(text: str, encoding: str) -> bytes:
    """Returns the bytes that Python 3 writes as text into old pickles."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"bytes must be written as latin1, not {encoding}")
    return text.encode("latin1")


_KNOWN: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): lambda *_: _Array(),
    ("numpy._core.multiarray", "_reconstruct"): lambda *_: _Array(),
    ("numpy", "ndarray"): None,
    ("numpy", "dtype"): _Dtype,
    ("scipy.sparse.csr", "csr_matrix"): _Sparse,
    ("scipy.sparse._csr", "csr_matrix"): _Sparse,
    ("collections", "defaultdict"): lambda *_: {},
    ("__builtin__", "list"): list,
    ("builtins", "list"): list,
    ("_codecs", "encode"): _encode,
}


class _Whole(io.BytesIO):
    """Bytes whose last line may not be cut off."""

    def readline(self, size: int | None = -1, /) -> bytes:
        line = super().readline(size)
        if not line.endswith(b"\n"):
            raise EOFError("a line is cut off")
        return line


class _RefusedError(Exception):
    """A pickle asks for a name that data does not need."""


class _Unpickler(pickle._Unpickler):
    """Knows the names above and no other.

    It is the one written in Python: the one in C takes gigabytes for a few bytes that claim a long text, or that many
    things are kept.
    """

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _KNOWN:
            raise _RefusedError(f"{module}.{name}")
        return _KNOWN[module, name]


def read_pickle(path: Path) -> Any:
    """Returns what a pickle file holds; see `unpickle`."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: the file cannot be read ({error.strerror}): check the path") from error
    return unpickle(data, path)


def unpickle(data: bytes, path: Path) -> Any:
    """Returns what a pickle holds.

    Args:
        data: the pickle, from Python 2 or 3.
        path: where it comes from, for the message.

    Returns:
        A numpy array, a scipy csr_matrix, or built-in dictionaries and lists of numbers.

    Raises:
        InputError: it is damaged or asks for anything but plain data.
    """
    try:
        return _resolve(_Unpickler(_Whole(data), encoding="latin1").load())
    except _RefusedError as error:
        raise InputError(
            f"{path}: the file asks Python for {error}, which data does not need and which can run code; nothing was "
            "run: get the file again from its source"
        ) from error
    # A damaged pickle can fail anywhere in the reading, so any error of it is one.
    except Exception as error:
        raise InputError(
            f"{path}: the file is damaged or cut off ({type(error).__name__}: {error}): get it again"
        ) from error


def open_pickled_arrays(path: Path) -> dict[str, Any]:
    """Returns every array of an `.npz` archive, those that numpy would need a pickle for through `unpickle`.

    Raises:
        InputError: the file is missing or damaged, or a pickle in it asks for anything but plain data.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members = {name.removesuffix(".npy"): archive.read(name) for name in archive.namelist()}
    except (OSError, zipfile.BadZipFile) as error:
        raise InputError(f"{path}: the file is missing, damaged or cut off ({error}): get it again") from error
    return {name: _read_member(data, path) for name, data in members.items()}


def _read_member(data: bytes, path: Path) -> Any:
    """Returns one array of an archive."""
    stream = io.BytesIO(data)
    try:
        version = np.lib.format.read_magic(stream)
        read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        _, _, dtype = read_header(stream)
        if dtype.kind != "O":
            return np.load(io.BytesIO(data), allow_pickle=False)
    except ValueError as error:
        raise InputError(f"{path}: the file is damaged ({error}): get it again") from error
    return unpickle(stream.read(), path)
