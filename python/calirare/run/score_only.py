"""Scores alone: P(rare) and alerts of every node of a graph, in memory or on disk, as Parquet and without intervals."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from calirare._util.array_files import NumpyArray
from calirare._util.blocks import BlockFiles
from calirare._util.ranks import Ranks
from calirare.calibration import (
    Calibrator,
    ExpectedCount,
    Moments,
    Prevalence,
    PriorPlattCalibrator,
    Target,
    expected_count,
)
from calirare.drift import Drift, some_of
from calirare.graph import Graph, GraphOnDisk
from calirare.models import OnDisk, acquainted, logits_on_disk, read_ahead
from calirare.run.deciding import budget_of
from calirare.run.probabilities import Prevailing, Probabilities, Undecided, left_open, p_rare, prevailing, standing
from calirare.run.row_groups import parquet_writer
from calirare.run.scored import Scored
from calirare.run.scoring import Report, Say, Scorer, to_stderr
from calirare.run.tables import node_column
from calirare_ext import Csr

ROWS = 1 << 18  # of the table, made and written together: a row group
AT_ONCE = 1 << 22  # logits in one message to the first process


@dataclass(frozen=True, eq=False)
class Source(ABC):
    """A graph as it is scored, or a process's part of it.

    Attributes:
        scorer: of the run.
        graph: the graph, or the part.
    """

    scorer: Scorer
    graph: Graph | GraphOnDisk

    @property
    def name(self) -> str:
        """Of the graph."""
        return self.graph.name

    @property
    def first(self) -> int:
        """The number of its first node in the whole graph."""
        return 0 if isinstance(self.graph, Graph) else self.graph.first

    @property
    def n_nodes(self) -> int:
        """How many nodes it has."""
        return self.graph.n_nodes

    @property
    def scored(self) -> Tensor | None:
        """Which of its nodes are scored, bool [n]; None: all."""
        return self.graph.scored

    @abstractmethod
    def logits(self, report: Report | None) -> Tensor:
        """Returns the logits of its nodes, [n, k]."""

    @abstractmethod
    def drift(self, logits: Tensor) -> Drift | None:
        """Returns how the whole graph differs from the run's; None without nodes, and of other processes."""

    @abstractmethod
    def node_names(self, first: int, last: int) -> NumpyArray:
        """Returns the names of the nodes [first, last), or their numbers."""


@dataclass(frozen=True, eq=False)
class Loaded(Source):
    """A graph in memory, for any detector.

    Attributes:
        say: takes notes, such as features that are left out.
    """

    graph: Graph
    say: Say

    def logits(self, report: Report | None) -> Tensor:
        """See `Source.logits`."""
        progress = None if report is None else (lambda done, total: report("predict", done, total))
        prepared = self.scorer.prepared(self.graph, self.say)
        return acquainted(self.scorer.fit, prepared, self.say).logits_of(prepared, progress=progress)

    def drift(self, logits: Tensor) -> Drift | None:
        """See `Source.drift`."""
        if not len(logits):
            return None
        scorer = self.scorer
        return scorer.reference.compare(self.graph, scorer.features, p_rare(logits, scorer.calibrators))

    def node_names(self, first: int, last: int) -> NumpyArray:
        """See `Source.node_names`."""
        return np.asarray(node_column(self.graph)[first:last])


@dataclass(frozen=True, eq=False)
class Streamed(Source):
    """A graph in a folder, read a block of rows at a time, alone or as a process's part.

    Attributes:
        detector: that of the run.
        files: keeps finished blocks, see `logits_on_disk`; None: none are kept.
        ranks: the processes; rows of a layer go to the neighbours' processes.
        say: takes a note where names are those of other nodes.
    """

    graph: GraphOnDisk
    detector: OnDisk
    files: BlockFiles | None = None
    ranks: Ranks = field(default_factory=Ranks)
    say: Say = to_stderr

    def logits(self, report: Report | None) -> Tensor:
        """See `Source.logits`."""
        return logits_on_disk(self.detector, self.graph, self.files, report, self.ranks, self.say)

    def drift(self, logits: Tensor) -> Drift | None:
        """See `Source.drift`; by random nodes."""
        n, first = self.graph.n_total, self.graph.first
        if n == 0:
            return None
        drawn = some_of(n)
        nodes = drawn[(drawn >= first) & (drawn < first + self.n_nodes)] - first
        if self.scored is not None:
            nodes = nodes[self.scored.numpy()[nodes]]
        p = p_rare(logits[torch.from_numpy(nodes)], self.scorer.calibrators).numpy()
        parts = self.ranks.gather_all((self.graph.features_at(nodes), self.graph.degrees_at(nodes), p))
        if self.ranks.rank > 0:
            return None
        degrees, p = (np.concatenate([part[i] for part in parts]) for i in (1, 2))
        rows = together([part[0] for part in parts])
        return self.scorer.reference.compare_sample(rows, degrees, self.scorer.features, p, n)

    def node_names(self, first: int, last: int) -> NumpyArray:
        """See `Source.node_names`."""
        return self.graph.node_names(first, last)


