"""The calibration record's page says what its results file says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_the_page_is_what_the_file_says() -> None:
    done = subprocess.run([sys.executable, "benchmarks/bench_gets.py", "--check"], cwd=ROOT, check=False)
    assert done.returncode == 0, "run python benchmarks/bench_gets.py --page"
