"""A trained network on any graph: features prepared as its own were, probabilities, intervals, one table."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd
import torch
from torch import Tensor

from calirare._util.errors import InputError
from calirare._util.torch_state import plain_torch
from calirare.calibration import Calibrator, Prevalence, PriorPlattCalibrator, Target, expected_count
from calirare.calibration.decisions import Rule
from calirare.drift import Drift, Reference
from calirare.features import FeatureMap
from calirare.graph import Graph, TableColumns, check_graph, find_name
from calirare.graph.matching import has_weights, note_weights, with_relations
from calirare.leave_one_out import JackknifeResult, Known, leave_one_out
from calirare.models import Fitted, match_nodes
from calirare.run.columns import predictions
from calirare.run.data import Report
from calirare.run.deciding import Deciding, counting_coverage, expected_costs, review_order, threshold_on
from calirare.run.interval_nodes import interval_nodes_for_score, interval_notes, intervals_of, known_logits
from calirare.run.probabilities import PrevalenceRequest, Probabilities, correct_prevalence, p_rare
from calirare.run.ranges import ranges_of
from calirare.run.result import RunResult
from calirare.run.scored import Scored, Totals
from calirare.run.settings import IntervalNodes, Settings
from calirare.run.verdict import UNJUDGED, Verdict
from calirare_ext import __version__

DRAWN = (
    "unlabelled nodes that were sampled for training have another P(rare) here than in predictions.csv, where models "
    "without them score them. For the run's own nodes use predictions.csv"
)  # of positive labels alone
Say = Callable[[str], None]
NO_TABLES = TableColumns()


def to_stderr(note: str) -> None:
    """Prints a note where it is not taken for a result."""
    print(f"note: {note}", file=sys.stderr)


@dataclass(frozen=True, eq=False)
class Scorer:
    """What another graph is scored with; it holds no graph.

    Attributes:
        fit: the detector with its labels.
        settings: of the run.
        calibrators: the fitted map of each target.
        damping: of the leave-one-out step.
        calibration_nodes: labels that represent the population, bool [m], or None for all.
        class_names: names of the task's classes.
        features: what the features of the run's graph became.
        threshold: of the run's decision.
        reference: what the run remembers of its graph.
        tables: columns of the tables of the run's graph.
        weighted: whether edges of the run's graph have weights other than 1; None where it is not known.
        relations: names of the types of edges of the run's graph; None where they are not known.
        verdict: of the run.
        version: of CaliRare that trained the run.
    """

    fit: Fitted
    settings: Settings
    calibrators: dict[Target, Calibrator]
    damping: float
    calibration_nodes: Tensor | None
    class_names: tuple[str, ...]
    features: FeatureMap
    threshold: float
    reference: Reference
    tables: TableColumns = NO_TABLES
    weighted: bool | None = None
    relations: tuple[str, ...] | None = None
    verdict: Verdict = UNJUDGED
    version: str = __version__

    @classmethod
    def of(cls, outcome: RunResult) -> Scorer:
        """Returns what scores graphs as a run does."""
        graph, split = outcome.graph, outcome.graph.split
        assert split is not None
        in_val = torch.isin(outcome.fit.nodes, split.val)
        return cls(
            outcome.fit,
            outcome.settings,
            outcome.calibrators,
            outcome.damping,
            in_val if bool(in_val.any()) else None,
            graph.class_names,
            outcome.features,
            outcome.threshold,
            outcome.reference,
            graph.tables or NO_TABLES,
            has_weights(graph),
            tuple(relation.name for relation in graph.relations),
            verdict=outcome.verdict,
        )

    @property
    def calibrator(self) -> Calibrator | None:
        """The map of the run's target, or None."""
        return self.calibrators.get(self.settings.calibration.calibrate_for)

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes where every class is taken as it is; empty: one is rare."""
        return self.class_names if self.settings.many else ()

    @property
    def wants_weights(self) -> bool | None:
        """Whether edges must have weights, as the run's have; None: not known, or they are numbers of rows."""
        return None if self.settings.data.duplicates == "sum" else self.weighted

    @property
    def kinds(self) -> dict[str, str]:
        """What the raw columns hold, "numeric", "categorical" or "date", by their names.

        `Graph.from_tables(edges, nodes, kinds=..)` reads tables so, though a column may look like something else there.
        """
        return {column.name: column.kind for column in self.features.inputs}

    @plain_torch()
    def score(
        self,
        graph: Graph,
        say: Say = to_stderr,
        report: Report | None = None,
        prevalence: PrevalenceRequest = None,
        interval_nodes: IntervalNodes | None = None,
        *,
        deciding: Deciding | None = None,
        queue: int | None = None,
    ) -> Scored:
        """Returns the predictions of a graph, what to expect there, and how it differs from the run's.

        Args:
            graph: with the run's features, in any order where they have names; labels are not needed.
            say: takes notes, such as features or labels that are left out.
            report: see `intervals`.
            prevalence: share of the rare class in this graph, or the ends of an interval that holds it with 95 %:
                P(rare) is corrected to it; "estimate": by what the logits tell, where each class looks as it did among
                the run's labels; None: P(rare) as the run's map has it.
            interval_nodes: which nodes get an interval, see `Intervals`; None: as the run's settings have it, and none
                where every class is taken as it is.
            deciding: what chooses the alerts here, and the order of the queue; None: as the run's settings have it.
            queue: how many nodes to look at are listed, in their order; None: none.

        Raises:
            InputError: the features are others, the decision needs labels, or the prevalence cannot be taken or
                identified.
        """
        check_graph("score", graph)
        if deciding is not None:
            self.settings.check_rare("predict: a decision")
        if prevalence is not None:
            self.settings.check_rare("predict: a prevalence")
        settings, graph = self.settings, graph.to("cpu")
        kept, decision = (self.threshold, settings.decision) if deciding is None else (None, deciding)
        decision.rule_on(graph)  # what has no amounts is refused before the work
        wanted = interval_nodes_for_score(settings, graph.n_nodes, interval_nodes)
        self.note_on(say)
        prepared, fit, logits = self.evaluated(graph, say, report)
        drift = self.drift(graph, logits)
        nodes = prepared.scored_nodes
        prevalence_used, corrected = correct_prevalence(prevalence, self.calibrators, logits[nodes])
        own = dataclasses.replace(settings, decision=decision)
        scorer = dataclasses.replace(self, fit=fit, calibrators=corrected, settings=own)
        rule = decision.rule_on(graph, nodes)
        threshold, tied = threshold_on(decision, kept, p_rare(logits[nodes], corrected), rule)
        said, result = scorer.said(logits, decision.thresholds(threshold, graph)), None
        if not settings.many or interval_nodes is not None:
            some = scorer._known(prepared, logits, said.threshold, wanted)
            if some is None and interval_nodes == "alerts" and graph.n_nodes:
                say(f"every node gets an interval: method {settings.loo.name} makes the models of all nodes at once")
            result = scorer.intervals(prepared, report=report, known=some)
            for note in interval_notes(result):
                say(note)
        ranges = None
        if result is not None and not settings.many:
            ranges = ranges_of(fit, prepared, logits, corrected, result.ends_of)
        order = None
        if queue is not None:
            order = review_order(decision, prepared, said, result)
            order = order[torch.isin(order, nodes)][:queue]
            order = predictions(prepared, said, result, prepared.split, order, self.classes, ranges)
        totals = Totals(len(self.class_names))
        totals.add(said.at(nodes))
        table = predictions(prepared, said, result, None, classes=self.classes, ranges=ranges)
        found = scorer.scored(graph.name, logits[nodes], totals, drift, prevalence_used, (threshold, tied, rule), table)
        return dataclasses.replace(found, queue=order, calibrators=corrected)

    def evaluated(self, graph: Graph, say: Say, report: Report | None = None) -> tuple[Graph, Fitted, Tensor]:
        """Returns a graph as the detector takes it, the detector with its nodes matched, and logits of all, [n, k]."""
        prepared = self.prepared(graph, say)
        fit = match_nodes(self.fit, prepared, say)
        progress = None if report is None else (lambda done, total: report("predict", done, total))
        return prepared, fit, fit.logits_of(prepared, progress=progress)

    def drift(self, graph: Graph, logits: Tensor) -> Drift | None:
        """Returns how a graph differs from the run's, by its logits [n, k]; None without nodes.

        P(rare) is by the run's own calibrator: a correction of the prevalence is no drift.
        """
        if not graph.n_nodes:
            return None
        return self.reference.compare(graph, self.features, p_rare(logits, self.calibrators))

    def scored(
        self,
        name: str,
        logits: Tensor,
        totals: Totals,
        drift: Drift | None,
        prevalence: Prevalence | None,
        cut: tuple[float, str, Rule],
        table: pd.DataFrame | None = None,
    ) -> Scored:
        """Returns what is to be expected of scored nodes.

        Args:
            name: of the graph.
            logits: of the nodes, [m, k].
            totals: of the nodes.
            drift: of the graph.
            prevalence: what `calibrators` are corrected to.
            cut: the threshold, what to note of ties at it, and the rule for these nodes.
            table: one row per node; None: it was written already.
        """
        p, names = torch.cat(totals.rare), self.class_names
        n, deciding, fitted = len(p), self.settings.decision, self.calibrators.get("population")
        if self.settings.many:
            means, counts = (totals.classes[0] / max(n, 1)).tolist(), totals.classes[1].int().tolist()
            shares, predicted = (dict(zip(names, values, strict=True)) for values in (means, counts))
            return Scored(table, name, n, drift, shares, predicted)
        threshold, tied, rule = cut
        alert, expected, hits = torch.from_numpy(p.numpy() >= threshold / rule.weights), None, None
        if n and isinstance(fitted, PriorPlattCalibrator):
            expected = expected_count(fitted, logits, counting_coverage(fitted))
            hits = expected_count(fitted, logits[alert], counting_coverage(fitted)) if bool(alert.any()) else None
        return Scored(
            table,
            name,
            n,
            drift,
            mean=float(p.mean()) if n else 0.0,
            expected=expected,
            alerts=int(alert.sum()),
            hits=hits,
            threshold=threshold,
            cut=rule.cut(threshold),
            cost=float(expected_costs(rule, p, alert).sum()) if deciding.by_amount else None,
            rule=rule.name,
            prevalence=prevalence,
            of_run=self.verdict if prevalence is None else self.verdict.with_prevalence(),
            tied=tied,
        )

    def note_on(self, say: Say) -> None:
        """Says what keeps scores of the run's own nodes from being those in its predictions.csv."""
        if self.settings.positive_only:
            say(DRAWN)

    @plain_torch()
    def probabilities(self, graph: Graph) -> Probabilities:
        """Returns what the run's maps say of a prepared graph; alerts by the run's threshold as it is."""
        return self.said(self.fit.logits_of(graph), self.settings.decision.thresholds(self.threshold, graph))

    def said(self, logits: Tensor, threshold: float | Tensor) -> Probabilities:
        """Returns the probabilities of logits [n, k], and the alerts of a threshold."""
        logits = logits.double() if self.settings.many else logits
        return Probabilities.of(logits, self.calibrators, self.settings.calibration.calibrate_for, threshold)

    def _known(self, graph: Graph, logits: Tensor, threshold: float | Tensor, wanted: IntervalNodes) -> Known | None:
        """Returns the nodes that get an interval; None where all do."""
        if self.fit.closed_form is not None and not self.settings.plain_alo:
            return None
        return known_logits(self.settings, self.fit, graph, logits, self.calibrators, threshold, wanted=wanted)

    def intervals(self, graph: Graph, report: Report | None = None, known: Known | None = None) -> JackknifeResult:
        """Returns Algorithm 1 for the nodes of a prepared graph, leaving out the run's labels.

        Args:
            graph: the graph.
            report: called as labels are left out one by one.
            known: every node's logits, where some nodes alone get an interval; None: all do.
        """
        settings, result, method, network = self.settings, None, self.settings.leave_one_out, self.fit.closed_form
        if network is not None and settings.plain_alo:
            method = dataclasses.replace(method, damping=self.damping)
        elif network is not None:  # damping as the training asked for it: it would be raised again
            m = self.fit.nodes.numel()
            progress = None if report is None else (lambda done: report(method.name, done, m))
            result = leave_one_out(network, graph, method, progress=progress)
        more = {"result": result, "calibration_nodes": self.calibration_nodes, "known": known}
        return intervals_of(settings, self.fit, graph, self.calibrators, method, **more)

    @plain_torch()
    def prepared(self, graph: Graph, say: Say = to_stderr) -> Graph:
        """Returns a graph on the CPU, labels merged as in the run, and features mapped as those of its graph.

        Missing edge types have no edges; other types count as untyped edges.

        Raises:
            InputError: the features are others, the edges have no types, or the run has logits and no detector.
        """
        if not self.fit.scores_graphs:
            raise InputError(
                "the run was trained on given logits and has no network to score with: pass the logits of this graph "
                "to its calibrator, calirare.load(run).scorer.calibrators['population'].transform(logits)"
            )
        if graph.n_edges:
            note_weights(self.wants_weights, has_weights(graph), say)
        typed = with_relations(self._labelled(graph.to("cpu"), say), self.relations, say)
        return self.features.transform(typed, say)

    def _labelled(self, graph: Graph, say: Say) -> Graph:
        """Returns the graph with its labels merged as in the run: 1 for its rare class, 0 for the others.

        Of many classes, which are not merged, labels of other classes are left out.
        """
        same, many = graph.class_names == self.class_names, self.settings.many or len(self.class_names) > 2
        if graph.y is None or (same and (many or graph.original_y is not None)):
            return graph
        if many:
            return dataclasses.replace(graph, y=None, split=None, class_names=(), trusted=True)
        rare = self.class_names[1]
        k = find_name(rare, graph.class_names)
        if k is None:
            say(f"the graph's labels are ignored: the run's rare class {rare!r} is not among its classes")
            return dataclasses.replace(graph, y=None, split=None, class_names=(), trusted=True)
        y = torch.where(graph.y < 0, graph.y, (graph.y == k).long())
        return dataclasses.replace(graph, y=y, class_names=self.class_names, posterior=None, trusted=True)


class ScoresGraphs:
    """A run that scores other graphs by its `scorer`."""

    scorer: Scorer

    def predict(self, graph: Graph, say: Say = to_stderr, report: Report | None = None) -> pd.DataFrame:
        """Returns one row per scored node of a graph, and notes what keeps its probabilities from being relied on.

        Args:
            graph: with the run's features, in any order where they have names; labels play no part.
            say: takes notes, such as features that are left out.
            report: called as nodes are scored.

        Returns:
            The columns of `predictions.csv`, without split and label where there are none.

        Raises:
            InputError: the features are others.
        """
        return self.score(graph, say, report).noted(say)

    def score(
        self,
        graph: Graph,
        say: Say = to_stderr,
        report: Report | None = None,
        *,
        prevalence: PrevalenceRequest = None,
        interval_nodes: IntervalNodes | None = None,
        deciding: Deciding | None = None,
        queue: int | None = None,
    ) -> Scored:
        """Returns predictions, what to expect and how the graph differs from the run's own, see `Scorer.score`."""
        return self.scorer.score(graph, say, report, prevalence, interval_nodes, deciding=deciding, queue=queue)
