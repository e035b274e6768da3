"""What every results file says beside its numbers: machine, versions, commit, command."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parents[1]
COMMITTED = ROOT / "benchmarks" / "results"
RESULTS = Path(os.environ.get("CALIRARE_BENCH_RESULTS", COMMITTED))
SCALARS = re.compile(r"\[\n\s+([^\[\]{}\"]*?)\s+\]")  # lists of numbers alone: one line each
PACKAGES = (
    *("torch", "numpy", "scipy", "scikit-learn", "torch_geometric", "torch_sparse", "torch_scatter"),
    *("captum", "cleanlab", "dattri", "kronfluence", "traker", "pyDVL", "lightgbm", "xgboost", "graphspot", "empulse"),
)


def environment() -> dict[str, Any]:
    """Returns machine, versions, commit and command, without names of hosts or folders."""
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return {
        "machine": {
            "processor": _processor(),
            "cores": len(os.sched_getaffinity(0)),
            "threads": torch.get_num_threads(),
            "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        },
        "python": platform.python_version(),
        "versions": versions,
        "commit": _commit(),
        "command": " ".join(["python", str(Path(sys.argv[0]).resolve().relative_to(ROOT)), *map(_named, sys.argv[1:])]),
    }


def write(name: str, results: dict[str, Any], measured: dict[str, Any] | None = None) -> Path:
    """Writes `results` to RESULTS/<name>.json and returns the path.

    Args:
        name: of the file.
        results: what was measured.
        measured: the environment in which most of it was, where this run adds a part; None: this run's.

    Returns:
        The path.
    """
    path = RESULTS / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps((measured or environment()) | {"results": results}, indent=2)
    text = SCALARS.sub(lambda found: "[" + " ".join(found[1].split()) + "]", text)
    path.write_text(text + "\n", encoding="utf-8")
    return path


def put_on_page(page: Path, begin: str, end: str, text: str) -> None:
    """Puts a text between two marks of a page, in place of what stands there."""
    whole = page.read_text(encoding="utf-8")
    before, after = whole.split(begin)[0], whole.split(end)[1]
    page.write_text(f"{before}{begin}\n{text}\n{end}{after}", encoding="utf-8")


def _named(word: str) -> str:
    """Returns a word of the command line; of a path from the root its last part."""
    return Path(word).name if word.startswith("/") else word


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor()


def _commit() -> str:
    """Returns the commit; CALIRARE_COMMIT says it where there is a copy of the sources without their history."""
    if "CALIRARE_COMMIT" in os.environ:
        return os.environ["CALIRARE_COMMIT"]

    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True).stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!benchmarks/results")  # but for results
    dirty = " with uncommitted changes" if changed else ""
    return git("rev-parse", "--short", "HEAD") + dirty
