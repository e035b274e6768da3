"""`calirare doctor`: what was built, on what it runs, and whether every kernel agrees with its reference."""

from __future__ import annotations

import os
import platform
import time
from importlib.metadata import PackageNotFoundError, version

import torch

from calirare_ext import __version__
from calirare_ext._backend import _C
from calirare_ext.self_check import CHECKS

PACKAGES = ("numpy", "scipy", "scikit-learn", "torch_geometric", "safetensors", "pyarrow", "torch_sparse")


def run_doctor() -> bool:
    """Prints the report; returns whether every check passed."""
    built, count, reason = _C.cuda_status()
    print(f"calirare {__version__}, Python {platform.python_version()}, {platform.system()} {platform.machine()}")
    print(f"torch {torch.__version__} (module built for {_C.torch_version})")
    print("packages: " + ", ".join(f"{name} {_version(name)}" for name in PACKAGES))
    print(f"CUDA kernels: {'built for ' + _C.cuda_archs.replace(';', ', ') if built else 'not built, CPU-only'}")
    print(f"CUDA devices: {count}" + (f" ({reason})" if reason and not count else ""))
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    print(f"threads: {torch.get_num_threads()} in use, {cores} cores for this process")
    devices = ["cpu"] + (["cuda"] if built and count and torch.cuda.is_available() else [])
    passed = True
    for device in devices:
        for name, check in CHECKS.items():
            started = time.perf_counter()
            fault = check(torch.device(device))
            passed &= fault is None
            seconds = time.perf_counter() - started
            print(f"{device} {name}: {'agrees with its reference' if fault is None else fault} ({seconds:.2f} s)")
    print("everything agrees" if passed else "something is wrong: rebuild with `pip install --no-build-isolation -e .`")
    return passed


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
