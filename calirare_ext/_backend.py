"""Loads the compiled module, or says in one sentence why it cannot be loaded."""

from __future__ import annotations

import torch

REBUILD = "rebuild it with `pip install --no-build-isolation -e .` in the source folder"

try:
    from calirare_ext import _C
except ImportError as error:
    raise ImportError(
        f"calirare_ext: the compiled module does not load with torch {torch.__version__} ({error}); {REBUILD}"
    ) from error

if _C.torch_version.split("+")[0] != torch.__version__.split("+")[0]:
    raise ImportError(f"calirare_ext: built for torch {_C.torch_version}, found torch {torch.__version__}; {REBUILD}")

__all__ = ["_C"]
