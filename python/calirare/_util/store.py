"""Files that are there as a whole or not at all, and a checksum of what a job depends on."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

from calirare._util.file_locks import part_file


def key_of(*parts: object) -> str:
    """Returns a checksum of everything a job depends on: numbers of tensors, whatever holds them, and plain values."""
    digest = hashlib.sha256()
    for chunk in _bytes_of(parts):
        digest.update(chunk)
    return digest.hexdigest()


def _bytes_of(part: Any) -> Iterator[bytes | memoryview]:
    if is_dataclass(part):  # what a `_name` holds is made of the rest
        part = tuple(getattr(part, f.name) for f in fields(part) if not f.name.startswith("_"))
    if isinstance(part, Tensor) and part.layout == torch.strided:
        yield f"{part.dtype}{list(part.shape)}".encode()
        yield part.detach().cpu().reshape(-1).numpy().data  # without a copy
    elif isinstance(part, Tensor):
        coo = part.detach().to_sparse_coo().coalesce()
        yield from _bytes_of((coo.indices(), coo.values(), str(part.shape)))
    elif isinstance(part, tuple):
        for inner in part:
            yield from _bytes_of(inner)
    else:
        yield pickle.dumps(part)


def write_whole(path: Path, save: Callable[[BinaryIO], object]) -> None:
    """Writes a file at once or not at all, its folder too: `save` writes into a part file, which is then renamed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with part_file(path) as (part, file):
        save(file)
        file.flush()
        os.fsync(file.fileno())  # else a power cut may leave the name without the content
        part.replace(path)


def write_json(path: Path, value: object) -> None:
    """Writes a value as JSON on one line, at once or not at all."""
    write_whole(path, lambda file: file.write((json.dumps(value) + "\n").encode()))
