"""Tables of predictions: columns that belong together, blocks, and what to look at first."""

from __future__ import annotations

import csv
import dataclasses
import io

import numpy as np
import pandas as pd
import pytest
import torch

import calirare
from calirare._util.run_files import seal
from calirare.run import Probabilities, predictions
from calirare.run.tables import REVIEWED, inert, read_predictions, write_csv, write_predictions
from calirare_ext import Csr
from tests.helpers.command import rough_runs, succeed
from tests.helpers.tables import tables, written
from tests.helpers.tasks import rare_task

WITH_FOLDS = ("<party>", "rank", "expected_amount", "p_low", "p_high", "label_set")
COLUMNS = tuple(each.name for each in calirare.run.COLUMNS if "rare" in each.tables and each.name not in WITH_FOLDS)


@pytest.fixture(scope="module")
def outcome():
    return calirare.train(rare_task(), preset="paper", epochs=12, folds=0)


def test_predictions_of_a_graph_without_anything_known(outcome):
    graph = calirare.Graph(outcome.graph.adjacency, outcome.graph.x)
    table = predictions(graph, outcome.for_tables(), None, None)
    assert tuple(table.columns) == COLUMNS
    assert (table["y"] == -1).all()
    assert (table["split"] == "").all()
    assert table[["lower", "upper", "p_correct", "ice"]].isna().all().all()


def test_without_pyarrow_there_is_only_csv(outcome, tmp_path, monkeypatch):
    table = predictions(outcome.graph, outcome.for_tables(), outcome.jackknife, None)
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    assert write_predictions(table, tmp_path) == [tmp_path / "predictions.csv"]
    assert [path.name for path in tmp_path.iterdir()] == ["predictions.csv"]
    assert len(pd.read_csv(tmp_path / "predictions.csv")) == 260


def test_a_table_written_in_blocks_is_the_table(outcome, tmp_path, monkeypatch):
    graph, said = outcome.graph, outcome.for_tables()
    table = predictions(graph, said, outcome.jackknife, graph.split)
    monkeypatch.setattr("calirare.run.tables.ROWS", 100)
    monkeypatch.setattr("calirare.run.tables.LARGE", 100)
    paths = write_predictions(table, tmp_path)
    assert [path.name for path in paths] == ["predictions.csv", "predictions.parquet"]
    assert paths[0].read_text().startswith(",".join(COLUMNS) + "\n")
    for path in paths:
        read = pd.read_csv(path) if path.suffix == ".csv" else pd.read_parquet(path)
        assert list(read["split"]) == list(table["split"])
        for name in COLUMNS[2:]:
            assert (read[name] - table[name]).abs().max() <= 1e-6 * max(1, table[name].abs().max()), name
        assert list(read["node"]) == list(range(graph.n_nodes))


def test_uncertainty_and_ice_are_about_the_prediction_of_their_row(outcome):
    graph = outcome.graph
    for target in ("balanced", "population"):
        said = Probabilities.of(outcome.logits, outcome.calibrators, target)
        table = predictions(graph, said, outcome.jackknife, graph.split)
        rare = outcome.jackknife.estimate[:, 1].numpy()
        right = np.where(table["prediction"] == 1, rare, 1 - rare)
        assert np.abs(table["p_correct"] - right).max() < 1e-6
        assert np.abs(table["ice"] - np.abs(right - table["confidence"])).max() < 1e-6
        assert np.abs(table["ice_raw"] - outcome.jackknife.ice.numpy()).max() < 1e-6
    balanced = outcome.probabilities("balanced").argmax(1)
    assert bool((balanced != outcome.probabilities(None).argmax(1)).any()), "or the rows could not be told apart"


def test_with_the_midpoint_they_are_those_of_the_interval():
    outcome = calirare.train(rare_task(), preset="paper", epochs=12, folds=0, uncertainty="midpoint")
    graph, result = outcome.graph, outcome.jackknife
    raw = outcome.probabilities(None)[:, 1]
    table = predictions(graph, outcome.for_tables(), result, graph.split)
    assert np.abs(table["p_correct"] - result.uncertainty.numpy()).max() < 1e-6
    assert np.abs(table["ice"] - result.ice.numpy()).max() < 1e-6
    own = torch.maximum(raw, 1 - raw)
    assert np.abs(table["ice_raw"] - (result.uncertainty - own).abs().numpy()).max() < 1e-6


def test_review_lists_nodes_without_a_label_where_there_are_some(tmp_path):
    graph = rare_task()
    in_split = torch.cat([graph.split.train, graph.split.val, graph.split.test])
    asked = torch.ones(graph.n_nodes, dtype=torch.bool)
    asked[in_split] = False
    asked &= torch.arange(graph.n_nodes) % 2 == 0
    graph = dataclasses.replace(graph, y=graph.y.masked_fill(asked, -1), original_y=None, original_class_names=())
    outcome = calirare.train(graph, preset="paper", epochs=12, folds=0)
    assert set(outcome.review().tolist()) == set(asked.nonzero().flatten().tolist())
    write_csv(outcome._rows(outcome.review()[:REVIEWED]), tmp_path / "review.csv")
    table = pd.read_csv(tmp_path / "review.csv")
    assert len(table) == int(asked.sum()) > 3
    assert bool((table["y"] == -1).all())


