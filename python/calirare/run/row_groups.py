"""Tables as row groups of one Parquet file, written as they are made."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from calirare._util.errors import InputError


def parquet_writer() -> Callable[[Path, Iterator[dict[str, Any]]], None]:
    """Returns what writes tables, at least one, as row groups of one Parquet file.

    Raises:
        InputError: pyarrow is missing.
    """
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise InputError("predict: --scores-only writes Parquet and needs pyarrow: pip install pyarrow") from error

    def write(path: Path, tables: Iterator[dict[str, Any]]) -> None:
        file = None
        try:
            for table in tables:
                rows = pyarrow.table(table)
                # Hardly any two probabilities are equal: neither packing nor a dictionary makes them fewer bytes.
                packing = {name: "snappy" if name == "node" else "none" for name in table}
                file = file or parquet.ParquetWriter(path, rows.schema, compression=packing, use_dictionary=False)
                file.write_table(rows)
        finally:
            if file is not None:
                file.close()

    return write
