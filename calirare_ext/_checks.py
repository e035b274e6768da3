"""Checks of arguments, made once, before a device is chosen. Every message names operator, argument, wish and fact."""

from __future__ import annotations

from numbers import Integral

import torch
from torch import Tensor

FLOATS = (torch.float32, torch.float64)


def dtype_name(dtype: torch.dtype | torch.layout) -> str:
    """Returns the name of a dtype or a layout without its module, for messages."""
    return str(dtype).removeprefix("torch.")


def check_float(op: str, name: str, x: Tensor) -> None:
    """Raises TypeError unless x is a float32 or float64 tensor, ValueError if it is sparse."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{op}: {name} must be a tensor, got {type(x).__name__}")
    if x.dtype not in FLOATS:
        raise TypeError(f"{op}: {name} must be float32 or float64, got {dtype_name(x.dtype)}")
    if x.layout != torch.strided:
        raise ValueError(f"{op}: {name} must be dense, got {dtype_name(x.layout)}: call to_dense()")
    if torch.compiler.is_compiling():  # what is traced has no memory to look at
        return
    if x.is_neg():  # the sign of such a view is not in its memory
        raise ValueError(f"{op}: {name} must not be a lazily negated view, got one: call resolve_neg()")
    check_storage(op, name, x)


def check_storage(op: str, name: str, x: Tensor) -> None:
    """Raises ValueError where the memory behind a dense tensor has been cut shorter than its shape says."""
    if torch._C._are_functorch_transforms_active():  # what a transform wraps has no memory of its own
        return
    last = sum((size - 1) * stride for size, stride in zip(x.shape, x.stride(), strict=True))
    held = x.untyped_storage().nbytes()
    if x.numel() and (x.storage_offset() + last + 1) * x.element_size() > held:
        raise ValueError(f"{op}: {name} must lie in its memory, got shape {tuple(x.shape)} in {held} bytes")


def check_like(op: str, name: str, x: Tensor, like: Tensor, like_name: str) -> None:
    """Raises TypeError or ValueError unless x has the dtype and device of `like`."""
    check_float(op, name, x)
    if x.dtype != like.dtype:
        raise TypeError(f"{op}: {name} must be {dtype_name(like.dtype)} as {like_name} is, got {dtype_name(x.dtype)}")
    if x.device != like.device:
        raise ValueError(f"{op}: {name} must be on {like.device} as {like_name} is, got {x.device}")


def check_index(op: str, name: str, x: Tensor, dtype: torch.dtype, device: torch.device) -> None:
    """Raises TypeError or ValueError unless x is a contiguous vector of whole numbers of a dtype on a device."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{op}: {name} must be a tensor, got {type(x).__name__}")
    if x.dtype != dtype:
        raise TypeError(f"{op}: {name} must be {dtype_name(dtype)}, got {dtype_name(x.dtype)}")
    if x.layout != torch.strided or x.dim() != 1 or not x.is_contiguous():
        raise ValueError(f"{op}: {name} must be a contiguous vector, got shape {tuple(x.shape)}")
    if x.device != device:
        raise ValueError(f"{op}: {name} must be on {device}, got {x.device}")
    check_storage(op, name, x)


def check_shape(op: str, name: str, x: Tensor, shape: tuple[int | None, ...]) -> None:
    """Raises ValueError unless x has the shape; None stands for any size."""
    fits = x.dim() == len(shape) and all(want in (None, have) for have, want in zip(x.shape, shape, strict=True))
    if not fits:
        wanted = "[" + ", ".join("any" if size is None else str(size) for size in shape) + "]"
        raise ValueError(f"{op}: {name} must have shape {wanted}, got {list(x.shape)}")


def check_whole(op: str, name: str, value: int) -> None:
    """Raises TypeError unless value is a whole number, whatever type holds it."""
    if not isinstance(value, Integral):
        plain = value.item() if hasattr(value, "item") else value  # of numpy
        raise TypeError(f"{op}: {name} must be a whole number, got {plain!r}")


def check_range(op: str, name: str, value: float, low: float, high: float, *, closed: bool = True) -> None:
    """Raises ValueError unless value lies between low and high (with the ends where closed)."""
    inside = low <= value <= high if closed else low < value < high
    if not inside:
        ends = f"[{low}, {high}]" if closed else f"({low}, {high})"
        raise ValueError(f"{op}: {name} must be in {ends}, got {value}")
