"""What a run of many classes says of another graph: P of every class at every node, written as it is made."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from calirare._util.amounts import amount, quoted
from calirare.drift import Drift
from calirare.graph import Graph
from calirare.run.result import RunResult
from calirare.run.row_groups import parquet_writer
from calirare.run.score_only import ROWS, Loaded, ScoredNodes, Source
from calirare.run.scoring import Report, Say, Scorer
from calirare.run.tables import node_column, part_column, write_scored


@dataclass(frozen=True, eq=False)
class ClassScored:
    """A graph scored by a run of many classes.

    Attributes:
        name: of the graph.
        nodes: number of nodes.
        shares: mean P of each class, by its name: the share that is to be expected.
        predicted: how many nodes are of each class most likely.
        drift: how the graph's columns and edges differ from the run's; None of a graph without nodes.
    """

    name: str
    nodes: int
    shares: dict[str, float]
    predicted: dict[str, int]
    drift: Drift | None

    def summary(self) -> str:
        """Returns a few lines for a person."""
        told = ", ".join(f"{quoted(name)} {100 * share:.3g} %" for name, share in self.shares.items())
        lines = [f"expected among {amount(self.nodes, 'node')}: {told}"]
        if self.drift is not None:
            lines.append(f"drift: {self.drift.sentence}")
        return "\n".join(lines) + "\n"

    def to_mapping(self) -> dict[str, Any]:
        """Returns everything as JSON holds it."""
        told = None if self.drift is None else self.drift.to_mapping()
        names = {"graph": self.name, "nodes": self.nodes}
        return names | {"estimated_shares": self.shares, "predicted": self.predicted, "drift": told}


def score_classes(source: Source, path: Path, report: Report | None = None) -> ClassScored:
    """Writes the probabilities of every class of a graph, and returns what to expect.

    Args:
        source: the graph.
        path: of the table: Parquet by row groups as they come, or CSV (a Parquet file beside it). Columns `node`,
            `prediction`, `confidence`, `confidence_raw` (the detector's own) and `p_<class>`, for the run's target.
        report: called after each block of a stage.

    Raises:
        InputError: pyarrow is missing for Parquet, or the graph cannot be used.
    """
    write = parquet_writer() if path.suffix == ".parquet" else None
    scored = _scored(source, report)
    names = source.scorer.class_names
    sums = torch.zeros(2, len(names), dtype=torch.float64)
    tables = _tables(scored, sums)
    if write is None:
        write_scored(_joined(tables), path.parent, path.stem)
    else:
        write(path, tables)
    n = len(scored.logits)
    shares, counts = (sums[0] / max(n, 1)).tolist(), sums[1].long().tolist()
    told, most = dict(zip(names, shares, strict=True)), dict(zip(names, counts, strict=True))
    return ClassScored(source.graph.name, n, told, most, scored.drift)


def predicted(scorer: Scorer, graph: Graph, say: Say, report: Report | None = None) -> pd.DataFrame:
    """Returns one row per scored node of a graph: of many classes the table that `score_classes` writes.

    Of a rare class the columns of `predictions.csv`; `Scorer.score` says more, of which this notes a drift.
    """
    if not scorer.settings.many:
        return scorer.score(graph, say, report).noted(say)
    sums = torch.zeros(2, len(scorer.class_names), dtype=torch.float64)
    return _joined(_tables(_scored(Loaded(scorer, graph, say), report), sums))


def class_rows(outcome: RunResult, nodes: Tensor) -> pd.DataFrame:
    """Returns rows of the predictions of a run's own nodes, int64 [r], of many classes: with split and label."""
    graph, names, rows = outcome.graph, outcome.graph.class_names, nodes.numpy()
    assert graph.y is not None
    own: dict[str, Any] = {
        "node": node_column(graph)[rows],
        "split": part_column(graph.n_nodes, graph.split)[rows],
        "y": [names[c] if c >= 0 else "" for c in graph.y.cpu()[nodes].tolist()],
    }
    p, raw = (outcome.probabilities(target).cpu()[nodes] for target in ("run", None))
    return pd.DataFrame(own | class_columns(p, raw, names))


def class_columns(p: Tensor, raw: Tensor, names: Sequence[str]) -> dict[str, Any]:
    """Returns what tables tell of nodes by the probabilities of their classes, calibrated and raw, each [n, k]."""
    confidence, predicted = p.max(1) if len(p) else (p.new_empty(0), torch.empty(0, dtype=torch.int64))
    return {
        "prediction": [names[c] for c in predicted.tolist()],
        "confidence": confidence.numpy(),
        "confidence_raw": raw.amax(1).numpy(),
        **{f"p_{name}": p[:, c].numpy() for c, name in enumerate(names)},
    }


def _joined(tables: Iterator[dict[str, Any]]) -> pd.DataFrame:
    return pd.concat([pd.DataFrame(each) for each in tables], ignore_index=True)


def _scored(source: Source, report: Report | None) -> ScoredNodes:
    """Returns the nodes that are scored; labels play no part."""
    if isinstance(source, Loaded):
        graph = replace(source.graph, y=None, split=None, class_names=(), trusted=True)
        source = replace(source, graph=graph)
    return ScoredNodes.of(source, report)


def _tables(scored: ScoredNodes, sums: Tensor) -> Iterator[dict[str, Any]]:
    """Yields columns of some nodes at a time, without rows where there is no node; adds up P and predictions."""
    names, fitted = scored.source.scorer.class_names, scored.source.scorer.calibrator
    for first in range(0, max(len(scored.logits), 1), ROWS):
        z = scored.logits[first : first + ROWS].double()
        p = torch.softmax(z, 1) if fitted is None else fitted.transform(z)
        predicted = p.argmax(1) if len(p) else torch.empty(0, dtype=torch.int64)
        sums += torch.stack([p.sum(0), torch.bincount(predicted, minlength=len(names)).double()])
        yield {"node": scored.names(first, first + len(z))} | class_columns(p, torch.softmax(z, 1), names)
