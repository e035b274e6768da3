"""Which device a job runs on."""

from __future__ import annotations

import torch

from calirare._util.errors import InputError
from calirare_ext import build_info

AUTO = "cpu"  # whole jobs took as long or longer on a GPU (benchmarks/results/device_*.json)


def choose_device(wanted: str) -> torch.device:
    """Returns the device for "auto", "cpu", "cuda" or "cuda:N".

    Args:
        wanted: "auto" takes the CPU.

    Raises:
        InputError: a GPU is wanted and cannot be used; the message says what to do.
    """
    wanted = AUTO if wanted == "auto" else wanted
    build = build_info()
    if wanted.startswith("cuda") and not build.n_devices:
        raise InputError(f"device {wanted}: {build.reason}; or take the CPU (command line: --device cpu)")
    device = torch.device(wanted)
    if device.type == "cuda" and (device.index or 0) >= build.n_devices:
        raise InputError(f"device {wanted}: there are {build.n_devices} GPUs, numbered from 0")
    return device


def usable(device: torch.device | str) -> torch.device:
    """Returns a device; of a GPU checks that it can be used, as `choose_device` does."""
    return choose_device(str(device)) if str(device).startswith("cuda") else torch.device(device)


def device_or_cpu(wanted: str) -> tuple[str, str]:
    """Returns the device that a run was trained on where this machine has it; else the CPU, and a sentence about it."""
    try:
        choose_device(wanted)
    except InputError:
        return "cpu", f"the run was trained on {wanted}, which cannot be used here: trained again on the CPU"
    return wanted, ""
