"""What the compiled module was built with and what it can use here."""

from __future__ import annotations

from typing import NamedTuple

import torch

from calirare_ext._backend import _C


class BuildInfo(NamedTuple):
    """The build.

    Attributes:
        torch: version of torch it was built for.
        cuda: were the CUDA kernels built?
        cuda_archs: GPU architectures they were built for, as CMake names them; empty without CUDA.
        n_devices: GPUs that can be used.
        reason: why there is none, in one sentence; empty where there is one.
    """

    torch: str
    cuda: bool
    cuda_archs: tuple[str, ...]
    n_devices: int
    reason: str


def build_info() -> BuildInfo:
    """Returns what was built and which GPUs can be used; never fails for want of a driver."""
    built, count, reason = _C.cuda_status()
    archs = tuple(arch for arch in _C.cuda_archs.split(",") if arch) if built else ()
    if built and count and not torch.cuda.is_available():
        count, reason = 0, "torch was installed without CUDA"
    return BuildInfo(_C.torch_version, built, archs, count, "" if count else reason)
