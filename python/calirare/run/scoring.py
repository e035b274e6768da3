"""A trained network on any graph: features prepared as its own were, probabilities, intervals, one table."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import pandas as pd
import torch
from torch import Tensor

from calirare._util.errors import InputError
from calirare.calibration import Calibrator, Target
from calirare.graph import Graph, Normalisation, column_statistics, standardized
from calirare.intervals import JackknifeResult, LogitMap, jackknife
from calirare.leave_one_out import ALO, leave_one_out
from calirare.run.result import RunResult
from calirare.run.settings import Settings
from calirare.run.tables import predictions
from calirare.training import Fitted, FittedNetwork

Say = Callable[[str], None]
Report = Callable[[str, int, int], None]  # stage, done, of how many


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
        feature_names: names of the run's features, or none.
        n_features: how many they are.
        normalisation: how the features are scaled before use.
        scaling: mean and standard deviation of each feature of the run's graph, [d], where they are standardized.
    """

    fit: Fitted
    settings: Settings
    calibrators: dict[Target, Calibrator]
    damping: float
    calibration_nodes: Tensor | None
    class_names: tuple[str, ...]
    feature_names: tuple[str, ...]
    n_features: int
    normalisation: Normalisation
    scaling: tuple[Tensor, Tensor] | None

    @classmethod
    def of(cls, outcome: RunResult) -> Scorer:
        """Returns what scores graphs as a run does."""
        graph, split = outcome.graph, outcome.graph.split
        assert split is not None
        in_val = torch.isin(outcome.fit.nodes, split.val)
        standardize = graph.feature_normalisation == "standardize"
        return cls(
            outcome.fit,
            outcome.settings,
            outcome.calibrators,
            outcome.jackknife.facts.damping,
            in_val if bool(in_val.any()) else None,
            graph.class_names,
            graph.feature_names,
            graph.n_features,
            graph.feature_normalisation,
            column_statistics(graph) if standardize else None,
        )

    @property
    def calibrator(self) -> Calibrator | None:
        """The map of the run's target, or None."""
        return self.calibrators.get(self.settings.calibration.target)

    def predict(self, graph: Graph, say: Say = to_stderr, report: Report | None = None) -> pd.DataFrame:
        """Returns one row per node of a graph with the columns of `predictions.csv`.

        Args:
            graph: with the run's features, in any order where they have names; labels are not needed.
            say: takes notes, such as features or labels that are left out.
            report: see `intervals`.

        Raises:
            InputError: the features are others.
        """
        graph = self.prepared(graph, say)
        result = self.intervals(graph, report=report)
        raw, probabilities = self.probabilities(graph)
        return predictions(graph, raw, probabilities, result, None)

    def probabilities(self, graph: Graph) -> tuple[Tensor, Tensor]:
        """Returns raw P(class 1) [n] and probabilities under the run's map [n, k] of a prepared graph."""
        logits = self.fit.logits_of(graph)
        raw = torch.softmax(logits, 1)
        return raw[:, 1], raw if self.calibrator is None else self.calibrator.transform(logits)

    def intervals(self, graph: Graph, coverage: float | None = None, report: Report | None = None) -> JackknifeResult:
        """Returns Algorithm 1 for the nodes of a prepared graph, leaving out the run's labels.

        Args:
            graph: the graph.
            coverage: of the intervals; None: the run's.
            report: called as labels are left out one by one.
        """
        settings, result, method = self.settings, None, self.settings.leave_one_out
        if not isinstance(self.fit, FittedNetwork):
            method = ALO()  # not asked: the folds' models answer
        elif settings.plain_alo:
            method = dataclasses.replace(method, damping=self.damping)
        else:  # damping as the training asked for it: what such a method raised by itself would be raised again
            m = self.fit.nodes.numel()
            progress = None if report is None else (lambda done: report(method.name, done, m))
            result = leave_one_out(self.fit, graph, method, progress=progress)
        return jackknife(
            self.fit,
            graph,
            method,
            coverage=settings.intervals.coverage if coverage is None else coverage,
            calibrator=cast(LogitMap | None, self.calibrator),
            result=result,
            uncertainty=settings.intervals.uncertainty,
            population_map=self.calibrators.get("population") if settings.calibration.map == "prior" else None,
            calibration_nodes=self.calibration_nodes,
        )

    def prepared(self, graph: Graph, say: Say = to_stderr) -> Graph:
        """Returns a graph with labels merged, features chosen and scaled as of the run's graph.

        Raises:
            InputError: the features are others.
        """
        return self._scaled(self._with_features(self._labelled(graph, say), say))

    def _labelled(self, graph: Graph, say: Say) -> Graph:
        """Returns the graph with its labels merged as in the run: 1 for its rare class, 0 for the others."""
        if graph.y is None or (graph.class_names == self.class_names and graph.original_y is not None):
            return graph
        rare = self.class_names[1]
        if rare not in graph.class_names:
            say(f"the graph's labels are left out, the run's rare class {rare!r} is not among its classes")
            return dataclasses.replace(graph, y=None, split=None, class_names=(), trusted=True)
        y = torch.where(graph.y < 0, graph.y, (graph.y == graph.class_names.index(rare)).long())
        return dataclasses.replace(graph, y=y, class_names=self.class_names, posterior=None, trusted=True)

    def _with_features(self, graph: Graph, say: Say) -> Graph:
        """Returns the graph with the run's features: by their names where both have names, else by their number."""
        wanted, given = self.feature_names, graph.feature_names
        absent = [feature for feature in wanted if feature not in given]
        if wanted and given and absent:
            raise InputError(
                f"predict: graph {graph.name!r} must have the features the run was trained on, {absent[0]!r} is not "
                f"among its columns {', '.join(given[:20])}: name the columns as the run's graph does"
            )
        if wanted and given and wanted != given:
            more = [feature for feature in given if feature not in wanted]
            if more:
                say(f"left out, as the run has no such feature: {', '.join(more)}")
            assert isinstance(graph.x, Tensor)
            x = graph.x[:, [given.index(feature) for feature in wanted]]
            return dataclasses.replace(graph, x=x, feature_names=wanted, trusted=True)
        if graph.n_features != self.n_features:
            raise InputError(
                f"predict: graph {graph.name!r} must have the {self.n_features} features the run was trained "
                f"on, got {graph.n_features}"
            )
        return graph

    def _scaled(self, graph: Graph) -> Graph:
        """Returns the graph with features scaled as the run's graph was: standardized by the run's own statistics."""
        if self.scaling is None:
            return dataclasses.replace(graph, feature_normalisation=self.normalisation, trusted=True)
        if not isinstance(graph.x, Tensor):
            raise InputError(
                f"predict: graph {graph.name!r} must have dense features, as the run standardizes, got sparse"
            )
        x = standardized(graph.x, *self.scaling)
        return dataclasses.replace(graph, x=x, feature_normalisation="none", trusted=True)
