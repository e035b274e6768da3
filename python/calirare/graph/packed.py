"""Features in fewer bytes: float16, or int8 with a scale and a shift per column.

An int8 q stands for scale q + shift of its column, -128 for a missing value. Columns run evenly from their least to
their greatest number, so that a number is off by up to 1/508 of that range: fine for ranks and shares, coarse for
columns with a long tail, of which logarithms are better packed.
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np

from calirare._util.array_files import NumpyArray
from calirare._util.errors import InputError

Packing = Literal["float32", "float16", "int8"]
MISSING, TOP = -128, 127
SCALES = ("x_scale", "x_shift")  # files beside x.npy, float32 [d], of int8 alone


def packed(x: NumpyArray, packing: Packing, where: str) -> dict[str, NumpyArray]:
    """Returns dense features, float32 [n, d], as the arrays that are stored, by name.

    Raises:
        InputError: the packing is unknown, or a number is too large for float16.
    """
    if packing not in get_args(Packing):
        raise InputError(f"{where}: features can be stored as {', '.join(get_args(Packing))}, got {packing!r}")
    if packing == "float32":
        return {"x": x}
    if packing == "float16":
        with np.errstate(over="ignore"):
            half = x.astype(np.float16)
        wrong = np.isinf(half) & np.isfinite(x)
        if wrong.any():
            raise InputError(
                f"{where}: column {int(wrong.any(0).argmax())} has numbers beyond 65,504, which float16 does not hold: "
                "scale it, or store float32"
            )
        return {"x": half}
    known = np.isfinite(x)
    low, high = (np.where(known, x, end).astype(np.float64) for end in (np.inf, -np.inf))
    low, high = low.min(0, initial=np.inf), high.max(0, initial=-np.inf)
    low, high = np.where(low > high, 0.0, low), np.where(low > high, 0.0, high)  # of a column without a number
    shift, scale = (low + high) / 2, np.where(high > low, (high - low) / (2 * TOP), 1.0)
    q = np.where(known, np.rint((np.where(known, x, 0.0) - shift) / scale), MISSING).astype(np.int8)
    return {"x": q, "x_scale": scale.astype(np.float32), "x_shift": shift.astype(np.float32)}


def unpacked(x: NumpyArray, scale: NumpyArray | None, shift: NumpyArray | None) -> NumpyArray:
    """Returns stored rows as float32 [r, d]; the array itself where it is that already."""
    if x.dtype != np.int8:
        return x.astype(np.float32, copy=False)
    assert scale is not None
    assert shift is not None
    out = x.astype(np.float32)
    out *= scale
    out += shift
    out[x == MISSING] = np.nan
    return out


def check_scales(scale: NumpyArray, shift: NumpyArray, d: int, where: str) -> None:
    """Checks what stands beside features in int8.

    Raises:
        InputError: there is not one finite number per column.
    """
    for name, each in (("x_scale", scale), ("x_shift", shift)):
        if each.dtype != np.float32 or each.shape != (d,) or not np.isfinite(each).all():
            raise InputError(
                f"{where}: {name}.npy must hold a finite float32 per feature, {d}, beside features in int8, got "
                f"{each.dtype} of shape {each.shape}: write the folder again"
            )
