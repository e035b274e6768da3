"""Which device a job takes, whatever this machine has."""

from __future__ import annotations

import pytest
import torch

import calirare
from calirare._util.device import automatic, choose_device
from calirare._util.errors import InputError
from calirare_ext.build_info import BuildInfo
from tests.helpers.tasks import rare_task


def machine(monkeypatch, n_devices: int, reason: str = "") -> None:
    monkeypatch.setattr("calirare._util.device.automatic", automatic)  # tests/conftest.py pins it to the CPU
    monkeypatch.setattr(
        "calirare._util.device.build_info", lambda: BuildInfo("2.13.0", True, ("90",), n_devices, reason)
    )


def test_auto_takes_a_gpu_where_one_can_be_used(monkeypatch):
    machine(monkeypatch, 1)
    assert choose_device("auto") == torch.device("cuda")
    assert choose_device("cpu") == torch.device("cpu")
    machine(monkeypatch, 0, "no driver")
    assert choose_device("auto") == torch.device("cpu")


@pytest.mark.parametrize("wanted", ["cuda", "cuda:1"])
def test_a_gpu_that_cannot_be_used_is_refused_with_the_reason(wanted, monkeypatch):
    machine(monkeypatch, 0, "built without CUDA: build again with nvcc")
    with pytest.raises(InputError) as error:
        choose_device(wanted)
    assert str(error.value).startswith(f"device {wanted}: built without CUDA: build again with nvcc")
    assert "--device cpu" in str(error.value)


def test_a_gpu_is_taken_by_number(monkeypatch):
    machine(monkeypatch, 2)
    assert choose_device("cuda:1") == torch.device("cuda", 1)
    with pytest.raises(InputError, match="device cuda:2: there are 2 GPUs, numbered from 0"):
        choose_device("cuda:2")


def test_the_tests_run_on_the_cpu_unless_they_ask_for_more(monkeypatch):
    """Their comparisons are of numbers on the CPU, with tensors on the CPU."""
    monkeypatch.setattr("calirare._util.device.build_info", lambda: BuildInfo("2.13.0", True, ("90",), 1, ""))
    outcome = calirare.train(rare_task(), preset="paper", epochs=2, folds=0)
    assert outcome.logits.device == outcome.graph.device == torch.device("cpu")
