"""The scripts that write pages of docs, run in this process: in one of their own they import for seconds."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path
from typing import Any
from unittest import mock

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


def committed(name: str) -> dict[str, Any]:
    """Returns what benchmarks/results/<name>.json holds."""
    return json.loads((BENCHMARKS / "results" / f"{name}.json").read_text(encoding="utf-8"))


def results(name: str) -> Any:
    """Returns the measured part of that."""
    return committed(name)["results"]


def is_current(name: str) -> bool:
    """Returns whether `python benchmarks/<name>.py --check` finds nothing to write anew."""
    script, before = BENCHMARKS / f"{name}.py", set(sys.modules)
    with (
        mock.patch.object(sys, "argv", [str(script), "--check"]),
        mock.patch.object(sys, "path", [str(BENCHMARKS), *sys.path]),
    ):
        try:
            runpy.run_path(str(script), run_name="__main__")
        except SystemExit as stop:
            return not stop.code
        finally:
            for module in set(sys.modules) - before:  # the scripts' own have names that others may have too
                if BENCHMARKS in Path(getattr(sys.modules[module], "__file__", None) or "/").parents:
                    del sys.modules[module]
    return True
