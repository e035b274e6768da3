"""What every test may ask for: a device, a dtype, a number of threads.

torch is imported by what needs it: the process that hands the tests out to the others runs none itself.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import hypothesis
import pytest

if TYPE_CHECKING:
    import torch

# Threads that wait for each other leave the core to the tests beside them: spinning took most of a test on two threads.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")


def _on_one_thread() -> None:
    """In a forked process: threads that waited for work are not copied, and a region of two would wait for them."""
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


os.register_at_fork(after_in_child=_on_one_thread)

# Derandomised: a failure in CI is the failure at home. No deadline: the machines that run this are shared.
hypothesis.settings.register_profile("calirare", derandomize=True, deadline=None, database=None)
hypothesis.settings.load_profile("calirare")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--require-cuda", action="store_true", help="a CUDA test that cannot run is a failure, not a skip")
    parser.addoption(
        "--auto-gpu", action="store_true", help='device "auto" is a GPU, a pretended one where there is none'
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out the variants on CUDA of tests that take a `device`, where there is no GPU and none is required."""
    if config.getoption("--require-cuda") or why_no_cuda() is None:
        return
    on_cuda = [item for item in items if getattr(getattr(item, "callspec", None), "params", {}).get("device") == "cuda"]
    if on_cuda:
        config.hook.pytest_deselected(items=on_cuda)
        items[:] = [item for item in items if item not in set(on_cuda)]


def pytest_collection_finish() -> None:
    """What was imported and collected stays to the end: the garbage collector need not look through it ever again."""
    gc.freeze()


def why_no_cuda() -> str | None:
    """Returns why CUDA tests cannot run here, or None where they can."""
    import torch

    from calirare_ext._backend import _C

    compiled, count, reason = _C.cuda_status()
    if not compiled or count == 0:
        return reason or "no GPU was found"
    return None if torch.cuda.is_available() else f"torch {torch.__version__} finds no GPU"


@pytest.fixture(scope="session")
def cuda_device(request: pytest.FixtureRequest) -> torch.device:
    """The GPU, for what only a GPU has, such as streams; without one a visible skip, or a failure where required."""
    import torch

    reason = why_no_cuda()
    if reason and request.config.getoption("--require-cuda"):
        pytest.fail(f"--require-cuda, but CUDA tests cannot run: {reason}")
    if reason:
        pytest.skip(reason)
    torch.set_float32_matmul_precision("highest")  # some containers round products to 10 bits (TF32) unasked
    return torch.device("cuda", 0)


@pytest.fixture(scope="session", params=["cpu", "cuda"])
def device(request: pytest.FixtureRequest) -> torch.device:
    """Each device in turn."""
    import torch

    return torch.device("cpu") if request.param == "cpu" else request.getfixturevalue("cuda_device")


@pytest.fixture(scope="session", autouse=True)
def what_auto_is(request: pytest.FixtureRequest) -> Iterator[None]:
    """Makes device "auto" a GPU where that is asked for."""
    if not request.config.getoption("--auto-gpu"):
        yield
        return
    from tests.helpers.pretend_gpu import PretendGpu

    with ExitStack() as stack:
        stack.enter_context(pytest.MonkeyPatch.context()).setattr("calirare._util.device.AUTO", "cuda")
        if why_no_cuda() is not None:
            stack.enter_context(PretendGpu())
        yield


@pytest.fixture(scope="session", autouse=True)
def nothing_waits_for_the_disk() -> Iterator[None]:
    """No test outlives a power cut; what must is shown in processes of its own, with every call to the disk counted."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda number: None)
        yield


@pytest.fixture(scope="session", params=["float32", "float64"])
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    """Each storage dtype in turn."""
    import torch

    return getattr(torch, request.param)


@pytest.fixture
def threads() -> Iterator[Callable]:
    """Returns a context manager that sets torch's number of threads for a while."""
    import torch

    before = torch.get_num_threads()

    @contextmanager
    def run_with(count: int) -> Iterator[None]:
        torch.set_num_threads(count)
        try:
            yield
        finally:
            torch.set_num_threads(before)

    yield run_with
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def rough() -> Iterator[None]:
    """Runs take the fewest samples and draw nothing."""
    from tests.helpers.command import rough_runs

    with rough_runs():
        yield


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """Imports a module of benchmarks/ by its name."""
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "benchmarks")
    return importlib.import_module