def test_review_begins_with_the_prediction_most_likely_wrong(outcome, tmp_path):
    graph, p = outcome.graph, outcome.probabilities("balanced")
    order = outcome.review()
    known = set(torch.cat([graph.split.train, graph.split.val]).tolist())
    assert set(order.tolist()) == set(range(graph.n_nodes)) - known
    right = outcome.jackknife.about(p)[0][order]
    assert bool((right[1:] >= right[:-1]).all())
    assert float(right[0]) < 0.5 < float(right[-1])
    wrong = (p.argmax(1) != graph.y)[order].double()
    tenth = len(order) // 10
    assert float(wrong[:tenth].mean()) > 2 * float(wrong.mean())
    write_csv(outcome._rows(outcome.review()[:REVIEWED]), tmp_path / "review.csv")
    table = pd.read_csv(tmp_path / "review.csv")
    assert tuple(table.columns) == COLUMNS
    assert table["node"].tolist() == order[:100].tolist()
    every = predictions(graph, outcome.for_tables(), outcome.jackknife, graph.split)
    assert (table["p_correct"] - every["p_correct"].to_numpy()[table["node"]]).abs().max() < 1e-6
    assert outcome.jackknife.review(p).numel() == graph.n_nodes


def weighing(task, weight):
    a = task.adjacency
    values = torch.full((a.nnz,), weight)
    return dataclasses.replace(task, adjacency=Csr(a.indptr, a.indices, values, a.n_cols), trusted=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("own", "other", "words"), [(3.0, 1.0, "no edge has a weight"), (1.0, 3.0, "edges have weights")]
)
def test_weights_that_another_graph_lacks_or_has_are_told(own, other, words, tmp_path):
    own, other = weighing(rare_task(), own), weighing(rare_task(), other)
    with rough_runs():
        calirare.train(own, model="hops", folds=2, epochs=5).save(tmp_path / "run")
    saved, said = calirare.load(tmp_path / "run"), []
    saved.score(own, say=said.append)
    assert not any("weight" in note for note in said)
    saved.score(other, say=said.append)
    assert any(note.startswith(words) for note in said)
    other.to_folder(tmp_path / "g")
    told = succeed("predict", "--run", tmp_path / "run", "--graph", tmp_path / "g", "--scores-only", "--out",
                tmp_path / "scores.parquet")  # fmt: skip
    assert ("no edge has a weight" in told.out + told.err) is words.startswith("no")


@pytest.mark.slow
def test_weights_that_are_numbers_of_rows_may_all_be_one(tmp_path):
    nodes, edges = tables()
    path, given = written(tmp_path, nodes, edges), {"nodes": str(tmp_path / "nodes.csv"), "rare_class": "fraud"}
    with rough_runs():
        outcome = calirare.train(dataset=str(path), duplicates="sum", model="hops", folds=2, epochs=5, **given)
        outcome.save(tmp_path / "run")
    saved, said = calirare.load(tmp_path / "run"), []
    assert saved.scorer.weighted
    once = calirare.Graph.from_tables(edges.drop_duplicates(), nodes.drop(columns="label"))
    saved.score(once, say=said.append)
    assert not any("weight" in note for note in said)


NAMES = [
    "a\rb",
    "c\nd",
    'say "x"',
    "e,f",
    "=1+1",
    "+2*3",
    "-2+3",
    "@sum",
    "'=x",
    "\tcmd",
    "-5",
    "plain",
    "ä\u2028",
    "'q",
]


def table(names: list[str]) -> pd.DataFrame:
    return pd.DataFrame({"node": names, "split": "test", "p": np.linspace(0, 1, len(names))})


@pytest.mark.parametrize("names", [NAMES, NAMES[1:]], ids=["carriage return", "without"])
def test_names_come_back_as_they_were(names, tmp_path):
    write_predictions(table(names), tmp_path)
    seal(tmp_path)
    found = read_predictions(tmp_path)
    assert found["node"].tolist() == names
    assert found["p"].dtype == np.float64
    rows = list(csv.reader(io.StringIO((tmp_path / "predictions.csv").read_bytes().decode(), newline="")))
    assert [len(row) for row in rows] == [3] * (len(names) + 1)
    assert pd.read_parquet(tmp_path / "predictions.parquet")["node"].tolist() == names


def test_no_name_is_a_formula():
    shown = inert(table(NAMES))["node"]
    for before, now in zip(NAMES, shown, strict=True):
        assert now == before or now == "'" + before
        assert now == "-5" or now[0] not in "=+-@\t\r", before


def test_numbers_stay():
    numbers = table(["1", "2"]).assign(node=[1, -2])
    assert inert(numbers) is numbers


def test_the_name_of_a_class_is_no_formula_either():
    shown = inert(pd.DataFrame({"node": [1, 2], "given": ["=HYPERLINK(1)", "fine"], "reason": ["=", "-"]}))
    assert shown["given"].tolist() == ["'=HYPERLINK(1)", "fine"]
    assert shown["node"].tolist() == [1, 2]
