"""Which device a job runs on."""

from __future__ import annotations

import torch

from calirare.errors import InputError
from calirare_ext._backend import _C


def choose_device(wanted: str) -> torch.device:
    """Returns the device for "auto", "cpu", "cuda" or "cuda:N".

    Args:
        wanted: "auto" takes a GPU where torch sees one and the kernels were built, else the CPU.

    Returns:
        The device.

    Raises:
        InputError: a GPU is wanted and cannot be used; the message says what to do.
    """
    built, count, reason = _C.cuda_status()
    usable = built and count > 0 and torch.cuda.is_available()
    if wanted == "auto":
        return torch.device("cuda" if usable else "cpu")
    if wanted.startswith("cuda") and not usable:
        if not built:
            raise InputError(f"device {wanted}: {reason}; or take device cpu (command line: --device cpu)")
        why = reason or "torch was installed without CUDA"
        raise InputError(f"device {wanted}: no GPU can be used ({why}); take device cpu (command line: --device cpu)")
    return torch.device(wanted)
