"""A stranger's tables, and the engines that score them with a query."""

from __future__ import annotations

import dataclasses
import sqlite3
from pathlib import Path

import numpy as np
import pandas as pd
import torch

import calirare
from calirare.export import DIALECTS, Names, query_of, without_labels
from calirare.graph import Graph
from calirare.run import Scorer

NAMES = Names()
SECOND = 1e-3 / 86400  # of a day, a thousandth
NOON = 8796.5  # days from 2000 to 2024-01-31 12:00
ZONED_MOMENTS = {
    "2024-01-31T12:00:00Z": NOON,
    "2024-01-31T12:00:00+01:00": NOON - 1 / 24,
    "2024-01-31 12:00:00.5-05": NOON + (5 * 3600 + 0.5) / 86400,
    "2024-01-31 12:00+05:30": NOON - 5.5 / 24,
}
MOMENTS = {"2024-01-31": NOON - 0.5, "2024-01-31 12:00:00": NOON, "2024-01-31T12:00": NOON} | ZONED_MOMENTS

WAYS = MOMENTS | {  # of ISO 8601, as `calirare predict` reads them
    "2024": NOON - 30.5,
    "2024-02": NOON + 0.5,
    "2024/02": NOON + 0.5,
    "20240131": NOON - 0.5,
    "2024/01/31": NOON - 0.5,
    "2024.01.31 12:00": NOON,
    "2024 01 31": NOON - 0.5,
    " 2024-01-31 ": NOON - 0.5,
    "2024-01-31T12": NOON,
    "2024-01-31 12": NOON,
    "2024-01-31T1200": NOON,
    "20240131T12": NOON,
    "20240131 120000": NOON,
    "20240131T12:00:00": NOON,
    "20240131T120000.5": NOON + 0.5 / 86400,
    "20240131T120000Z": NOON,
    "20240131T140000+0200": NOON,
    "2024-01-31T12Z": NOON,
    "2024-01-31 14+02": NOON,
    "2024-01-31T12:00Z": NOON,
    "2024-01-31 12:00:00 Z": NOON,
    "2024-01-31 12:00:00+00": NOON,
    "2024-01-31 14:00:00+0200": NOON,
}


def tables(n: int = 70, seed: int = 0) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Returns nodes and edges of a small graph: amounts, gaps, names of kinds, days, repeated edges and self loops."""
    rng = np.random.default_rng(seed)
    rare = rng.random(n) < 0.25
    amount = np.exp(rng.normal(size=n) + rare)
    nodes = pd.DataFrame(
        {
            "node": [f"n{i:03d}" for i in range(n)],
            "amount": amount,
            "spread": rng.normal(size=n) + rare,
            "gaps": np.where(rng.random(n) < 0.2, np.nan, rng.normal(size=n)),
            "kind": rng.choice(["a'b", "two words", 'c"d', "\\n"], n),
            "day": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 900, n), "D"),
            "label": np.where(rng.random(n) < 0.7, np.where(rare, "fraud", "fine"), None),
        }
    )
    nodes["day"] = nodes["day"].dt.strftime("%Y-%m-%d")
    ends = rng.integers(0, n, (4 * n, 2))
    ends = np.concatenate([ends, ends[:5], np.stack([np.arange(3)] * 2, 1)])
    edges = pd.DataFrame({"source": nodes.node[ends[:, 0]].to_numpy(), "target": nodes.node[ends[:, 1]].to_numpy()})
    return nodes, edges


def joined(folder: Path, model: str, scored: str | None, **quick: int) -> tuple[Scorer, Graph, dict[str, pd.DataFrame]]:
    """Returns a run of tables in which a third of the edges leads to nodes without a row, its graph, the tables.

    Args:
        folder: takes the tables.
        model: of the run.
        scored: see `--scored`.
        quick: settings of the run.
    """
    nodes, edges = tables()
    if scored is not None:
        nodes["label"] = nodes["label"].where(nodes.kind.isin(scored.partition("=")[2].split(",")))
    device = edges.target.where(edges.index % 3 > 0, edges.target.str.replace("n", "device "))
    path = written(folder, nodes, edges := edges.assign(target=device))
    how = {"unknown_ends": "add", "id": "node", "features": str(folder / "nodes.csv"), "scored": scored}
    outcome = calirare.train(dataset=str(path), model=model, **how, **quick)
    stray = pd.DataFrame({"source": ["n001", "n002"], "target": ["", None]})  # an end that is missing: no edge
    return Scorer.of(outcome), outcome.graph, {"nodes": nodes, "edges": pd.concat([edges, stray])}


def written(folder: Path, nodes: pd.DataFrame, edges: pd.DataFrame) -> Path:
    """Writes both tables as CSV and returns the path of the edges."""
    nodes.to_csv(folder / "nodes.csv", index=False)
    edges.to_csv(folder / "edges.csv", index=False)
    return folder / "edges.csv"


def in_duckdb(query: str, **frames: pd.DataFrame) -> pd.DataFrame:
    """Returns what DuckDB makes of a query on tables, in the order of the nodes' names."""
    import duckdb

    with duckdb.connect() as engine:
        for name, frame in frames.items():
            engine.register("frame", frame)
            engine.execute(f'CREATE TABLE "{name.replace(chr(34), 2 * chr(34))}" AS SELECT * FROM frame')
            engine.unregister("frame")
        found = engine.execute(query)
        columns = [each[0] for each in found.description]
        return _by_name(pd.DataFrame(found.fetchall(), columns=columns))


def in_sqlite(query: str, **frames: pd.DataFrame) -> pd.DataFrame:
    """Returns what SQLite makes of it."""
    engine = sqlite3.connect(":memory:")
    for name, frame in frames.items():
        frame.to_sql(name, engine, index=False)
    found = engine.execute(query)
    out = pd.DataFrame(found.fetchall(), columns=[each[0] for each in found.description])
    engine.close()
    return _by_name(out)


def _by_name(table: pd.DataFrame) -> pd.DataFrame:
    return table.sort_values("node", ignore_index=True)


ENGINES = {"duckdb": in_duckdb, "sqlite": in_sqlite}


def error(scorer: Scorer, graph: Graph, found: pd.DataFrame) -> float:
    """Returns the largest difference of P(rare) from what the run says, and asserts equal alerts and thresholds."""
    names = np.arange(graph.n_nodes) if graph.node_names is None else np.asarray(graph.node_names)
    # An export holds no labels around a node, and knows no node's own label in the mean of its category.
    strangers = dataclasses.replace(graph, node_names=np.array([f"not {name}" for name in names]))
    said = without_labels(scorer)[0].probabilities(scorer.prepared(strangers))
    scored = graph.scored_nodes
    names, order = names[scored], scored[torch.from_numpy(np.argsort(names[scored]))]
    assert list(found.columns) == ["node", "p_rare", "alert", "threshold"]
    assert list(found.node) == sorted(names.tolist())
    assert (found.threshold == said.threshold).all()
    assert (found.alert.to_numpy() == said.alert[order].long().numpy()).all()
    return float(np.abs(found.p_rare.to_numpy(dtype=float) - said.rare[order].numpy()).max())


def parity(scorer: Scorer, graph: Graph, engine: str, names: Names = NAMES, **frames: pd.DataFrame) -> float:
    """Returns the largest difference of P(rare) between an engine and the run."""
    return error(scorer, graph, ENGINES[engine](query_of(scorer, DIALECTS[engine], names), **frames))
