"""Tables of nodes and edges as users have them: amounts, gaps, names of kinds, days."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd


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


def texts(folder: Path, nodes: str, edges: str = "source,target\n0,1\n1,0\n") -> Path:
    """Writes both tables as they are given and returns the path of the edges."""
    (folder / "nodes.csv").write_text(nodes)
    (folder / "edges.csv").write_text(edges)
    return folder / "edges.csv"


def written(folder: Path, nodes: pd.DataFrame, edges: pd.DataFrame) -> Path:
    """Writes both tables as CSV and returns the path of the edges."""
    nodes.to_csv(folder / "nodes.csv", index=False)
    edges.to_csv(folder / "edges.csv", index=False)
    return folder / "edges.csv"
