"""Scores only: probabilities of every node of a graph, in memory or on disk, as Parquet and without intervals."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from calirare._util.array_files import NumpyArray
from calirare._util.blocks import BlockFiles
from calirare.calibration import Prevalence
from calirare.calibration.decisions import Rule
from calirare.drift import Drift, some_of
from calirare.graph import Graph, GraphOnDisk
from calirare.models import OnDisk, logits_on_disk, read_ahead
from calirare.run.columns import node_column, scores_of
from calirare.run.data import Report
from calirare.run.deciding import Deciding, threshold_on
from calirare.run.probabilities import PrevalenceRequest, Probabilities, correct_prevalence, p_rare
from calirare.run.scored import Scored, Totals
from calirare.run.scoring import Say, Scorer, to_stderr
from calirare.run.tables import parquet_writer

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
        return self.scorer.evaluated(self.graph, self.say, report)[2]

    def drift(self, logits: Tensor) -> Drift | None:
        """Returns how the graph differs from the run's, by the logits of every node; None without nodes."""
        return self.scorer.drift(self.graph, logits)

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


def write_scores(
    source: Source, path: Path, prevalence: PrevalenceRequest = None, report: Report | None = None
) -> Scored:
    """Writes the probabilities of a graph as Parquet, without intervals, and returns what to expect.

    Args:
        source: the graph.
        path: the file, with the columns of `calirare.run.columns` that tables of scores only, or of classes, have.
        prevalence: see `Scorer.score`.
        report: called after each block of a stage.

    Raises:
        InputError: pyarrow is missing, or the graph cannot be used.
    """
    write, scorer = parquet_writer(), source.scorer
    if prevalence is not None:
        scorer.settings.check_rare("predict: a prevalence")
    scored = source.graph.scored
    nodes = None if scored is None else scored.nonzero().flatten()
    rule = scorer.settings.decision.rule_on(source.graph, nodes)
    logits = source.logits(report)
    drift = source.drift(logits)
    logits = logits if nodes is None else logits[nodes]
    scorer, used, cut = with_threshold(scorer, logits, rule, prevalence)
    each = np.broadcast_to(cut[0] / rule.weights, len(logits))
    totals, classes = Totals(logits.shape[1]), scorer.classes
    starts = range(0, max(len(logits), 1), ROWS)

    def probabilities(first: int) -> Probabilities:
        some = slice(first, first + ROWS)
        return scorer.said(logits[some], torch.from_numpy(each[some].copy()))

    def tables() -> Iterator[dict[str, Any]]:
        """Yields columns by name, some rows at a time; one table without rows where there is no node."""
        for done, (first, found) in enumerate(read_ahead(probabilities, starts), start=1):
            totals.add(found)
            names = _names(source, nodes, first, first + len(found.rare))
            yield scores_of(names, found, classes)
            if report is not None:
                report("write", done, len(starts))

    write(path, tables())
    return scorer.scored(source.graph.name, logits, totals, drift, used, cut)


def with_threshold(
    scorer: Scorer, logits: Tensor, rule: Rule, prevalence: PrevalenceRequest = None, deciding: Deciding | None = None
) -> tuple[Scorer, Prevalence | None, tuple[float, str, Rule]]:
    """Returns a scorer as it scores nodes with logits [m, k], the prevalence it is corrected to, and the threshold.

    Args:
        scorer: of the run.
        logits: of the scored nodes.
        rule: of the decision for these nodes.
        prevalence: see `Scorer.score`.
        deciding: likewise.
    """
    used, maps = correct_prevalence(prevalence, scorer.calibrators, logits)
    p = torch.cat([p_rare(block, maps) for block in logits.split(ROWS)])
    kept, decision = (scorer.threshold, scorer.settings.decision) if deciding is None else (None, deciding)
    settings = dataclasses.replace(scorer.settings, decision=decision)
    cut = (*threshold_on(decision, kept, p, rule), rule)
    return dataclasses.replace(scorer, calibrators=maps, settings=settings), used, cut


def _names(source: Source, nodes: Tensor | None, first: int, last: int) -> NumpyArray:
    """Returns the names of the scored nodes at places [first, last); None: all nodes are scored."""
    if nodes is None:
        return source.node_names(first, last)
    some = nodes[first:last].numpy()
    begin, end = (int(some[0]), int(some[-1]) + 1) if len(some) else (0, 0)
    return source.node_names(begin, end)[some - begin]
