"""`calirare explain`: sentences, tables and JSON of a saved run, and one sentence for what cannot be explained."""

from __future__ import annotations

import dataclasses
import json
import pickle
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import calirare
from calirare._util.run_files import check_as_written
from calirare.run import folder
from tests.helpers.command import QUICK, assert_refused, call, succeed
from tests.helpers.tasks import rare_task


@pytest.fixture(scope="module")
def run(finished):
    return finished[0]


def test_what_is_said_of_the_likeliest_alerts_agrees_with_the_runs_files(run):
    said = succeed("explain", "--run", run, "--top", 3, "--json", silent=True)
    found = json.loads(said.out)["explanations"]
    table = pd.read_parquet(run / "predictions.parquet")
    decided = table[~table["split"].isin(["train", "val"])].sort_values("p_rare", ascending=False, kind="stable")
    assert [each["node"] for each in found] == decided["node"].head(3).tolist()
    for each in found:
        assert abs(each["p_rare"] - float(table["p_rare"][each["node"]])) < 1e-6  # as the table is written
        assert each["alert"]
        effects = [abs(label["effect"]) for label in each["labels"]]
        assert effects == sorted(effects, reverse=True)
        for label in each["labels"]:
            assert label["without"] == pytest.approx(each["p_rare"] - label["effect"], abs=1e-12)
            assert table["split"][label["node"]] in ("train", "val")


def test_alerts_are_picked_by_the_runs_table_and_without_it_by_the_detector(run, tmp_path):
    copy = Path(shutil.copytree(run, tmp_path / "run"))
    path = copy / "predictions.parquet"
    table = pd.read_parquet(path)
    every = torch.arange(len(table))

    def said():
        explainer = calirare.load(copy).explainer()
        names = [each.name for each in calirare.load(copy).explain(top=5, explainer=explainer)]
        return names, explainer.stored_probabilities(every)[:, 1].numpy(), explainer.p_rare(every).numpy()

    names, stored, made = said()
    assert np.array_equal(stored, table["p_rare"])
    assert np.abs(stored - made).max() < 1e-6
    table.assign(p_rare=1 - table["p_rare"]).to_parquet(path, index=False)
    changed = said()
    path.unlink()
    for others in (changed, said()):
        assert others[0] == names
        assert np.array_equal(others[1], made)


def test_text_begins_with_sentences_and_fits_a_terminal(run):
    said = call("explain", "--run", run, "--node", 7, "--labels", 4)
    assert said.out.startswith("P(rare) of 7 is 0.")
    assert max(map(len, said.out.splitlines())) <= 80
    assert "The label of" in said.out


def test_a_file_in_the_runs_folder_belongs_to_the_run(quick_run):
    out = quick_run / "why.json"
    succeed("explain", "--run", quick_run, "--node", 7, "--out", out)
    assert json.loads(out.read_text())["explanations"][0]["name"] == "7"
    check_as_written(quick_run, ["why.json"])
    again = call("explain", "--run", quick_run, "--node", 7, "--out", out)
    assert "exists already" in assert_refused(again)
    succeed("explain", "--run", quick_run, "--node", 8, "--out", out, "--overwrite")
    assert json.loads(out.read_text())["explanations"][0]["name"] == "8"


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ((), "name nodes (--node), or --top K"),
        (("--node", "7", "--top", "1"), "not both"),
        (("--node", "9999"), "its nodes are numbers from 0 to 259"),
        (("--node", "fred"), "has no node fred"),
        (("--top", "0"), "at least 1"),
        (("--node", "7", "--labels", "0"), "at least 1"),
        (("--node", "7", "--out", "why.txt"), "must end in .json"),
    ],
)
def test_what_cannot_be_explained_is_one_sentence(words, wanted, run):
    assert wanted in assert_refused(call("explain", "--run", run, *words))


def test_a_node_that_is_named_twice_is_explained_once(run):
    once, twice = (call("explain", "--run", run, "--node", *nodes, "--json") for nodes in ([7, 9], [7, 9, 7, "9"]))
    assert twice.code == 0, twice.err
    assert twice.out == once.out


HOSTILE = np.array(["\x1b[31mred", "a\nb\u202ec\x00\x07\rd", "$\\frac{", "\u4e2d\u6587" + "x" * 298])


@pytest.mark.slow
def test_a_loaded_run_prepares_once_for_each_graph(run, monkeypatch):
    saved, made = calirare.load(run), []
    prepare = folder.explainer_of
    monkeypatch.setattr(folder, "explainer_of", lambda *parts: made.append(parts) or prepare(*parts))
    first, second = saved.explain([3]), saved.explain([5])
    assert (len(made), first[0].node, second[0].node) == (1, 3, 5)
    graph = saved.graph()
    assert saved.explain([3], graph=graph)[0] == first[0]
    saved.explain([5], graph=graph)
    assert len(made) == 2
    saved.explain([5], explainer=saved.explainer())
    assert len(made) == 3
    assert "_last_explainer" not in vars(pickle.loads(pickle.dumps(saved)))


@pytest.mark.slow
def test_names_cannot_drive_a_terminal(tmp_path):
    task = rare_task()
    names = np.array([f"n{i}" for i in range(task.n_nodes)], dtype="<U300")
    names[: len(HOSTILE)] = HOSTILE
    dataclasses.replace(task, node_names=names).to_npz(tmp_path / "g.npz")
    succeed("train", "--dataset", tmp_path / "g.npz", *QUICK, "--out", tmp_path / "run")
    said = succeed("explain", "--run", tmp_path / "run", "--node", *HOSTILE, silent=True)
    assert said.out.replace("\n", "").isprintable()
    assert "P(rare) of \\x1b[31mred is" in said.out
    assert "P(rare) of a\\nb" in said.out
