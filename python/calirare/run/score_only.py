"""Scores alone: P(rare) and alerts of every node of a graph, in memory or on disk, as Parquet and without intervals."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from calirare._util.array_files import NumpyArray
from calirare._util.blocks import BlockFiles
from calirare.calibration import Calibrator, PriorPlattCalibrator, Target, expected_count
from calirare.drift import Drift, some_of
from calirare.graph import Graph, GraphOnDisk
from calirare.models import OnDisk, logits_on_disk, match_nodes, read_ahead
from calirare.run.deciding import budget_of
from calirare.run.probabilities import (
    PrevalenceRequest,
    Probabilities,
    Undecided,
    correct_prevalence,
    p_rare,
    standing,
    undecided_nodes,
)
from calirare.run.row_groups import parquet_writer
from calirare.run.scored import Scored
from calirare.run.scoring import Report, Say, Scorer, to_stderr
from calirare.run.tables import node_column

ROWS = 1 << 18  # of the table, made and written together: a row group


@dataclass(frozen=True, eq=False)
class Loaded:
    """A graph in memory, scored by any detector.

    Attributes:
        scorer: of the run.
        graph: the graph.
        say: takes notes, such as features that are left out.
    """

    scorer: Scorer
    graph: Graph
    say: Say

    def logits(self, report: Report | None) -> Tensor:
        """Returns the logits of every node, [n, k]."""
        progress = None if report is None else (lambda done, total: report("predict", done, total))
        prepared = self.scorer.prepared(self.graph, self.say)
        return match_nodes(self.scorer.fit, prepared, self.say).logits_of(prepared, progress=progress)

    def drift(self, logits: Tensor) -> Drift | None:
        """Returns how the graph differs from the run's, by the logits of every node; None without nodes."""
        if not len(logits):
            return None
        scorer = self.scorer
        return scorer.reference.compare(self.graph, scorer.features, p_rare(logits, scorer.calibrators))

    def node_names(self, first: int, last: int) -> NumpyArray:
        """Returns the names of the nodes [first, last), or their numbers."""
        return np.asarray(node_column(self.graph)[first:last])


@dataclass(frozen=True, eq=False)
class Streamed:
    """A graph in a folder, read a block of rows at a time.

    Attributes:
        scorer: of the run.
        graph: the graph.
        detector: that of the run.
        files: keeps finished blocks, see `logits_on_disk`; None: none are kept.
        say: takes a note where names are those of other nodes.
    """

    scorer: Scorer
    graph: GraphOnDisk
    detector: OnDisk
    files: BlockFiles | None = None
    say: Say = to_stderr

    def logits(self, report: Report | None) -> Tensor:
        """See `Loaded.logits`."""
        return logits_on_disk(self.detector, self.graph, self.files, report, self.say)

    def drift(self, logits: Tensor) -> Drift | None:
        """See `Loaded.drift`; by random nodes."""
        n, scored = self.graph.n_nodes, self.graph.scored
        if n == 0:
            return None
        nodes = some_of(n)
        if scored is not None:
            nodes = nodes[scored.numpy()[nodes]]
        p = p_rare(logits[torch.from_numpy(nodes)], self.scorer.calibrators).numpy()
        rows, degrees = self.graph.features_at(nodes), self.graph.degrees_at(nodes)
        return self.scorer.reference.compare_sample(rows, degrees, self.scorer.features, p, n)

    def node_names(self, first: int, last: int) -> NumpyArray:
        """See `Loaded.node_names`."""
        return self.graph.node_names(first, last)


Source = Loaded | Streamed


@dataclass(frozen=True, eq=False)
class ScoredNodes:
    """The nodes of a graph that are scored, with their logits.

    Attributes:
        source: the graph.
        nodes: int64 [m], ascending; None: all of its nodes.
        logits: [m, k].
        drift: see `Loaded.drift`.
    """

    source: Source
    nodes: Tensor | None
    logits: Tensor
    drift: Drift | None

    @classmethod
    def of(cls, source: Source, report: Report | None) -> Self:
        """Returns the scored nodes of a graph."""
        logits, scored = source.logits(report), source.graph.scored
        drift = source.drift(logits)
        if scored is None:
            return cls(source, None, logits, drift)
        nodes = scored.nonzero().flatten()
        return cls(source, nodes, logits[nodes], drift)

    def names(self, first: int, last: int) -> NumpyArray:
        """Returns the names of the nodes at places [first, last)."""
        if self.nodes is None:
            return self.source.node_names(first, last)
        nodes = self.nodes[first:last].numpy()
        begin, end = (int(nodes[0]), int(nodes[-1]) + 1) if len(nodes) else (0, 0)
        return self.source.node_names(begin, end)[nodes - begin]


