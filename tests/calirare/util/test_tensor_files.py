"""Files of tensors hold what was given, and writing them leaves nothing in memory."""

from __future__ import annotations

import gc
import stat
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file

from calirare._util.array_files import write_tensors

FACTS = {"facts": "{}"}


def some_tensors():
    rows = torch.arange(12, dtype=torch.float32).reshape(3, 4)
    return {
        "rows": rows,
        "turned": rows.T,
        "part": rows[1:, ::2],
        "trained": torch.nn.Parameter(rows.double()),
        "number": torch.tensor(3),
        "none": torch.zeros(0, 5, dtype=torch.float64),
        "flags": torch.tensor([True, False]),
        "bytes": torch.tensor([1, 255], dtype=torch.uint8),
        "small": torch.tensor([-3], dtype=torch.int32),
        "half": torch.tensor([0.5], dtype=torch.float16),
    }


def test_files_have_the_bytes_that_safetensors_writes_for_torch(tmp_path):
    tensors = some_tensors()
    write_tensors(tensors, tmp_path / "ours", FACTS)
    save_file({name: value.detach().contiguous().clone() for name, value in tensors.items()}, tmp_path / "torch", FACTS)
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "torch").read_bytes()
    assert stat.S_IMODE((tmp_path / "ours").stat().st_mode) == 0o644
    for name, value in load_file(tmp_path / "ours").items():
        assert value.dtype == tensors[name].dtype
        assert torch.equal(value, tensors[name])


def test_what_cannot_be_written_is_an_oserror(tmp_path):
    with pytest.raises(OSError, match="No such file"):
        write_tensors(some_tensors(), tmp_path / "missing" / "file", FACTS)


def blocks_kept(write, sizes):
    """Returns how many blocks of memory Python holds more per size after tensors of these sizes were written."""
    gc.collect()
    before = sys.getallocatedblocks()
    for size in sizes:
        write({"x": torch.zeros(size)})
    gc.collect()
    return (sys.getallocatedblocks() - before) / len(sizes)


def test_tensors_of_new_sizes_leave_nothing_in_memory(tmp_path):
    def ours(tensors):
        write_tensors(tensors, tmp_path / "x", FACTS)

    blocks_kept(ours, range(70_001, 70_011))  # what the first calls import and remember
    kept = min(blocks_kept(ours, range(first, first + 50)) for first in (71_001, 72_001, 73_001))  # others allocate too
    assert kept < 5, "safetensors.torch.save_file keeps more than 10"
