"""What is imported with what: heavy libraries only where they are needed."""

from __future__ import annotations

import subprocess
import sys

import pytest

# One process for all; each line has also what the lines before it have loaded.
CODE = """
import sys
def loaded(*names): print([name for name in names if name in sys.modules])
import calirare
loaded("calirare.sklearn", "sklearn")
import calirare.calibration
loaded("sklearn")
import calirare_multilabel.cli, calirare_multilabel
loaded("matplotlib", "pandas", "torch_geometric", "pyvinecopulib")
"""


@pytest.mark.slow  # a fresh interpreter imports torch
def test_heavy_libraries_wait_until_they_are_needed():
    found = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert found.stdout.splitlines() == ["[]"] * 3
