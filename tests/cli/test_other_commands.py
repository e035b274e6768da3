"""`calirare datasets` and `calirare doctor`."""

from __future__ import annotations

import torch

from calirare.datasets import dataset_table
from calirare_ext import __version__
from calirare_ext.self_check import CHECKS
from tests.helpers.command import assert_refused, call, succeed


def test_datasets_lists_every_data_set_with_its_statistics(tmp_path):
    said = succeed("datasets", "--root", tmp_path, silent=True)
    lines = said.out.splitlines()
    for row in dataset_table(tmp_path):
        line = next(line for line in lines if line.startswith("│") and line.split("│")[1].strip() == row.name)
        cells = [cell.strip() for cell in line.split("│")[1:-1]]
        assert cells[1:4] == [f"{row.entry.n_nodes:,}", f"{row.entry.n_edges:,}", f"{row.entry.n_features:,}"]
        assert cells[5] == f"{row.entry.minority_share:.2%}"
        assert cells[7] == ("embedded" if row.name == "digits" else "no")
        if row.name != "digits":
            told = next(line for line in lines if line.startswith(f"{row.name}: "))
            assert str(tmp_path) in told
            assert row.how in told
    assert {"digits", "cora", "citeseer", "pubmed", "dblp", "facebook"} <= {row.name for row in dataset_table(tmp_path)}


def test_datasets_finds_a_file_in_its_place(tmp_path):
    (tmp_path / "cora.npz").write_bytes(b"")
    said = call("datasets", "--root", tmp_path)
    assert f"cora: {tmp_path / 'cora.npz'}" in said.out.splitlines()


def test_datasets_refuses_a_root_that_is_not_there(tmp_path):
    assert "must be an existing folder" in assert_refused(call("datasets", "--root", tmp_path / "none"))


def test_doctor_says_what_was_built_and_checks_every_kernel():
    said = succeed("doctor", silent=True)
    assert said.out.startswith(f"calirare {__version__}, Python ")
    assert f"torch {torch.__version__}" in said.out
    assert f"threads: {torch.get_num_threads()} in use" in said.out
    assert "CUDA kernels: " in said.out
    for name in CHECKS:
        assert f"cpu {name}: agrees with its reference" in said.out
    assert said.out.splitlines()[-1] == "everything agrees"


def test_doctor_names_the_kernel_that_is_wrong(monkeypatch):
    name = next(iter(CHECKS))
    monkeypatch.setitem(CHECKS, name, lambda device: "off by 0.5")
    said = call("doctor")
    assert said.code == 1
    assert f"cpu {name}: off by 0.5" in said.out
    assert "something is wrong: rebuild" in said.out
    assert "Traceback" not in said.err
