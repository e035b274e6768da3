"""`calirare doctor`: what was built, on what it runs, and whether every kernel agrees with its reference."""

from __future__ import annotations

import os
import platform
import time
from importlib.metadata import PackageNotFoundError, version

import torch

from calirare_ext import __version__, build_info
from calirare_ext.self_check import CHECKS

PACKAGES = ("numpy", "scipy", "scikit-learn", "torch_geometric", "safetensors", "pyarrow", "torch_sparse")


def run() -> int:
    """Prints the report; returns 0 where every check passed, else 1."""
    build = build_info()
    print(f"calirare {__version__}, Python {platform.python_version()}, {platform.system()} {platform.machine()}")
    print(f"torch {torch.__version__} (module built for {build.torch})")
    print("packages: " + ", ".join(f"{name} {_version(name)}" for name in PACKAGES))
    print(f"CUDA kernels: {'built for ' + ', '.join(build.cuda_archs) if build.cuda else 'not built, CPU-only'}")
    print(f"CUDA devices: {build.n_devices}" + (f" ({build.reason})" if build.reason else ""))
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    print(f"threads: {torch.get_num_threads()} in use, {cores} cores for this process")
    devices = ["cpu"] + (["cuda"] if build.n_devices else [])
    passed = True
    for device in devices:
        for name, check in CHECKS.items():
            started = time.perf_counter()
            fault = check(torch.device(device))
            passed &= fault is None
            seconds = time.perf_counter() - started
            print(f"{device} {name}: {'agrees with its reference' if fault is None else fault} ({seconds:.2f} s)")
    print("everything agrees" if passed else "something is wrong: rebuild with `pip install --no-build-isolation -e .`")
    return 0 if passed else 1


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
