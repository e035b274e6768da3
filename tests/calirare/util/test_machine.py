"""Free memory is what the machine and its limits leave; a device that cannot be used is refused."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest
import torch

from calirare._util import memory
from calirare._util.device import choose_device
from calirare._util.errors import InputError
from calirare._util.memory import DRAWS, LEAST, RESAMPLES, WORK, draws_for, resamples_for
from calirare_ext.build_info import BuildInfo

V1 = {"limit": "memory.limit_in_bytes", "use": "memory.usage_in_bytes", "file": "total_inactive_file"}
V2 = {"limit": "memory.max", "use": "memory.current", "file": "inactive_file"}


def group(folder: Path, names: dict[str, str], limit: object, use: int, file: int = 0) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / names["limit"]).write_text(f"{limit}\n")
    (folder / names["use"]).write_text(f"{use}\n")
    (folder / "memory.stat").write_text(f"anon {use - file}\n{names['file']} {file}\n")


@pytest.fixture
def groups(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "ROOT", tmp_path / "cgroup")
    monkeypatch.setattr(memory, "OWN", tmp_path / "own")
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (resource.RLIM_INFINITY,) * 2)
    return tmp_path


def test_without_a_limit_all_is_left(groups):
    assert memory.bytes_left() == memory.UNLIMITED
    (groups / "own").write_text("0::/\n")
    assert memory.bytes_left() == memory.UNLIMITED
    group(groups / "cgroup", V2, "max", 10)
    assert memory.bytes_left() == memory.UNLIMITED


@pytest.mark.parametrize(("names", "line", "folder"), [(V2, "0::/a/b", ""), (V1, "4:memory:/a/b", "memory")])
def test_the_tightest_of_the_groups_around_a_process_counts(groups, names, line, folder):
    (groups / "own").write_text(f"9:name=systemd:/\n{line}\n")
    top = groups / "cgroup" / folder
    group(top / "a" / "b", names, 9000, 1000)
    assert memory.bytes_left() == 8000
    group(top / "a", names, 7000, 3000, file=500)
    assert memory.bytes_left() == 4500, "a group around it is tighter; what is kept of files is given up"
    group(top, names, 2000, 2500)
    assert memory.bytes_left() == 0


def test_the_limit_of_a_shell_counts(groups, monkeypatch):
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (pages * resource.getpagesize() + 10**9,) * 2)
    assert 0 < memory.bytes_left() <= 10**9


def test_a_refusal_knows_of_the_limit(monkeypatch):
    device = torch.device("cpu")
    memory.check_memory(10**6, None, device, "take fewer")
    monkeypatch.setattr(memory, "bytes_left", lambda: 10**6)
    assert memory.free_bytes(device) == 10**6
    with pytest.raises(
        InputError, match=r"about 0.01 GB are needed and 0.00 GB are allowed, a share of what is free: take fewer"
    ):
        memory.check_memory(10**7, None, device, "take fewer")


@pytest.mark.parametrize(("of", "most"), [(resamples_for, RESAMPLES), (draws_for, DRAWS)])
def test_as_many_as_are_affordable(of, most):
    assert of(0) == of(WORK // most) == most
    assert of(2 * WORK // most) == most // 2
    assert of(10 * WORK) == LEAST


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
