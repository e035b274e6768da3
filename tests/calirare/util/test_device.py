"""Which device a job takes, whatever this machine has."""

from __future__ import annotations

import pytest
import torch

from calirare._util.device import choose_device
from calirare._util.errors import InputError
from calirare_ext.build_info import BuildInfo


def machine(monkeypatch, n_devices: int, reason: str = "") -> None:
    monkeypatch.setattr(
        "calirare._util.device.build_info", lambda: BuildInfo("2.13.0", True, ("90",), n_devices, reason)
    )


def test_auto_takes_the_cpu(monkeypatch):
    machine(monkeypatch, 1)
    assert choose_device("auto") == choose_device("cpu") == torch.device("cpu")


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
