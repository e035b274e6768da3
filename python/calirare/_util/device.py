"""Which device a job runs on."""

from __future__ import annotations

import torch

from calirare._util.errors import InputError
from calirare_ext import BuildInfo, build_info


def choose_device(wanted: str) -> torch.device:
    """Returns the device for "auto", "cpu", "cuda" or "cuda:N".

    Args:
        wanted: "auto" takes a GPU where torch sees one and the kernels were built, else the CPU.

    Returns:
        The device.

    Raises:
        InputError: a GPU is wanted and cannot be used; the message says what to do.
    """
    build = build_info()
    if wanted == "auto":
        return automatic(build)
    if wanted.startswith("cuda") and not build.n_devices:
        raise InputError(f"device {wanted}: {build.reason}; or take the CPU (command line: --device cpu)")
    device = torch.device(wanted)
    if device.type == "cuda" and (device.index or 0) >= build.n_devices:
        raise InputError(f"device {wanted}: there are {build.n_devices} GPUs, numbered from 0")
    return device


def automatic(build: BuildInfo) -> torch.device:
    """Returns the device for "auto": a GPU where one can be used, else the CPU."""
    return torch.device("cuda" if build.n_devices else "cpu")
