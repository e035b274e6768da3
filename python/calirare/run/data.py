"""What a run is trained on, checked and prepared, and the values that its stages hand on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from calirare._util.errors import InputError
from calirare.calibration import check_known, unlabelled_share
from calirare.calibration.decisions import fewest_rare
from calirare.datasets import with_task
from calirare.features import FeatureMap
from calirare.graph import Graph, check_trainable, known_rare, with_sampled_negatives
from calirare.leave_one_out import Agreement, LooResult
from calirare.models import Detector, Fitted
from calirare.run.choice import Choice
from calirare.run.deciding import Deciding, amounts_at_risk
from calirare.run.settings import Settings

Report = Callable[[str, int, int], None]  # stage, done, of how many
ROUNDED = 0.05  # of the nodes that a prevalence stands for: what its last digit may be off by


@dataclass(frozen=True, eq=False)
class TrainingData:
    """A graph as a detector reads it, and the labels that train.

    Attributes:
        graph: with mapped features; where rare nodes alone are known, with drawn nodes as the other class.
        user_graph: the same with the user's own labels, whose nodes are decided on.
        raw_graph: the same with the columns as they were given, on the CPU.
        features: maps the columns of `raw_graph`.
        nodes: the labels that train, int64 [m]: the training nodes, with method "jackknife" the validation nodes too.
        targets: their classes, int64 [m].
        calibration_nodes: which of them represent the population, drawn at random and not so many per class, bool [m].
        kind: with task "classes" the name of the second class, which tests of two classes name; else None.
    """

    graph: Graph
    user_graph: Graph
    raw_graph: Graph
    features: FeatureMap
    nodes: Tensor
    targets: Tensor
    calibration_nodes: Tensor
    kind: str | None

    def to(self, device: torch.device) -> TrainingData:
        """Returns the data on another device."""
        graph = self.graph.to(device)
        user_graph = graph if self.user_graph is self.graph else self.user_graph.to(device)
        labels = {name: getattr(self, name).to(device) for name in ("nodes", "targets", "calibration_nodes")}
        return replace(self, graph=graph, user_graph=user_graph, **labels)


@dataclass(frozen=True, eq=False)
class Trained:
    """What training ends with.

    Attributes:
        fitted: the detector.
        logits: of every node [n, k].
        detector: what trains one like it on other labels, for cross-fitting; None where the detector has its folds.
        notes: sentences a user should read.
        choice: what was chosen among detectors, and why; None where one was requested.
    """

    fitted: Fitted
    logits: Tensor = field(default_factory=lambda: torch.empty(0, 0))
    detector: Detector | None = None
    notes: tuple[str, ...] = ()
    choice: Choice | None = None


@dataclass(frozen=True, eq=False)
class OutOfFold:
    """Every label's logits by a model without it, and what was decided on the way.

    Attributes:
        logits: to calibrate on, [m, k]; NaN where a label has no model; None where no label was left out.
        damping: of the leave-one-out step.
        agreement: how leave-one-out loss and held-out loss compare; None without the check.
        result: at every node, of methods other than plain `ALO`.
        held_out: each label's logits by the network without its fold, [m, k], NaN where its fold was not left out; None
            where there was no cross-validation.
        notes: sentences a user should read.
    """

    logits: Tensor | None
    damping: float | None = None
    agreement: Agreement | None = None
    result: LooResult | None = None
    held_out: Tensor | None = None
    notes: tuple[str, ...] = ()

    @property
    def retrained(self) -> Tensor | None:
        """The logits by retraining without each fold where there was one.

        The closed form of a network that has learnt its labels by heart leaves some of each label in: of a known rare
        node too high, of a drawn one too low.
        """
        return self.logits if self.held_out is None else self.held_out

    def usable(self, nodes: Tensor) -> Tensor:
        """Returns which of some labels, bool [m], can calibrate: those with a model."""
        known = None if self.logits is None else torch.isfinite(self.logits).all(1)
        return nodes if known is None or not bool(known.any()) else nodes & known


def prepare(graph: Graph, settings: Settings) -> TrainingData:
    """Returns a graph with the task, split and features that it is trained with, on the CPU.

    Raises:
        InputError: the graph cannot be trained on, or a setting does not suit it.
    """
    data = settings.data
    if settings.positive_only:
        graph = known_rare(graph, data.rare_class)
    else:
        graph = with_task(graph, data.task, settings.seed, data.rare_class, data.split, data.label_rate)
        check_trainable(graph)
    if settings.many:
        _check_classes(graph, settings)
    graph = graph.to("cpu")
    trained = _with_negatives(graph, settings) if settings.positive_only else graph
    split = trained.split
    assert split is not None
    assert trained.y is not None
    nodes = torch.cat([split.train, split.val]) if settings.method == "jackknife" else split.train
    targets = trained.y[nodes]
    _check_validation(graph, settings)
    if not settings.positive_only:
        check_prevalence(graph, settings.calibration.prevalence)
    _check_provable(settings.decision, int((targets == 1).sum()))
    settings.decision.rule_on(graph)
    if settings.decision.sort_by == "amount":
        amounts_at_risk(graph)
    features = FeatureMap.fit(
        trained, data.scale, impute=data.impute, one_hot=data.one_hot, nodes=nodes, seed=settings.seed % 2**32
    )
    mapped = features.own(trained)
    user_graph = replace(mapped, y=graph.y, split=graph.split, trusted=True) if settings.positive_only else mapped
    chosen = torch.arange(nodes.numel()) >= split.train.numel()
    if not bool(chosen.any()):
        chosen[:] = True
    kind = graph.class_names[1] if settings.many else None
    return TrainingData(mapped, user_graph, graph, features, nodes, targets, chosen, kind)


def _with_negatives(graph: Graph, settings: Settings) -> Graph:
    """Returns known rare nodes with drawn ones as the other class, see `with_sampled_negatives`."""
    assert graph.split is not None
    n_known, prevalence = graph.split.train.numel(), settings.calibration.prevalence
    if prevalence is None:
        check_known(n_known)
    else:
        unlabelled_share(prevalence, n_known, graph.scored_nodes.numel())
    return with_sampled_negatives(graph, settings.seed)


def check_prevalence(graph: Graph, prevalence: float | None) -> None:
    """Checks that a prevalence leaves room for the labels of both classes.

    Raises:
        InputError: more nodes have a label of a class than there should be.
    """
    if prevalence is None or graph.y is None:
        return
    labels = graph.y[graph.scored_nodes]
    for k, share in ((1, prevalence), (0, 1 - prevalence)):
        have, most = int((labels == k).sum()), share * len(labels)
        if have > most * (1 + ROUNDED):
            raise InputError(
                f"prevalence {prevalence:g} of {len(labels):,} target nodes makes {most:,.0f} of class "
                f"{graph.class_names[k]!r}, but {have:,} have its label. Give the base rate among all target nodes, or "
                "leave it out"
            )


def _check_classes(graph: Graph, settings: Settings) -> None:
    """Raises an InputError where not every class can be taken as it is, or a setting is for a rare class."""
    where = f"graph {graph.name!r}, task classes"
    if graph.original_y is not None:
        raise InputError(
            f"{where}: its classes were merged into {graph.class_names[1]!r} and all others. Give the graph before "
            "`rare`, or load it with task='classes'"
        )
    if settings.method == "calirare":
        raise InputError(f"{where}: method calirare is for a rare class: take method jackknife, ts or uncalibrated")
    if settings.decision not in (Deciding(), Settings.of(preset=settings.preset).decision):
        raise InputError(f"{where}: settings of the decision are for a rare class: leave them out")
    if settings.calibration.prevalence is not None:
        raise InputError(f"{where}: prevalence belongs to a rare class: leave it out")
    assert graph.split is not None
    assert graph.y is not None
    if settings.method != "jackknife" and not bool((graph.y[graph.split.test] >= 0).any()):
        raise InputError(
            f"{where}: method {settings.method} leaves no label out, so it needs labelled test nodes to be judged on, "
            "but the split has none: take method jackknife, or put some into the test part"
        )


def _check_validation(graph: Graph, settings: Settings) -> None:
    """Raises an InputError where the method, or what calibrates, needs validation nodes that there are not."""
    assert graph.split is not None
    if graph.split.val.numel():
        return
    if settings.calibration.calibrate_on == "val":
        raise InputError(
            f"graph {graph.name!r}: calibrate_on=val needs validation nodes, but the split has none: take auto or "
            "all (command line: --calibrate-on), or put labels drawn at random into the validation part"
        )
    if settings.method in ("ts", "calirare"):
        raise InputError(
            f"graph {graph.name!r}: method {settings.method} needs validation nodes, but the split has "
            "none: take method jackknife (command line: --method jackknife), which needs none, or split random "
            "(--split random)"
        )


def _check_provable(deciding: Deciding, rare: int) -> None:
    """Raises an InputError where there are fewer rare labels than what the decision has to prove takes at the least."""
    what = deciding.decide
    if deciding.guarantee is None or what not in ("precision", "recall"):
        return
    at_least = float(getattr(deciding, f"min_{what}"))
    needed = fewest_rare(what, at_least, deciding.guarantee)
    if rare < needed:
        raise InputError(
            f"a {what} of {at_least:g} cannot be proved with confidence {deciding.guarantee:g} by {rare} rare labels, "
            f"{needed} are needed at least: lower the {what} or the confidence, or leave out --guarantee"
        )
