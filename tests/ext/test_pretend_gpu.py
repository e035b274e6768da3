"""The pretended GPU refuses what a GPU refuses, and lets the rest pass; on a GPU the same tests try torch itself."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from tests.conftest import why_no_cuda
from tests.helpers.pretend_gpu import PretendGpu


@pytest.fixture
def gpu(request: pytest.FixtureRequest) -> Iterator[torch.device]:
    """A GPU, or what stands for it."""
    if why_no_cuda() is None or request.config.getoption("--require-cuda"):
        yield request.getfixturevalue("cuda_device")
    else:
        with PretendGpu():
            yield torch.device("cuda", 0)


MIXED = {
    "a sum": lambda here, there: here + there,
    "values on the GPU put at an index": lambda here, there: here.index_put_((torch.tensor([0, 1, 2]),), there),
    "a mask on the GPU": lambda here, there: here[there > 0],
    "equality": lambda here, there: torch.equal(here, there),
    "rows by number": lambda here, there: there.index_select(0, here.long()),
    "a generator of the CPU": lambda here, there: torch.rand(
        3, device=there.device, generator=torch.Generator().manual_seed(0)
    ),
}


@pytest.mark.parametrize("what", MIXED)
def test_what_mixes_devices_is_refused(what, gpu):
    here, there = torch.tensor([0.0, 1.0, 2.0]), torch.tensor([2.0, 1.0, 0.0], device=gpu)
    with pytest.raises(RuntimeError):
        MIXED[what](here, there)


@pytest.mark.parametrize("turn", [torch.Tensor.numpy, np.asarray], ids=["numpy", "asarray"])
def test_a_tensor_on_the_gpu_is_no_array(turn, gpu):
    with pytest.raises(TypeError, match=r"Tensor\.cpu"):
        turn(torch.ones(3, device=gpu))


def test_what_a_gpu_allows_passes(gpu):
    there, number = torch.arange(6.0, device=gpu), torch.tensor(2.0)
    assert torch.equal((there * number).cpu(), torch.arange(6.0) * 2)
    assert there[torch.tensor([1, 2])].device.type == "cuda"
    assert there.tolist() == [0, 1, 2, 3, 4, 5]
    there[:3] = torch.tensor([7.0, 8.0, 9.0])
    assert float(there.sum()) == 36
    assert np.asarray(there.cpu()).sum() == 36
    assert torch.rand(3, device=gpu, generator=torch.Generator(gpu).manual_seed(0)).is_cuda


def test_results_views_and_gradients_stay_on_the_gpu(gpu):
    layer = torch.nn.Linear(3, 2).to(gpu)
    x = torch.ones(4, 3).to(gpu)
    results = (x[1:], x.T, x.view(-1), x.double(), x.clone(), torch.zeros_like(x), x.new_ones(2), layer(x))
    assert {part.device.type for part in results} == {"cuda"}
    layer(x).sum().backward()
    assert layer.weight.grad.device.type == "cuda"
    assert torch.autograd.grad(layer(x).sum(), layer.weight)[0].device.type == "cuda"
    assert x.cpu().device.type == torch.ones(2).device.type == "cpu"


def test_marks_of_what_is_gone_are_forgotten():
    pretended = PretendGpu()
    with pretended:
        for _ in range(3000):
            torch.ones(1, device="cuda")
        assert len(pretended.marks) < 2000
    assert torch.ones(1).device.type == "cpu"
