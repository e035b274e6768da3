"""From an edge table and a node table to a run's folder."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import yaml

import calirare
from tests.helpers.command import QUICK, call, succeed
from tests.helpers.tasks import rare_task

STRICT = ("--duplicates", "error", "--self-loops", "error")
NAMES = np.array([f"p{i:03d}" for i in range(260)])


def write_tables(folder, suffix=".csv", **columns):
    """Writes the task as tables: nodes by name, classes by name, one direction of each edge."""
    graph = rare_task()
    rows, cols = graph.adjacency.rows().numpy(), graph.adjacency.indices.numpy()
    once = rows < cols
    edges = pd.DataFrame({"source": NAMES[rows[once]], "target": NAMES[cols[once]]})
    part = np.full(260, "", dtype=object)
    for name in ("train", "val", "test"):
        part[getattr(graph.split, name).numpy()] = name
    nodes = pd.DataFrame(graph.x.numpy(), columns=[f"f{i}" for i in range(6)])
    nodes = nodes.assign(node=NAMES, label=np.where(graph.y.numpy() == 1, "fraud", "fine"), split=part, **columns)
    for name, table in (("edges", edges), ("nodes", nodes)):
        path = folder / f"{name}{suffix}"
        table.to_parquet(path) if suffix == ".parquet" else table.to_csv(path, index=False)
    return folder / f"edges{suffix}"


@pytest.mark.slow
def test_tables_as_people_have_them_train_without_an_option(tmp_path):
    edges = write_tables(tmp_path)
    nodes = pd.read_csv(tmp_path / "nodes.csv").drop(columns="split").rename(columns={"node": "account"})
    nodes["label"] = nodes["label"].where(np.arange(260) % 2 == 0)
    nodes.to_csv(tmp_path / "nodes.csv", index=False)
    lines = edges.read_text().splitlines()
    edges.write_text("\n".join([*lines, lines[1], lines[2], "p003,p003"]) + "\n")
    said = succeed("train", "--dataset", edges, *QUICK, "--verbose", "--out", tmp_path / "run")
    for words in (
        "the edges refer to them by column 'account'",
        "edges: left out, edges of a node to itself: 1 (--self-loops keep",
        "edges: repetitions among them: 2, each edge counts once",
        f"edges: listed in one direction only: {len(lines) - 1:,} of {len(lines) - 1:,}, each joins",
    ):
        assert words in said.out, words
    table = pd.read_csv(tmp_path / "run" / "predictions.csv")
    assert table["node"].tolist() == NAMES.tolist()
    assert table.loc[table["split"] != "unused", "y"].ge(0).all()
    labelled, test = (table["split"] != "unused").sum(), (table["split"] == "test").sum()
    assert labelled == 130
    assert labelled / 4 - 2 <= test <= labelled / 4
    config = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert config["data"]["split"] == "share"
    assert config["data"]["rare_class"] == "fraud"
    succeed("train", "--config", tmp_path / "run" / "config.yaml", "--out", tmp_path / "again")
    assert (tmp_path / "again" / "predictions.csv").read_text() == (tmp_path / "run" / "predictions.csv").read_text()


def test_all_faults_are_said_at_once_with_the_names_of_nodes(tmp_path):
    edges = write_tables(tmp_path)
    nodes = tmp_path / "nodes.csv"
    nodes.write_text(nodes.read_text().replace("p000", "p001", 1).replace(",train", ",training", 1))
    edges.write_text(edges.read_text() + "p003,p003\np004,nobody\n" + edges.read_text().splitlines()[-1] + "\n")
    before = sorted(tmp_path.iterdir())
    said = call("train", "--dataset", edges, *STRICT, "--rare-class", "fraud", *QUICK, "--out", tmp_path / "run")
    assert (said.code, said.out, sorted(tmp_path.iterdir())) == (2, "", before)
    lines = said.err.splitlines()
    assert lines[0] == "calirare: 5 faults to fix:"
    for line, (file, words) in zip(
        lines[1:],
        [
            ("nodes.csv", "lists node p001 more than once, again in line 3: keep one row of it"),
            ("nodes.csv", "must hold train, val, test or nothing, got 'training' in line"),
            ("edges.csv", "must have a row in the node table, but node 'p000' has none, named in line"),
            ("edges.csv", "joins node p003 to itself: pass self_loops="),
            ("edges.csv", "is listed 2 times (1 repeated): pass duplicates="),
        ],
        strict=True,
    ):
        assert file in line
        assert words in line


@pytest.mark.slow
def test_a_part_of_a_table_is_scored_as_in_the_whole(tmp_path):
    """Though all that is left of a column of words would be true or false, and of one of codes a number."""
    cells, lone = {"word": ["true", "false", "unknown"], "code": ["02139", "10001", "x"]}, tmp_path / "lone"
    columns = {name: np.array(values)[np.arange(260) % 3] for name, values in cells.items()}
    words, edges = pd.Series(columns["word"], NAMES), write_tables(tmp_path, **columns)
    ends = pd.read_csv(edges)
    ends = ends[ends["source"].map(words).to_numpy() == ends["target"].map(words).to_numpy()]
    ends.to_csv(edges, index=False)
    how = ("--model", "trees", "--folds", 2)
    succeed("train", "--dataset", edges, *how, "--out", tmp_path / "run")
    nodes = pd.read_csv(tmp_path / "nodes.csv", dtype={"word": str, "code": str})
    lone.mkdir()
    ends[ends["source"].map(words) == "true"].to_csv(lone / "edges.csv", index=False)
    nodes[nodes["word"] == "true"].to_csv(lone / "nodes.csv", index=False)
    for graph in (edges, lone / "edges.csv"):
        succeed("predict", "--run", tmp_path / "run", "--graph", graph, "--out", graph.parent / "p.csv")
    whole, part = (pd.read_csv(folder / "p.csv", index_col="node")["p_rare"] for folder in (tmp_path, lone))
    assert len(part) == 87
    assert np.allclose(whole[part.index], part, rtol=0, atol=1e-6)


def test_a_run_finds_its_own_table_again_in_another_format(tmp_path):
    edges = write_tables(tmp_path, zip=np.array(["02139", "10001"])[np.arange(260) % 2])
    succeed("train", "--dataset", edges, *QUICK, "--out", tmp_path / "run")
    nodes = pd.read_csv(tmp_path / "nodes.csv", dtype={"zip": str})
    (tmp_path / "other").mkdir()
    nodes.to_parquet(tmp_path / "other" / "nodes.parquet", index=False)
    pd.read_csv(edges).to_parquet(tmp_path / "other" / "edges.parquet", index=False)
    saved = calirare.load(tmp_path / "run")
    assert saved.kinds["zip"] == "numeric"
    assert saved.graph(tmp_path / "other" / "edges.parquet").n_nodes == 260


def test_nodes_without_features_are_scored_beside_columns_that_the_run_does_not_know(tmp_path):
    edges, later = write_tables(tmp_path), tmp_path / "later"
    nodes = pd.read_csv(tmp_path / "nodes.csv")
    nodes[["node", "label", "split"]].to_csv(tmp_path / "nodes.csv", index=False)
    succeed("train", "--dataset", edges, *QUICK, "--out", tmp_path / "run")
    later.mkdir()
    edges.rename(later / "edges.csv")
    nodes.drop(columns=["label", "split"]).to_csv(later / "nodes.csv", index=False)
    for out in (("--out", tmp_path / "p.csv"), ("--scores-only", "--out", tmp_path / "s.parquet")):
        said = succeed("predict", "--run", tmp_path / "run", "--graph", later / "edges.csv", *out)
        assert "note: left out, as the run has no such feature: f0, f1, f2, f3, f4, f5" in said.err
        assert "nodes: those of the run have no features, the number of neighbours is one: 'neighbours'" in said.err
    own = pd.read_csv(tmp_path / "run" / "predictions.csv")["p_rare"]
    for scored in (pd.read_csv(tmp_path / "p.csv"), pd.read_parquet(tmp_path / "s.parquet")):
        assert np.allclose(scored["p_rare"], own, rtol=0, atol=1e-6)
