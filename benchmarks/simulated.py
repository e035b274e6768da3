"""Simulated graphs in folders, with a split: what the benchmarks of large graphs are run on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from calirare.datasets import synthetic_rare
from calirare.graph import Split


def folder_of(path: Path, n: int, n_val: int, n_test: int = 1000, **model: Any) -> None:
    """Writes `synthetic_rare` of n nodes with 20 training nodes of each class and other random nodes of each part."""
    graph = synthetic_rare(n, **model)
    graph.with_split(Split.random(graph.y, 20, n_val, n_test, 0, class_names=graph.class_names)).to_folder(path)
