"""Cells are kept and resumed, statistics are right, tables and commands say what was run and what was not."""

from __future__ import annotations

import csv
import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import ttest_rel
from typer.testing import CliRunner

from calirare._util.errors import InputError
from calirare.graph.graph import Graph
from calirare_lab.paper import cells as module
from calirare_lab.paper import cli, protocol
from calirare_lab.paper.cells import cell_path, read_cells, read_probability, run_cells
from calirare_lab.paper.protocol import Place
from calirare_lab.paper.published import DATASETS, LABEL_RATES, N_RARE, TABLE2, TABLE3, f1_from_accuracy_and_recall
from calirare_lab.paper.render import Table, write_tables
from calirare_lab.paper.statistics import Comparison, by_key, compare_with_paper, paired_p, strongest, summarise
from calirare_lab.paper.table2 import coverage_table, table2
from calirare_lab.paper.table3 import table3

NAMES = ("uncalibrated", "temperature")


def quiet(done: int, total: int, what: str) -> None:
    assert 0 <= done <= total
    assert what


@pytest.fixture
def quick_cells(everywhere_small: Graph, monkeypatch: pytest.MonkeyPatch) -> Graph:
    monkeypatch.setattr(module, "N_FLOOR_DRAWS", 2)
    monkeypatch.setattr(module, "N_BOOTSTRAP_DRAWS", 5)
    return everywhere_small