@dataclass(frozen=True, eq=False)
class Rows(Source):
    """The scored nodes of a source, int64 [m], ascending."""

    source: Source
    nodes: Tensor

    @property
    def n_nodes(self) -> int:
        """See `Source`."""
        return self.nodes.numel()

    def logits(self, report: Report | None) -> Tensor:
        """See `Source.logits`."""
        return self.source.logits(report)[self.nodes]

    def drift(self, logits: Tensor) -> Drift | None:
        """See `Source.drift`."""
        every = logits.new_zeros(self.source.n_nodes, logits.shape[1])
        return self.source.drift(every.index_copy(0, self.nodes, logits))

    def node_names(self, first: int, last: int) -> NumpyArray:
        """See `Source.node_names`."""
        nodes = self.nodes[first:last].numpy()
        begin, end = (int(nodes[0]), int(nodes[-1]) + 1) if len(nodes) else (0, 0)
        return self.source.node_names(begin, end)[nodes - begin]


def scored_of(source: Source) -> Source:
    """Returns the scored nodes of a source."""
    if source.scored is None:
        return source
    return Rows(source.scorer, source.graph, source, source.scored.nonzero().flatten())


@dataclass(frozen=True, eq=False)
class ScoreOnly:
    """Scores a graph with a run: P(rare) and alerts, no intervals.

    Attributes:
        scorer: of the run.
        source: the graph, or this process's part of it.
        ranks: the processes; where something hangs on all nodes at once their logits go to the first, which decides.
    """

    scorer: Scorer
    source: Source
    ranks: Ranks = field(default_factory=Ranks)

    def score(self, path: Path, prevalence: Prevailing = None, report: Report | None = None) -> Scored | None:
        """Writes P(rare) and alerts of the process's nodes as Parquet, and returns what to expect of all.

        Args:
            path: the file; columns `node`, `p_rare` (population, float64), `p_balanced`, `p_raw` (float32), `alert`
                and, where the run leaves nodes open, `abstain`.
            prevalence: see `Scorer.score`.
            report: called after each block of a stage.

        Returns:
            What to expect; None of a process other than the first.

        Raises:
            InputError: pyarrow is missing, or the graph cannot be used.
            RankLostError: another process ended.
        """
        write, source = parquet_writer(), scored_of(self.source)
        logits = source.logits(report)
        drift, decided = source.drift(logits), self._decided(logits, prevalence)
        rows = _Rows(source, logits, decided.maps, decided.threshold, self.scorer.settings.decision.abstain)
        counted = _Counted()
        write(path, rows.tables(counted, report))
        counted = sum(self.ranks.gather_all(counted), _Counted())
        fitted, expected = decided.maps.get("population"), None
        if counted.nodes and isinstance(fitted, PriorPlattCalibrator):
            expected = expected_count(fitted, logits, together=self._together)
        return self._told(counted, expected, decided, drift) if self.ranks.rank == 0 else None

    def _decided(self, logits: Tensor, prevalence: Prevailing) -> _Decided:
        """Returns what every process writes its rows by; every process calls it."""
        if prevalence is None and self.scorer.settings.decision.decide != "budget":
            return _Decided(self.scorer.calibrators, self.scorer.threshold)
        every = self._collected(logits)
        if every is None:
            return self.ranks.receive()
        decided = self._decide(every, prevalence)
        self.ranks.send(decided)
        return decided

    def _together(self, moments: Moments) -> Moments:
        """Returns sums over the nodes of all processes from those over each one's."""
        first, *rest = self.ranks.gather_all(moments)
        for other in rest:
            first = tuple(a + b for a, b in zip(first, other, strict=True))
        return first

    def _decide(self, logits: Tensor, prevalence: Prevailing) -> _Decided:
        told, maps = prevailing(prevalence, self.scorer.calibrators, logits)
        deciding, threshold, tied = self.scorer.settings.decision, self.scorer.threshold, ""
        if deciding.decide == "budget" and len(logits):  # of as many alerts here
            p = torch.cat([p_rare(block, maps) for block in logits.split(ROWS)])
            threshold, tied = budget_of(deciding, p)
        return _Decided(maps, threshold, told, tied)

    def _collected(self, logits: Tensor) -> Tensor | None:
        """Returns the logits of all processes in the first, None in the others."""
        ranks = self.ranks
        if ranks.size == 1:
            return logits
        sizes = ranks.gather_all(len(logits))
        give = [len(logits), *[0] * (ranks.size - 1)]
        every = ranks.exchange(logits, give, sizes if ranks.rank == 0 else [0] * ranks.size, AT_ONCE)
        return every if ranks.rank == 0 else None

    def _told(
        self, counted: _Counted, expected: ExpectedCount | None, decided: _Decided, drift: Drift | None
    ) -> Scored:
        n, deciding = counted.nodes, self.scorer.settings.decision
        return Scored(
            None,
            self.source.name,
            n,
            counted.total / n if n else 0.0,
            expected,
            counted.alerts,
            decided.threshold,
            deciding.rule.name,
            drift,
            decided.told,
            *standing(decided.maps),
            counted.undecided(deciding.abstain),
            self.scorer.doubt_at(decided.told),
            decided.tied,
        )


