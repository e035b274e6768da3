"""How input is spoilt: bytes of a file, arrays of an archive, lines of a text."""

from __future__ import annotations

import io
import zipfile
from typing import Any

import numpy as np

Arrays = dict[str, np.ndarray]

NUMBERS = (0, 1, -1, 2, 7, 2**31 - 1, -(2**31), 2**31, 2**32, 2**53, 2**53 + 1, 2**62, 2**63 - 1, -(2**63))
REALS = (0.0, -0.0, 1e-45, 1e-30, 1e19, 3.4e38, -3.4e38, 1e300, np.inf, -np.inf, np.nan, 0.5)
DTYPES = ("<i8", ">i8", "<i4", "<u8", "<f4", ">f4", "<f2", "<f8", "bool", "<U3", "|S2", "<c8", "<M8[s]", "<f16")
NATIVE = ("<i8", "<i4", "<f4", "<f2", "<f8", "bool", "u1", "<c8")
WORDS = (
    "",
    "nan",
    "1e999",
    "-1",
    '"',
    "'",
    ",",
    "\r",
    "\n",
    "\0",
    "\x1b[31m",
    "=1+1",
    "é",
    "\u2028",
    "9" * 400,
    "[",
    "{",
)


def some(rng: np.random.Generator, values: Any) -> Any:
    return values[int(rng.integers(len(values)))]


def odd_numbers(rng: np.random.Generator, array: np.ndarray, native: bool = False) -> np.ndarray:
    """Changes numbers, dtype, shape or order of an array; `native`: only as torch takes it."""
    array, kind = np.array(array), int(rng.integers(8))
    with np.errstate(all="ignore"):
        if kind == 0 and array.size:
            array.flat[int(rng.integers(array.size))] = (
                some(rng, REALS) if array.dtype.kind == "f" else some(rng, NUMBERS)
            )
        elif kind == 1:
            array = array.astype(some(rng, NATIVE if native else DTYPES))
        elif kind == 2:
            array = array[: int(rng.integers(len(array) + 1))]
        elif kind == 3:
            array = array * some(rng, REALS)
        elif kind == 4:
            array = array[..., None] if rng.random() < 0.5 else array.ravel()
        elif kind == 5:
            array = np.full_like(array, array.flat[0]) if array.size else array
        elif kind == 6 and not native:
            array = array[::-1]
    return array


def odd_text(rng: np.random.Generator, text: str) -> str:
    """Puts a word into a text, or takes a part of it away."""
    at = int(rng.integers(len(text) + 1))
    return text[:at] + some(rng, WORDS) + text[at + int(rng.integers(3)) :]


def spoilt_tree(rng: np.random.Generator, tree: Any) -> Any:
    """Changes one value somewhere in a tree of JSON."""
    if isinstance(tree, dict) and tree and rng.random() < 0.9:
        key = some(rng, sorted(tree))
        if rng.random() < 0.1:
            return {name: value for name, value in tree.items() if name != key}
        return tree | {key: spoilt_tree(rng, tree[key])}
    if isinstance(tree, list) and tree and rng.random() < 0.9:
        at = int(rng.integers(len(tree)))
        return [*tree[:at], spoilt_tree(rng, tree[at]), *tree[at + 1 :]]
    return some(rng, (*NUMBERS, *REALS, *WORDS, None, True, [], {}, [1], {"a": 1}))


def spoilt_bytes(rng: np.random.Generator, content: bytes) -> bytes:
    """Flips, cuts, repeats or inserts."""
    out = bytearray(content)
    for _ in range(int(rng.integers(1, 4))):
        at = int(rng.integers(len(out) + 1))
        kind = int(rng.integers(4))
        if kind == 0 and at < len(out):
            out[at] ^= 1 << int(rng.integers(8))
        elif kind == 1:
            del out[at : at + int(rng.integers(1, 200))]
        elif kind == 2:
            out[at:at] = out[at : at + int(rng.integers(1, 50))]
        else:
            out[at:at] = rng.bytes(int(rng.integers(1, 9)))
    return bytes(out)


def spoilt_text(rng: np.random.Generator, text: str) -> str:
    """Puts odd words into a text, or takes or doubles lines."""
    lines = text.split("\n")
    at = int(rng.integers(len(lines)))
    kind = int(rng.integers(4))
    if kind == 0:
        lines[at] = lines[at].replace(some(rng, [*lines[at].split(","), " "]) or " ", some(rng, WORDS), 1)
    elif kind == 1:
        place = int(rng.integers(len(lines[at]) + 1))
        lines[at] = lines[at][:place] + some(rng, WORDS) + lines[at][place:]
    elif kind == 2:
        del lines[at]
    else:
        lines.insert(at, lines[at])
    return "\n".join(lines)


def spoilt_arrays(rng: np.random.Generator, arrays: Arrays) -> Arrays:
    """Changes an array: a number, its dtype, its shape, its order; or takes it away."""
    name = some(rng, sorted(arrays))
    if rng.random() < 0.2:
        return {key: value for key, value in arrays.items() if key != name}
    try:
        return arrays | {name: odd_numbers(rng, arrays[name])}
    except (ValueError, TypeError, OverflowError, IndexError):  # no such number in its dtype, no such order of a scalar
        return arrays | {name: arrays[name].reshape(-1)[:0]}


def archive(arrays: Arrays) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def with_spoilt_member(rng: np.random.Generator, content: bytes) -> bytes:
    """Spoils the bytes of one file of an archive whose checksums then fit: headers of arrays above all."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(out, "w") as new:
        chosen = some(rng, old.namelist())
        for name in old.namelist():
            data = old.read(name)
            if name == chosen:
                data = spoilt_bytes(rng, data[:130]) + data[130:]
            new.writestr(name, data)
    return out.getvalue()