@pytest.fixture(scope="module")
def cells_of_cora(small: Graph, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The cells of a place, measured once."""
    folder = tmp_path_factory.mktemp("cells")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "N_FLOOR_DRAWS", 2)
        patch.setattr(module, "N_BOOTSTRAP_DRAWS", 5)
        patch.setattr(protocol.Place, "load", lambda self: small)
        run_cells(folder, [Place("cora", 20, 0)], NAMES, 1, quiet)
    return folder


@pytest.fixture
def made(cells_of_cora: Path, quick_cells: Graph, tmp_path: Path) -> Graph:
    """A copy of these cells is in `tmp_path`."""
    shutil.copytree(cells_of_cora, tmp_path, dirs_exist_ok=True)
    return quick_cells


@pytest.mark.slow
def test_cells_are_run_once_and_only_what_is_missing_again(made: Graph, tmp_path: Path) -> None:
    where = [Place("cora", 20, 0)]
    paths = [cell_path(tmp_path, where[0], name) for name in NAMES]
    before = [path.read_text() for path in paths]
    paths[1].unlink()
    stamp = paths[0].stat().st_mtime_ns
    run_cells(tmp_path, where, NAMES, 1, quiet)
    assert paths[0].stat().st_mtime_ns == stamp
    again = json.loads(paths[1].read_text())
    assert again["measures"] == json.loads(before[1])["measures"]
    assert not list(tmp_path.rglob("*.part"))


def cell(method: str, seed: int, dataset: str = "cora", rate: int = 20, **measures: float) -> module.Cell:
    names = (*protocol.MEASURES, "ace_minority_noise_floor", "macro_ace_noise_floor", "ece_noise_floor")
    of = {"method": method, "dataset": dataset, "label_rate": rate, "seed": seed}
    return of | {"measures": dict.fromkeys(names, 0.5) | measures, "numbers": {}, "seconds": 1.0}


def test_means_paired_tests_and_the_strongest_rival() -> None:
    first, second = (0.10, 0.12, 0.14), (0.13, 0.14, 0.18)
    groups = by_key(
        [cell("ours", s, macro_ace=v) for s, v in enumerate(first)]
        + [cell("temperature", s, macro_ace=v) for s, v in enumerate(second)]
        + [cell("matrix", s, macro_ace=0.9) for s in range(3)]
    )
    ours, theirs = groups["cora", 20, "ours"], groups["cora", 20, "temperature"]
    summary = summarise(ours.values(), "macro_ace")
    assert (summary.mean, summary.std, summary.n) == (pytest.approx(0.12), pytest.approx(0.02), 3)
    assert summary.text(100, 1) == "12.0 ± 2.0"
    assert summarise([ours[0]], "macro_ace").text(1, 3) == "0.100"
    assert paired_p(ours, theirs, "macro_ace") == pytest.approx(float(ttest_rel(first, second).pvalue))
    assert math.isnan(paired_p({0: ours[0]}, theirs, "macro_ace"))
    assert math.isnan(paired_p(ours, ours, "macro_ace"))
    assert strongest(groups, "cora", 20, ("temperature", "matrix", "beta"), "macro_ace") == "temperature"
    assert strongest(groups, "cora", 20, ("temperature", "matrix"), "recall") in ("temperature", "matrix")
    assert strongest(groups, "cora", 30, ("temperature",), "macro_ace") == ""


def test_a_cell_is_lost_by_one_measure() -> None:
    paper = {"recall": 0.8, "macro_f1": 0.8, "ace_minority": 0.1, "macro_ace": 0.1}
    better = {"recall": 0.8, "macro_f1": 0.81, "ace_minority": 0.09, "macro_ace": 0.09}
    assert Comparison("cora", 20, better, paper, 1).lost == []
    assert Comparison("cora", 20, paper, paper, 1).lost == ["ace_minority", "macro_ace"]
    assert Comparison("cora", 20, better | {"recall": 0.79}, paper, 1).lost == ["recall"]
    (one,) = compare_with_paper(by_key([cell("ours", 0, **better)]))
    assert one.paper == TABLE2["cora", 20, "ours"]


def test_table_2_in_all_formats_says_what_was_not_run(tmp_path: Path) -> None:
    cells = [cell(name, s) for name in ("uncalibrated", "temperature", "ours", "ours_population") for s in range(2)]
    paths = table2(cells, {"pubmed": "a file is missing"}, tmp_path)
    text = (tmp_path / "table2.md").read_text()
    assert "pubmed: not run. a file is missing" in text
    assert "71.54" in text
    assert "0 of 1 cells won" in text
    assert {path.suffix for path in paths} == {".md", ".tex", ".json", ".csv"}
    assert r"\begin{tabular}" in (tmp_path / "table2.tex").read_text()
    data = json.loads((tmp_path / "table2.json").read_text())
    assert data["Table 2: ours beside the paper's"][0]["seeds"] == [0, 1]
    table3([cell("gat", 0), cell("uncalibrated", 0)], {}, tmp_path)
    assert "78.79" in (tmp_path / "table3.md").read_text()  # GAT-CS on Cora, printed as 63.04, as macro-F1


def test_tables_escape_what_their_format_reserves(tmp_path: Path) -> None:
    table = Table("t", ["a_b", "c"], [["50 %", "x|y"]])
    write_tables([table], tmp_path, "t")
    assert r"50 \%" in table.latex()
    assert r"a\_b" in table.latex()
    assert "x/y" in table.markdown()
    with (tmp_path / "t.csv").open(encoding="utf-8") as file:
        assert list(csv.reader(file)) == [["a_b", "c"], ["50 %", "x|y"]]


def test_the_command_refuses_what_it_does_not_know(everywhere_small: Graph, tmp_path: Path) -> None:
    for options, what in (
        (["--methods", "other"], "must be among"),
        (["--label-rates", "many"], "whole numbers"),
        (["--seeds", "0"], "at least 1"),
        (["--datasets", "karate"], "must be one of"),
    ):
        result = CliRunner().invoke(cli.app, ["table2", "--datasets", "cora", *options, "--out", str(tmp_path)])
        assert isinstance(result.exception, InputError)
        assert what in str(result.exception)


@pytest.mark.slow
def test_eice_of_a_cell_is_read_off_the_jackknife_of_its_place(made: Graph, tmp_path: Path) -> None:
    where = [Place("cora", 20, 0)]
    found = module.read_individual(tmp_path, where[0])
    assert found is not None
    cells = read_cells(tmp_path, where, NAMES)
    for one in cells:
        p = read_probability(tmp_path, where[0], one["method"]).numpy()
        for measure, kind in (("eice", "estimate"), ("eice_midpoint", "midpoint")):
            of_rare = np.array(found["train"][kind])
            gaps = np.where(p > 0.5, of_rare - p, (1 - of_rare) - (1 - p))
            assert one["measures"][measure] == pytest.approx(np.abs(gaps).mean(), rel=1e-6)
    assert cells[0]["measures"]["eice"] != cells[1]["measures"]["eice"]
    assert cells[0]["intervals_of_network"]["coverage"] == found["train"]["coverage"]
    shares = found["train"]["coverage"]
    rare = float((made.y[made.split.test] == 1).double().mean())  # type: ignore[index,union-attr]
    assert shares["all"] == pytest.approx(rare * shares["rare"] + (1 - rare) * shares["majority"])
    table = coverage_table(by_key(cells))
    assert [row[:4] for row in table.rows] == [["cora", "20", "train", "1"]]


HALF_A_DIGIT = 0.5e-4 + 1e-9  # of a number printed in per cent with two decimals
NEAR = 4e-4  # GIN-CS on DBLP at label rate 20 is off by 3e-4, all others by less than half a digit
MISPRINTS = {("dblp", 20, "gat")}  # the paper prints 97.95, which fits neither F1 (75.95 would)


def test_every_cell_of_both_tables_is_there() -> None:
    assert len(TABLE2) == len(DATASETS) * len(LABEL_RATES) * 7
    assert len(TABLE3) == len(DATASETS) * len(LABEL_RATES) * 4
    assert TABLE2["facebook", 40, "ours"]["macro_ace"] == 0.0833


def test_f1_by_hand() -> None:
    # 10 nodes, 4 rare: 3 found, 1 missed, 2 false alarms
    rare, macro = f1_from_accuracy_and_recall(0.7, 0.75, 4, 10)
    assert rare == pytest.approx(6 / 9)
    assert macro == pytest.approx((6 / 9 + 8 / 11) / 2)


@pytest.mark.parametrize("key", TABLE3)
def test_table_3_prints_macro_f1_for_gcn_and_the_rare_classs_f1_for_gat_and_gin(key: tuple[str, int, str]) -> None:
    row = TABLE3[key]
    rare, macro = f1_from_accuracy_and_recall(row["accuracy"], row["recall"], N_RARE[key[0]])
    is_rare, is_macro = (abs(value - row["macro_f1"]) <= NEAR for value in (rare, macro))
    if key in MISPRINTS:
        assert not is_rare
        assert not is_macro
    else:
        assert is_rare == (key[2] in ("gat", "gin"))
        assert is_macro == (key[2] in ("uncalibrated", "ours"))


@pytest.mark.parametrize("key", [key for key in TABLE2 if key != ("dblp", 20, "ours")])
def test_recalls_are_whole_numbers_of_rare_nodes(key: tuple[str, int, str]) -> None:
    hits = TABLE2[key]["recall"] * N_RARE[key[0]]
    assert abs(hits - round(hits)) <= 2 * HALF_A_DIGIT * N_RARE[key[0]]