@dataclass(frozen=True)
class _Decided:
    """What every process writes its rows by."""

    maps: dict[Target, Calibrator]
    threshold: float
    told: Prevalence | None = None
    tied: str = ""


def together(parts: list[Graph]) -> Graph:
    """Returns nodes of several processes, none of which has an edge, as one graph."""
    if len(parts) == 1:
        return parts[0]
    dense = [part.x if isinstance(part.x, Tensor) else part.x.to_dense() for part in parts]
    x = torch.cat(dense) if isinstance(parts[0].x, Tensor) else Csr.from_dense(torch.cat(dense))
    n = x.shape[0]
    no_edge = Csr(torch.zeros(n + 1, dtype=torch.int64), torch.empty(0, dtype=torch.int32), torch.empty(0), n)
    return replace(parts[0], adjacency=no_edge, x=x, trusted=True)


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

    def __add__(self, other: _Counted) -> _Counted:
        """Returns what both have counted."""
        both = _Counted()
        for name in vars(both):
            setattr(both, name, getattr(self, name) + getattr(other, name))
        return both

    def undecided(self, coverage: float | None) -> Undecided | None:
        """Returns what is left open; None where every node is decided."""
        if coverage is None:
            return None
        decided = self.nodes - self.left
        error = self.wrong_decided / decided if decided else None
        return Undecided(coverage, self.nodes, self.left, error, self.wrong / self.nodes if self.nodes else None)


@dataclass(frozen=True, eq=False)
class _Rows:
    """The table, some rows at a time."""

    source: Source
    logits: Tensor
    maps: dict[Target, Calibrator]
    threshold: float
    abstain: float | None

    def tables(self, counted: _Counted, report: Report | None) -> Iterator[dict[str, Any]]:
        """Yields columns by name; one table without rows where there is no node."""
        n = self.source.n_nodes
        starts = range(0, max(n, 1), ROWS)
        for number, (first, said) in enumerate(read_ahead(self._said, starts)):
            last = first + len(said.rare)
            counted.add(said)
            table = {
                "node": self.source.node_names(first, last),
                "p_rare": said.rare.numpy(),
                "p_balanced": said.balanced.float().numpy(),
                "p_raw": said.raw.numpy(),
                "alert": said.alert.numpy(),
            }
            if said.abstain is not None:
                table["abstain"] = said.abstain.numpy()
            yield table
            if report is not None:
                report("write", number + 1, len(starts))

    def _said(self, first: int) -> Probabilities:
        z, left = self.logits[first : first + ROWS], None
        fitted = self.maps.get("population")
        if self.abstain is not None and isinstance(fitted, PriorPlattCalibrator):
            left = left_open(fitted, z, self.threshold, self.abstain)
        raw = torch.softmax(z, 1)  # no prediction is told, so that no target is asked for
        return Probabilities(
            raw[:, 1], p_rare(z, self.maps), p_rare(z, self.maps, "balanced"), raw, self.threshold, left
        )
