"""`calirare train --task classes`: from two tables with names to probabilities of every class."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.helpers.command import assert_refused, call, succeed


def tables(folder: Path) -> Path:
    """Writes an edge table and a node table: 120 nodes of three classes, half of the labels known, missing cells."""
    rng = np.random.default_rng(0)
    y = rng.choice(3, 120, p=[0.5, 0.3, 0.2])
    ends = np.stack([np.arange(120), rng.permutation(120)], 1)
    ends = ends[ends[:, 0] < ends[:, 1]]
    pd.DataFrame({"source": [f"n{i}" for i in ends[:, 0]], "target": [f"n{i}" for i in ends[:, 1]]}).to_csv(
        folder / "edges.csv", index=False
    )
    nodes = pd.DataFrame(rng.normal(size=(120, 3)) + 2 * np.eye(3)[y], columns=list("abc"))
    nodes.loc[::7, "a"] = np.nan
    nodes.insert(0, "id", [f"n{i}" for i in range(120)])
    nodes["label"] = np.where(rng.random(120) < 0.7, np.array(["loan", "card", "ring, big"])[y], "")
    nodes.to_csv(folder / "nodes.csv", index=False)
    return folder / "edges.csv"


def test_two_classes_as_they_are_are_not_called_rare(tmp_path: Path) -> None:
    edges = tables(tmp_path)
    nodes = pd.read_csv(tmp_path / "nodes.csv").replace({"label": {"ring, big": "card"}})
    nodes.to_csv(tmp_path / "nodes.csv", index=False)
    files = ("--dataset", edges, "--nodes", tmp_path / "nodes.csv", "--out", tmp_path / "run")
    said = succeed("train", *files, "--task", "classes", "--model", "hops", "--epochs", "5", "--folds", "0")
    assert "2 classes ('card' " in (tmp_path / "run" / "log.txt").read_text()
    assert "is rare" not in said.err


@pytest.mark.slow
def test_two_tables_become_probabilities_of_every_class(tmp_path: Path) -> None:
    edges, out = tables(tmp_path), tmp_path / "run"
    again = edges.read_text().splitlines()[-1]
    edges.write_text(f"{edges.read_text()}{again}\n")
    words = ("train", "--dataset", edges, "--nodes", tmp_path / "nodes.csv", "--symmetrize", "--task", "classes")
    quick = ("--label-rate", "5", "--model", "gcn", "--epochs", "5", "--folds", "0", "--verbose", "--out", out)
    said = succeed(*words, *quick)
    assert "by class, true base rate" in said.out
    assert "rare classes" in said.out
    assert "note: edges: repetitions among them: 1, each edge counts once" in said.out
    table = pd.read_csv(out / "predictions.csv")
    p = table[["p_card", "p_loan", "p_ring, big"]]
    assert np.allclose(p.sum(axis=1), 1, rtol=0, atol=1e-6)
    assert (table.confidence == p.max(axis=1)).all()
    assert (table.prediction == p.idxmax(axis=1).str.removeprefix("p_")).all()
    assert table.node[3] == "n3"
    other = succeed(
        "predict", "--run", out, "--graph", edges, "--nodes", tmp_path / "nodes.csv", "--out", tmp_path / "p.csv"
    )
    again = pd.read_csv(tmp_path / "p.csv")
    assert again.columns.tolist() == [name for name in table.columns if name not in ("split", "y")]
    assert again.node.tolist() == table.node.tolist()
    assert np.allclose(again[p.columns], p, rtol=0, atol=1e-6)
    assert "expected among 120 nodes: card" in other.out
    assert "drift: ok" in other.out
    refused = call("predict", "--run", out, "--graph", edges, "--prevalence", "0.1")
    assert "trained with task classes" in assert_refused(refused)
    assert "--top K with --class NAME" in assert_refused(call("explain", "--run", out))
    both = call(*words, *quick, "--rare-class", "loan", "--overwrite")
    assert "must be left out with task classes" in assert_refused(both)
    assert (out / "predictions.csv").is_file()
