"""What the stages of the main job read and hand on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from calirare.graph import Graph
from calirare.leave_one_out import Agreement, LooResult
from calirare.models import Given
from calirare.run import Choice, Settings
from calirare.training import Detector, Fitted

Report = Callable[[str, int, int], None]  # stage, done, of how many


@dataclass(frozen=True, eq=False)
class Job:
    """What every stage reads.

    Attributes:
        graph: the graph, on its device.
        settings: how.
        nodes: the labels that train, int64 [m].
        calibration_nodes: which of them represent the population, drawn at random and not so many per class, bool [m].
        report: called as stages proceed.
        user_graph: the graph with the user's own labels, whose nodes are decided on; differs from `graph` where nodes
            without a label stand for the rest.
        given: logits that were trained elsewhere; None: a detector is trained.
        raw_graph: the graph as it was given, its columns as they are; None: `graph` is.
    """

    graph: Graph
    settings: Settings
    nodes: Tensor
    calibration_nodes: Tensor
    report: Report
    user_graph: Graph
    given: Given | None = None
    raw_graph: Graph | None = None

    @property
    def kind(self) -> str | None:
        """Of classes taken as they are, the name of the second, which maps of two tell of; None: it is the rare one."""
        return self.graph.class_names[1] if self.settings.many else None

    @classmethod
    def of(
        cls,
        graph: Graph,
        settings: Settings,
        report: Report,
        user_graph: Graph | None = None,
        given: Given | None = None,
        raw_graph: Graph | None = None,
    ) -> Job:
        """Returns the job of a graph: with method "jackknife" the validation labels train too."""
        assert graph.split is not None
        train, val = graph.split.train, graph.split.val
        nodes = torch.cat([train, val]) if settings.method == "jackknife" else train
        representative = torch.zeros(nodes.numel(), dtype=torch.bool, device=graph.device)
        representative[train.numel() :] = True
        if not bool(representative.any()):
            representative[:] = True
        return cls(graph, settings, nodes, representative, report, user_graph or graph, given, raw_graph)


@dataclass(frozen=True, eq=False)
class Trained:
    """What training ends with.

    Attributes:
        fitted: the detector.
        detector: what trains one like it on other labels, for cross-fitting; None where the detector has its folds.
        notes: sentences a user should read.
        choice: what was chosen among detectors, and why; None where one was requested.
    """

    fitted: Fitted
    detector: Detector | None = None
    notes: tuple[str, ...] = ()
    choice: Choice | None = None


@dataclass(frozen=True, eq=False)
class LeftOutLabels:
    """Every label's logits without itself, and what was decided on the way.

    Attributes:
        logits: to calibrate on, [m, k]; NaN where a label has no model.
        damping: of the leave-one-out step.
        agreement: how leave-one-out loss and held-out loss compare; None without the check.
        result: at every node, of methods other than plain `ALO`.
        held_out: each label's logits by the network without its fold, [m, k], NaN where its fold was not left out; None
            where there was no cross-validation.
        notes: sentences a user should read.
    """

    logits: Tensor
    damping: float | None
    agreement: Agreement | None = None
    result: LooResult | None = None
    held_out: Tensor | None = None
    notes: tuple[str, ...] = ()

    @property
    def partial(self) -> bool:
        """Whether some labels may have no logits here."""
        return self.result is not None or self.held_out is self.logits
