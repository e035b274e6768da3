"""benchmarks/gpu.sh with stand-ins for the tools of a GPU machine: no kernel test and no stage may be left out."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
EVERY_STAGE = ["build", "kernels", "sanitize", "tests", "bench"]

# Each stand-in notes that it ran, in $LOG.
STAND_INS = {
    "cmake": 'cd $BUILD; for op in one two; do echo "echo kernel $op >> $LOG" > ${op}_test; chmod +x ${op}_test; done',
    "compute-sanitizer": 'echo "sanitizer $2 $(basename $5)" >> $LOG',
    "python3": 'echo "python $*" >> $LOG; case "$*" in *$FAILING*) exit 1;; esac',
}


@pytest.fixture
def gpu_script(tmp_path):
    """Returns a function that runs stages of the script and returns what it did and which programs ran."""
    tools, build, log = tmp_path / "bin", tmp_path / "build", tmp_path / "log"
    tools.mkdir()
    build.mkdir()
    (build / "forgotten_test").write_text("of a source that is gone")
    for name, script in STAND_INS.items():
        (tools / name).write_text(f"#!/bin/sh\n{script}\n")
        (tools / name).chmod(0o755)

    def run(*stages: str, failing: str = "nothing") -> tuple[subprocess.CompletedProcess[str], list[str]]:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHON"}
        environment |= {"PATH": f"{tools}:{os.environ['PATH']}", "BUILD": str(build), "LOG": str(log)}
        command = [str(ROOT / "benchmarks" / "gpu.sh"), *stages]
        options = {"env": environment | {"FAILING": failing}, "capture_output": True, "text": True}
        done = subprocess.run(command, timeout=60, check=False, **options)
        return done, log.read_text().splitlines() if log.exists() else []

    return run


def test_every_kernel_test_that_is_built_is_run(gpu_script):
    done, ran = gpu_script("kernels", "sanitize")
    assert done.returncode == 0, done.stderr
    assert ran[:2] == ["kernel one", "kernel two"]
    tools = ("memcheck", "racecheck", "initcheck", "synccheck")
    assert ran[2:] == [f"sanitizer {tool} {name}_test" for tool in tools for name in ("one", "two")]


def test_a_stage_that_fails_does_not_keep_the_next_from_running(gpu_script):
    done, ran = gpu_script(failing="pytest")
    assert [line[4:] for line in done.stdout.splitlines() if line.startswith("=== ")] == EVERY_STAGE
    assert ran[-2].endswith("bench_kernels.py --device cuda")
    assert ran[-1].endswith("bench_device.py")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "gpu.sh: failed: tests"


def test_an_unknown_stage_is_refused(gpu_script):
    done, ran = gpu_script("kernel")
    assert (done.returncode, ran) == (2, [])
    assert "no stage 'kernel': build, kernels, sanitize, tests or bench" in done.stderr


def test_every_kernel_source_has_a_test_that_is_built():
    kernels = {path.stem for path in (ROOT / "csrc" / "cuda").glob("*.cu")} - {"device"}
    listed = re.search(r"^set\(ops ([^)]*)\)$", (ROOT / "csrc" / "tests" / "CMakeLists.txt").read_text(), re.MULTILINE)
    assert listed
    assert set(listed[1].split()) == kernels
