"""Detectors that are chosen and averaged by the loss of every label without itself; no label is held out for it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from calirare.graph import Graph
from calirare.leave_one_out import OwnLogits, choose_damping
from calirare.models import (
    FoldedNetwork,
    GcnFit,
    GcnTraining,
    HopColumns,
    HopsTraining,
    Mixture,
    TreesDetector,
    TreesTraining,
    fold_converged,
    fold_network,
    mixture_of,
)
from calirare.pipeline.job import Job, Trained
from calirare.run import Choice, Row
from calirare.training import FoldFitted, class_weights

FOLDS = 5
N_CANDIDATES = 8  # five with the graph, three without
TREES: dict[str, Literal["boosting", "extra"]] = {"trees": "boosting", "forest": "extra"}
LINEAR_DECAYS = (1e-4, 1e-3, 1e-2, 1e-1)
HOPS_DECAYS = (5e-4, 5e-3)
GCN_DECAYS = (5e-4, 2e-3, 8e-3)
EPOCHS = 200
SCARCE = 2_000  # labels from which a network is trained with one weight decay, for fewer epochs
MANY_EPOCHS = 100
MANY_TREES = 40  # of a forest on many labels, where boosting leads and 100 cost as much as all else
CLOSED_FORM = 4_000  # labels, or parameters if they are fewer, up to which own logits are made in closed form


@dataclass(frozen=True, eq=False)
class Task:
    """What every candidate is trained on.

    Attributes:
        graph: the graph.
        nodes: the labelled nodes, int64 [m].
        weights: of their losses, [m].
        seed: of everything random.
        say: called with the name of a candidate before it is trained.
    """

    graph: Graph
    nodes: Tensor
    weights: Tensor
    seed: int
    say: Callable[[str], None]

    @property
    def targets(self) -> Tensor:
        """Classes of the labelled nodes, int64 [m]."""
        assert self.graph.y is not None
        return self.graph.y[self.nodes]

    @property
    def n_folds(self) -> int:
        """Number of folds, at most the number of labels."""
        return min(FOLDS, self.nodes.numel())

    @property
    def scarce(self) -> bool:
        """Whether labels are so few that trying costs little."""
        return self.nodes.numel() <= SCARCE


def fit_auto(job: Job) -> Trained:
    """Returns the mixture of all candidates, with what each would say of its labels and whether the graph helps."""
    graph = job.graph
    assert graph.y is not None
    targets = graph.y[job.nodes]
    weights = class_weights(targets, graph.n_classes)[targets].float()
    names = list[str]()

    def say(name: str) -> None:
        job.report("train", len(names), N_CANDIDATES)
        names.append(name)

    task = Task(graph, job.nodes, weights, job.settings.seed, say)
    with_graph, alone = (HopColumns.fit(graph, hops, task.seed, task.nodes) for hops in (2, 0))
    fits = dict(candidates(task, with_graph))
    mixture = mixture_of(fits, weights)
    without = mixture_of(dict(tabular(task, alone)), weights)
    job.report("train", N_CANDIDATES, N_CANDIDATES)
    return Trained(mixture, choice=choice_of(mixture, without, task))


def candidates(task: Task, columns: HopColumns) -> Iterator[tuple[str, FoldFitted]]:
    """Yields every candidate by its name."""
    yield from tabular(task, columns)
    task.say("hops")
    yield "hops", perceptron(task, columns)
    task.say("gcn")
    yield "gcn", convolution(task)


def tabular(task: Task, columns: HopColumns) -> Iterator[tuple[str, FoldFitted]]:
    """Yields the candidates that are cheap on columns of any kind."""
    for name, kind in TREES.items():
        task.say(name)
        growing = TreesTraining(kind=kind, folds=task.n_folds, seed=task.seed)
        if kind == "extra" and not task.scarce:
            growing = dataclasses.replace(growing, rounds=MANY_TREES)
        yield name, TreesDetector(growing, columns=columns).fit(task.graph, task.nodes, sample_weights=task.weights)
    task.say("linear")
    yield "linear", linear(task, columns)


def linear(task: Task, columns: HopColumns) -> FoldedNetwork:
    """Returns logistic regression on columns, its weight decay the one of the lowest leave-one-out loss."""

    def trained(decay: float) -> tuple[GcnFit, HopsTraining]:
        detector = HopsTraining(n_layers=1, weight_decay=decay, seed=task.seed, columns=columns)
        fitted, _ = detector.fit_to_convergence(
            task.graph, task.nodes, sample_weights=task.weights, tolerance=1e-5, max_steps=300
        )
        return fitted.as_dtype(task.graph, torch.float32), detector

    return _folded(task, *_lowest(task, map(trained, LINEAR_DECAYS)), converged=True)


def perceptron(task: Task, columns: HopColumns) -> FoldedNetwork:
    """Returns a perceptron on columns."""
    detectors = (
        HopsTraining(weight_decay=decay, epochs=_epochs(task), seed=task.seed, columns=columns)
        for decay in _decays(task, HOPS_DECAYS)
    )
    return _folded(task, *_lowest(task, (_trained(task, detector) for detector in detectors)))


def convolution(task: Task) -> FoldedNetwork:
    """Returns a graph convolution."""
    detectors = (
        GcnTraining(weight_decay=decay, epochs=_epochs(task), seed=task.seed) for decay in _decays(task, GCN_DECAYS)
    )
    return _folded(task, *_lowest(task, (_trained(task, detector) for detector in detectors)))


def _epochs(task: Task) -> int:
    return EPOCHS if task.scarce else MANY_EPOCHS


def _decays(task: Task, decays: Sequence[float]) -> Sequence[float]:
    return decays if task.scarce else decays[:1]


def _trained(task: Task, detector: GcnTraining) -> tuple[GcnFit, GcnTraining]:
    return detector.fit(task.graph, task.nodes, sample_weights=task.weights), detector


def _lowest(
    task: Task, trials: Iterator[tuple[GcnFit, GcnTraining]] | map[tuple[GcnFit, HopsTraining]]
) -> tuple[GcnFit, GcnTraining]:
    """Returns the network of the lowest leave-one-out loss; the only one unseen."""
    every = list(trials)
    if len(every) == 1:
        return every[0]
    losses = [float(label_losses(OwnLogits(f.linearisation)(f.weight_decay), task).mean()) for f, _ in every]
    return every[int(torch.tensor(losses).nan_to_num(nan=torch.inf).argmin())]


def label_losses(own_logits: Tensor, task: Task) -> Tensor:
    """Returns the weighted loss of each label by its own logits, float64 [m]."""
    losses = F.cross_entropy(own_logits.double(), task.targets, reduction="none")
    return task.weights.double() / task.weights.double().mean() * losses


def _folded(task: Task, fitted: GcnFit, detector: GcnTraining, *, converged: bool = False) -> FoldedNetwork:
    """Returns a network with its folds; own logits are leave-one-out's where these agree with the folds'."""
    make = fold_converged if converged else fold_network
    folded = make(detector, task.graph, fitted, task.n_folds)
    if min(task.nodes.numel() * (task.graph.n_classes - 1), fitted.linearisation.n_parameters) > CLOSED_FORM:
        return folded
    own = OwnLogits(fitted.linearisation)
    everyone = torch.ones_like(task.targets, dtype=torch.bool)
    agreement = choose_damping(own, fitted.weight_decay, folded.own_logits, everyone, task.weights)
    if agreement.verdict == "do not trust":
        return folded
    return dataclasses.replace(folded, own_logits=own(agreement.damping), damping=agreement.damping)


def choice_of(mixture: Mixture, without: Mixture, task: Task) -> Choice:
    """Returns what was chosen and why: each member's loss without each label, and the paired effect of the graph."""
    every = [(m.name, m.weight, m.spoken.calibrated_logits(m.fitted.own_logits.double())) for m in mixture.members]
    rows = [Row(name, weight, float(label_losses(own, task).mean())) for name, weight, own in every]
    together = label_losses(mixture.own_logits, task)
    effect = label_losses(without.own_logits, task) - together
    error = float(effect.std() / max(effect.numel(), 1) ** 0.5)
    return Choice(tuple(rows), float(together.mean()), float(effect.mean()), error)