def write_scores(
    source: Source, path: Path, prevalence: PrevalenceRequest = None, report: Report | None = None
) -> Scored:
    """Writes P(rare) and alerts of a graph as Parquet, without intervals, and returns what to expect.

    Args:
        source: the graph.
        path: the file; columns `node`, `p_rare` (population, float64), `p_balanced`, `p_raw` (float32), `alert` and,
            where the run leaves nodes open, `abstain`.
        prevalence: see `Scorer.score`.
        report: called after each block of a stage.

    Raises:
        InputError: pyarrow is missing, or the graph cannot be used.
    """
    write, scorer = parquet_writer(), source.scorer
    scored = ScoredNodes.of(source, report)
    logits = scored.logits
    told, maps = correct_prevalence(prevalence, scorer.calibrators, logits)
    deciding, threshold, tied = scorer.settings.decision, scorer.threshold, ""
    if deciding.decide == "budget" and len(logits):  # of as many alerts here
        threshold, tied = budget_of(deciding, torch.cat([p_rare(block, maps) for block in logits.split(ROWS)]))
    counted = _Counted()
    write(path, _tables(scored, maps, threshold, counted, report))
    n, fitted, expected = counted.nodes, maps.get("population"), None
    if n and isinstance(fitted, PriorPlattCalibrator):
        expected = expected_count(fitted, logits)
    return Scored(
        None,
        source.graph.name,
        n,
        counted.total / n if n else 0.0,
        expected,
        counted.alerts,
        threshold,
        deciding.rule.name,
        scored.drift,
        told,
        *standing(maps),
        counted.undecided(deciding.abstain),
        scorer.doubt_at(told),
        tied,
    )


class _Counted:
    """What is counted while rows are written."""

    def __init__(self) -> None:
        self.nodes = self.alerts = self.left = 0
        self.total = self.wrong = self.wrong_decided = 0.0

    def add(self, said: Probabilities) -> None:
        """Counts some nodes."""
        self.nodes += len(said.rare)
        self.total += float(said.rare.sum())
        self.alerts += int(said.alert.sum())
        if said.abstain is not None:
            wrong = torch.where(said.alert, 1 - said.rare, said.rare)
            self.left += int(said.abstain.sum())
            self.wrong += float(wrong.sum())
            self.wrong_decided += float(wrong[~said.abstain].sum())

    def undecided(self, coverage: float | None) -> Undecided | None:
        """Returns what is left open; None where every node is decided."""
        if coverage is None:
            return None
        decided = self.nodes - self.left
        error = self.wrong_decided / decided if decided else None
        return Undecided(coverage, self.nodes, self.left, error, self.wrong / self.nodes if self.nodes else None)


def _tables(
    scored: ScoredNodes,
    maps: dict[Target, Calibrator],
    threshold: float,
    counted: _Counted,
    report: Report | None,
) -> Iterator[dict[str, Any]]:
    """Yields columns by name, some rows at a time; one table without rows where there is no node."""
    abstain, fitted = scored.source.scorer.settings.decision.abstain, maps.get("population")

    def said(first: int) -> Probabilities:
        z, left = scored.logits[first : first + ROWS], None
        if abstain is not None and isinstance(fitted, PriorPlattCalibrator):
            left = undecided_nodes(fitted, z, threshold, abstain)
        raw = torch.softmax(z, 1)  # no prediction is told, so that no target is asked for
        return Probabilities(raw[:, 1], p_rare(z, maps), p_rare(z, maps, "balanced"), raw, threshold, left)

    starts = range(0, max(len(scored.logits), 1), ROWS)
    for done, (first, found) in enumerate(read_ahead(said, starts), start=1):
        counted.add(found)
        table = {
            "node": scored.names(first, first + len(found.rare)),
            "p_rare": found.rare.numpy(),
            "p_balanced": found.balanced.float().numpy(),
            "p_raw": found.raw.numpy(),
            "alert": found.alert.numpy(),
        }
        if found.abstain is not None:
            table["abstain"] = found.abstain.numpy()
        yield table
        if report is not None:
            report("write", done, len(starts))
