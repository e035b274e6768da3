"""Arrays written to files row by row, with the checksums of the files known at the end without reading them."""

from __future__ import annotations

import zlib
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from calirare._util.array_files import NumpyArray

POLYNOMIAL = 0xEDB88320  # of CRC-32, lowest power first
ONE = 1 << 31  # the polynomial 1 in that order


class ArrayWriter:
    """An `.npy` file that grows by rows; leaving its `with` block writes the number of rows into the header.

    Attributes:
        n_rows: rows written so far.
        checksum: CRC-32 of the whole file, once the block is left; as `file_checksum` finds it.
    """

    def __init__(self, path: Path, dtype: str, n_columns: int | None = None) -> None:
        """Opens the file.

        Args:
            path: the file, written anew.
            dtype: of the array, such as "float32".
            n_columns: of a matrix; None for a vector.

        Raises:
            OSError: the file cannot be written.
        """
        self.n_rows, self.checksum = 0, 0
        self._dtype, self._columns = np.dtype(dtype), () if n_columns is None else (n_columns,)
        self._file, self._body = path.open("wb"), 0
        self._write_header()
        self._start = self._file.tell()

    def append(self, rows: NumpyArray) -> None:
        """Writes rows of the file's dtype, in C order."""
        if rows.dtype != self._dtype or rows.shape[1:] != self._columns:
            raise TypeError(f"append: rows must be {self._dtype} [n{self._columns}], got {rows.dtype} {rows.shape}")
        if len(rows):  # an empty array has no bytes to look at
            data = np.ascontiguousarray(rows).data.cast("B")
            self._file.write(data)
            self._body = zlib.crc32(data, self._body)
            self.n_rows += len(rows)

    def _write_header(self) -> None:
        """Writes a header, which is as long for any number of rows: numpy pads it to multiples of 64 bytes."""
        header = {"descr": np.lib.format.dtype_to_descr(self._dtype), "fortran_order": False}
        np.lib.format.write_array_header_1_0(self._file, header | {"shape": (self.n_rows, *self._columns)})

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._file:
            if kind is not None:
                return
            n_bytes = self._file.tell() - self._start
            self._file.seek(0)
            self._write_header()
            if self._file.tell() != self._start:
                raise RuntimeError(f"{self._file.name}: numpy wrote a longer header for {self.n_rows} rows")
        with open(self._file.name, "rb") as file:
            self.checksum = joined_checksum(zlib.crc32(file.read(self._start)), self._body, n_bytes)


def joined_checksum(first: int, second: int, n_bytes: int) -> int:
    """Returns the CRC-32 of two pieces, one after the other, from the CRC-32 of each.

    A CRC is a remainder of polynomials over GF(2): the first is multiplied by x^(8 n_bytes), the second is added.

    Args:
        first: CRC-32 of the first piece.
        second: CRC-32 of the second piece.
        n_bytes: length of the second piece.
    """
    shift, power = ONE, ONE >> 8  # 1 and x^8
    while n_bytes:
        if n_bytes & 1:
            shift = _times(shift, power)
        power = _times(power, power)
        n_bytes >>= 1
    return _times(shift, first) ^ second


def _times(a: int, b: int) -> int:
    """Returns the product of two polynomials over GF(2), modulo that of CRC-32; bit 31 is the power 0."""
    product = 0
    for place in range(31, -1, -1):
        if a >> place & 1:
            product ^= b
        b = b >> 1 ^ (POLYNOMIAL if b & 1 else 0)
    return product
