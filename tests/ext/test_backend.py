"""The compiled module: how it loads, what it says about CUDA, its one OpenMP runtime, its stub file, the examples."""

from __future__ import annotations

import ast
import doctest
import importlib
import os
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import calirare_ext
from calirare_ext import Csr, propagate
from calirare_ext._backend import _C
from tests.helpers.problems import normal, random_matrix

PACKAGE = Path(calirare_ext.__file__).parent


def python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs the code in a fresh interpreter."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        env=os.environ | environment,
        timeout=120,
        check=False,
    )


def test_cuda_status_says_what_is_there():
    compiled, count, reason = _C.cuda_status()
    assert isinstance(compiled, bool)
    assert count >= 0
    if not compiled:
        assert count == 0
        assert "CALIRARE_CUDA=ON" in reason, "a missing build names its remedy"
        assert not _C.cuda_archs
    elif count == 0:
        assert reason


def test_with_a_gpu_the_kernels_were_built(cuda_device):
    assert _C.cuda_status()[0]
    assert _C.cuda_archs
    assert cuda_device.type == "cuda"


@pytest.mark.release  # a fresh interpreter imports torch
def test_require_cuda_turns_the_skip_into_a_failure():
    if _C.cuda_status()[1]:
        pytest.skip("there is a GPU, so nothing is skipped")
    one_test = f"{Path(__file__)}::test_with_a_gpu_the_kernels_were_built"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--require-cuda", one_test]
    found = subprocess.run(command, capture_output=True, text=True, cwd=PACKAGE.parent, timeout=120, check=False)
    assert found.returncode == 1
    assert "--require-cuda, but CUDA tests cannot run" in found.stdout


def test_built_for_the_torch_in_use():
    assert _C.torch_version.split("+")[0] == torch.__version__.split("+")[0]


BROKEN = """
import sys, types
def first_line_of(module):
    sys.modules['calirare_ext._C'] = module
    try:
        import calirare_ext
    except ImportError as error:
        print(error)
first_line_of(types.SimpleNamespace(torch_version='1.0.0+cpu'))
first_line_of(None)
"""


@pytest.mark.release  # a fresh interpreter imports torch
def test_a_module_that_does_not_fit_says_how_to_mend_it():
    found = python(BROKEN)
    assert found.returncode == 0, found.stderr
    other, missing = found.stdout.strip().splitlines()
    remedy = "rebuild it with `pip install --no-build-isolation -e .` in the source folder"
    assert other == f"calirare_ext: built for torch 1.0.0+cpu, found torch {torch.__version__}; {remedy}"
    assert missing.startswith(f"calirare_ext: the compiled module does not load with torch {torch.__version__} (")
    assert missing.endswith(f"); {remedy}")


def test_the_stub_file_lists_what_the_module_has():
    tree = ast.parse((PACKAGE / "_C.pyi").read_text())
    listed, members = set(), {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            listed.add(node.name)
        elif isinstance(node, ast.AnnAssign):
            listed.add(node.target.id)
        if isinstance(node, ast.ClassDef):
            members[node.name] = {part.target.id for part in node.body if isinstance(part, ast.AnnAssign)}
    assert listed == {name for name in vars(_C) if not name.startswith("__")}
    for name, wanted in members.items():
        assert wanted == {member for member in vars(getattr(_C, name)) if not member.startswith("_")}, name


def test_another_device_is_refused():
    a = Csr.from_dense(torch.eye(2)).to("meta")
    with pytest.raises(ValueError, match="propagate: device must be cpu or cuda, got meta"):
        propagate(a, torch.ones(2, 1, device="meta"))


# Which OpenMP libraries are mapped, then how many threads did a fifth of the work or more on half a second of
# processor time, with one thread and with two (utime is field 14 of /proc/self/task/*/stat, in hundredths of a second).
THREADS = """
import os, time, torch
from calirare_ext import Csr, propagate
def spent():
    texts = {t: open(f'/proc/self/task/{t}/stat').read() for t in os.listdir('/proc/self/task')}
    return {t: int(text.rsplit(')', 1)[1].split()[11]) for t, text in texts.items()}
n, d = 4000, 256
a = Csr(torch.arange(n + 1), torch.arange(n).int(), torch.ones(n), n)
x = torch.ones(n, d)
names = {line.split()[-1] for line in open('/proc/self/maps')}
print(sum('omp' in os.path.basename(name) and '.so' in name for name in names))
for threads in (1, 2):
    torch.set_num_threads(threads)
    before, start = spent(), time.process_time()
    while time.process_time() < start + 0.5: propagate(a, x)
    used = [ticks - before.get(thread, 0) for thread, ticks in spent().items()]
    print(sum(ticks > sum(used) / 5 for ticks in used))
"""


@pytest.mark.release  # a fresh interpreter imports torch
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_one_openmp_runtime_with_as_many_threads_as_torch_was_told():
    """A module built without OpenMP runs serially and does not say so; a second runtime would double the threads."""
    found = python(THREADS, OMP_NUM_THREADS="2")
    assert found.returncode == 0, found.stderr
    assert found.stdout.split() == ["1", "1", "2"], "runtimes, busy threads of one, busy threads of two"


def test_other_python_threads_run_meanwhile():
    """The kernels let go of the interpreter: a callback under block_cg must be able to take it back."""
    import threading

    a, x, results = random_matrix(300, 300, 9000, seed=1), normal(300, 200, seed=2), []

    def work() -> None:
        results.extend(
            calirare_ext.block_cg(lambda v: v + propagate(a.transpose(), propagate(a, v.T)).T, x.T[:5])
            for _ in range(3)
        )

    workers = [threading.Thread(target=work) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(timeout=60)
    assert len(results) == 9
    assert all(torch.equal(result.x, results[0].x) for result in results)


@pytest.mark.parametrize(
    "name", [info.name for info in pkgutil.iter_modules(calirare_ext.__path__) if info.name != "_C"]
)
def test_examples_in_docstrings(name):
    module = importlib.import_module(f"calirare_ext.{name}")
    assert doctest.testmod(module).failed == 0
