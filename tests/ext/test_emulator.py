"""The CUDA sources, run on the CPU by the thread-block emulator: right as they are, caught with a bug planted.

The emulator (csrc/tests) runs each kernel with fibers for threads, shuffled schedules and the address and
undefined-behaviour sanitizers, and compares it with the CPU twin. docs/kernels.md says what it cannot see. A source is
compiled once, with every bug of `kernel_mutants.py` behind a switch.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers import kernel_mutants

ROOT = Path(__file__).resolve().parents[2]
OPS = sorted({mutant.op for mutant in kernel_mutants.MUTANTS})
PLANTED = [(op, k) for op in OPS for k in range(1, len(kernel_mutants.of_op(op)) + 1)]
# Fibers of a kernel that is given up are never unwound, so what they hold would be reported as leaked.
ENVIRONMENT = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0"}
LENIENT = {"UBSAN_OPTIONS": "halt_on_error=0"}  # undefined behaviour alone does not catch a planted bug


def tool(name: str) -> str:
    """Returns the path of a program, looked for beside the interpreter first."""
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        pytest.skip(f"no {name} to build the emulator with")
    return found


def run(*command: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(c) for c in command], capture_output=True, text=True, env=ENVIRONMENT | environment)


def source_of(op: str) -> str:
    return (ROOT / "csrc" / "cuda" / f"{op}.cuh").read_text()


def write_mutants(folder: Path) -> None:
    """Writes the sources with planted bugs; files that would not change keep their time stamp."""
    folder.mkdir(parents=True, exist_ok=True)
    for op in OPS:
        text = kernel_mutants.plant(source_of(op), kernel_mutants.of_op(op))
        path = folder / f"{op}.cuh"
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


@pytest.fixture(scope="module")
def built() -> Path:
    """Builds every executable and returns their folder."""
    folder = ROOT / "build" / "emulator"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        write_mutants(folder / "mutants")
        configure = ["-S", ROOT / "csrc" / "tests", "-B", folder, "-G", "Ninja"]
        options = [f"-DCMAKE_MAKE_PROGRAM={tool('ninja')}", f"-DCALIRARE_MUTANTS={folder / 'mutants'}"]
        for arguments in ([*configure, *options], ["--build", folder]):
            done = run(tool("cmake"), *arguments)
            assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
            assert "warning:" not in done.stdout + done.stderr
    return folder


def cases(output: str) -> int:
    found = re.search(r"(\d+) cases, 0 bad", output)
    return int(found[1]) if found else 0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["emulator", *OPS])
def test_kernels_agree_with_the_cpu_twins(built, name):
    done = run(built / f"{name}_test")
    assert (done.returncode, cases(done.stdout) > 50) == (0, True), done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("op", "number"), PLANTED, ids=[f"{op}: {kernel_mutants.of_op(op)[k - 1].name}" for op, k in PLANTED]
)
def test_planted_bugs_are_caught(built, op, number):
    done = run(built / f"{op}_test", "--mutant", number, **LENIENT)
    assert done.returncode != 0, f"not caught:\n{done.stdout}"


@pytest.mark.parametrize("mutant", kernel_mutants.MUTANTS, ids=lambda m: f"{m.op}: {m.name}")
def test_every_planted_bug_has_its_place(mutant):
    source = source_of(mutant.op)
    begin, end = kernel_mutants.find(source, mutant)
    planted = kernel_mutants.plant(source, [mutant])
    assert source[begin:end].strip()
    assert planted.startswith(source[:begin])
    assert "emulator::mutant == 1" in planted


def test_a_bug_without_a_place_is_an_error():
    with pytest.raises(LookupError, match="must match once, matches 0 times"):
        kernel_mutants.find(source_of("propagate"), kernel_mutants.Mutant("propagate", "lost", "«no such text»", ";"))
    with pytest.raises(LookupError, match="must match once"):
        kernel_mutants.find(
            source_of("propagate"), kernel_mutants.Mutant("propagate", "many", "«__syncthreads();»", ";")
        )
