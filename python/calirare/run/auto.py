"""Stacked ensemble of detectors, weighted by out-of-fold log loss; no labels are held out."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from calirare._util.steps import progress
from calirare.graph import Graph, normalize_features
from calirare.leave_one_out import OwnLogits, closed_form_fits
from calirare.models import (
    FoldedNetwork,
    FoldFitted,
    GcnFit,
    GcnTraining,
    HopColumns,
    LabelPropagation,
    Mixture,
    MlpTraining,
    TreesTraining,
    class_weights,
    fold_converged,
    held_out_fold,
    mixture_of,
    train_folds,
)
from calirare.run.choice import Choice, Row
from calirare.run.data import Report, Trained, TrainingData
from calirare.run.settings import Settings
from calirare_ext import Csr

FOLDS, FOLDS_OF_MANY = 5, 3
N_CANDIDATES = 9  # six with the graph, three without; of a table these three, and with few labels one more
SPREADING = "spreading"
MOST_KEPT = 1 << 30  # bytes that spreading may keep with the run: 22 million nodes of two classes
FAINT = 0.01  # weight below which spreading is left out: it keeps numbers of every node
NO_EDGES = "linear, no edges"  # of those without the graph the one that joins the average
TREES: dict[str, Literal["boosting", "extra"]] = {"trees": "boosting", "forest": "extra"}
LINEAR_DECAYS = (1e-4, 1e-3, 1e-2, 1e-1)
SHARES = (1e-6, 1e-5, 1e-4, 1e-3)  # the same of propagated words, whose columns have no scale: of |x|^2
HOPS_DECAYS = (5e-3, 5e-2, 2e-1)
GCNS = ((1, 5e-4), (1, 2e-3), (2, 2e-3))  # hops and weight decay
EPOCHS = 200
SCARCE = 2_000  # labels from which a network is trained with the first setting alone, for fewer epochs
MANY_EPOCHS = 100
ROUNDS, RATE = 150, 0.15  # of boosting with more than two classes, each of which has a tree in every round
MANY_TREES = 40  # of a forest on many labels, where boosting leads and 100 cost as much as all else


@dataclass(frozen=True, eq=False)
class Task:
    """What every candidate is trained on.

    Attributes:
        graph: the graph.
        nodes: the labelled nodes, int64 [m].
        weights: of their losses, [m].
        seed: of everything random.
        say: called with the name of a candidate before it is trained.
        tree_weights: of the labels in trees; None: as each kind of trees has them.
    """

    graph: Graph
    nodes: Tensor
    weights: Tensor
    seed: int
    say: Callable[[str], None]
    tree_weights: Tensor | None = None

    @property
    def targets(self) -> Tensor:
        """Classes of the labelled nodes, int64 [m]."""
        assert self.graph.y is not None
        return self.graph.y[self.nodes]

    @property
    def n_folds(self) -> int:
        """Number of folds, at most the number of labels; fewer with many labels of many classes, which take long."""
        many = self.graph.n_classes > 2 and not self.scarce
        return min(FOLDS_OF_MANY if many else FOLDS, self.nodes.numel())

    @property
    def scarce(self) -> bool:
        """Whether labels are so few that trying costs little."""
        return self.nodes.numel() <= SCARCE


def fit_auto(data: TrainingData, settings: Settings, report: Report) -> Trained:
    """Returns the mixture of all candidates, with what each would say of its labels and whether the graph helps."""
    graph, targets = data.graph, data.targets
    weights = class_weights(targets, graph.n_classes)[targets].float()
    names, scarce = list[str](), data.nodes.numel() <= SCARCE
    total = N_CANDIDATES if graph.n_edges else 3 + scarce

    def say(name: str) -> None:
        report("train", len(names), total)
        names.append(name)

    timed = graph.time is not None
    task = Task(graph, data.nodes, weights, settings.seed, say, tree_weights(data, settings))
    with_graph = HopColumns.fit(graph, 2, task.seed, task.nodes)
    without = dict[str, FoldFitted]()
    if graph.n_edges:
        alone = HopColumns.fit(graph, 0, task.seed, task.nodes, like=with_graph)
        without = dict(tabular(task, alone))
    fits = dict(candidates(task, with_graph)) | ({NO_EDGES: without["linear"]} if without else {})
    mixture = mixture_of(fits, weights, timed=timed)
    if mixture.weight_of(SPREADING) < FAINT and fits.pop(SPREADING, None) is not None:
        mixture = mixture_of(fits, weights, timed=timed)
    report("train", total, total)
    return Trained(
        mixture, choice=choice_of(mixture, mixture_of(without, weights, timed=timed) if without else None, task)
    )


def tree_weights(data: TrainingData, settings: Settings) -> Tensor | None:
    """Returns the weights of labels in trees, float32 [m]; None: as each kind of trees has them.

    Where nodes without a label stand for the other class, classes weigh alike: many of these nodes are rare, and trees
    to which every one counts as much as a known node learn to doubt the known ones.
    """
    return class_weights(data.targets, 2)[data.targets].float() if settings.positive_only else None


def candidates(task: Task, columns: HopColumns) -> Iterator[tuple[str, FoldFitted]]:
    """Yields every candidate that reads the graph by its name.

    Without edges these are the ones that read columns; on many labels boosting leads, and a perceptron costs as much.
    """
    yield from tabular(task, columns)
    if task.graph.n_edges or task.scarce:
        task.say("hops")
        yield "hops", perceptron(task, columns)
    if not task.graph.n_edges:
        return
    task.say("gcn")
    yield "gcn", convolution(task)
    spread = LabelPropagation(task.n_folds, task.seed)
    if spread.kept_bytes(task.graph) <= MOST_KEPT:
        task.say(SPREADING)
        fitted = spread.fit(task.graph, task.nodes, sample_weights=task.weights)
        if not bool(fitted.own_logits.isnan().all()):  # else no label reaches another
            yield SPREADING, fitted


def tabular(task: Task, columns: HopColumns) -> Iterator[tuple[str, FoldFitted]]:
    """Yields the candidates that are cheap on columns of any kind."""
    _, labels = TreesTraining(columns=columns).read(task.graph, task.nodes)
    for name, kind in TREES.items():
        task.say(name)
        detector = TreesTraining(kind=kind, folds=task.n_folds, seed=task.seed, columns=columns, labels=labels)
        if kind == "extra" and not task.scarce:
            detector = dataclasses.replace(detector, rounds=MANY_TREES if task.graph.n_edges else MANY_TREES // 2)
        if kind == "boosting" and task.graph.n_classes > 2:
            detector = dataclasses.replace(detector, rounds=ROUNDS, learning_rate=RATE)
        yield name, detector.fit(task.graph, task.nodes, sample_weights=task.tree_weights)
    task.say("linear")
    yield "linear", linear(task, columns)


def linear(task: Task, columns: HopColumns) -> FoldedNetwork:
    """Returns the logistic regression, and its weight decay, of the lowest leave-one-out loss.

    Where the closed form takes long one fold of the labels judges the weight decays.

    It reads the columns or, where these hold directions of words and reach neighbours and labels are few, all words as
    one graph convolution or two propagate them (SGC, Wu et al. 2019). It is trained to its minimum, where leave-one-out
    in closed form holds for every weight decay.
    """
    reading = MlpTraining(n_layers=1, seed=task.seed, columns=columns)
    readers: list[GcnTraining] = [dataclasses.replace(reading, weight_decay=decay) for decay in LINEAR_DECAYS]
    if columns.hops and columns.own is not None and task.scarce:
        length = _mean_squared_length(task)
        convolutions = [GcnTraining(n_layers=1, hops=hops, seed=task.seed) for hops in range(1, columns.hops + 1)]
        readers += [dataclasses.replace(each, weight_decay=share * length) for each in convolutions for share in SHARES]

    last: list[GcnFit | None] = [None]

    def trained(detector: GcnTraining) -> tuple[float, GcnFit, GcnTraining]:
        fitted, _ = detector.fit_to_convergence(
            task.graph, task.nodes, sample_weights=task.weights, tolerance=1e-5, max_steps=300, near=last[0]
        )
        last[0] = None if task.scarce else fitted  # on few labels flat directions keep something of the start
        linearised = fitted.as_dtype(task.graph, torch.float32).linearisation
        if closed_form_fits(linearised):
            return mean_loss(OwnLogits(linearised)(fitted.weight_decay), task), fitted, detector
        held, logits = held_out_fold(detector, task.graph, fitted, task.n_folds)
        loss = F.cross_entropy(logits, task.targets[held], reduction="none") @ task.weights[held].double()
        return float(loss.nan_to_num(nan=torch.inf)), fitted, detector

    _, fitted, detector = min(map(trained, progress("linear", readers)), key=lambda trial: trial[0])
    fitted = fitted.as_dtype(task.graph, torch.float32)  # without the products that were made to choose it
    return fold_converged(detector, task.graph, fitted, task.n_folds)


def _mean_squared_length(task: Task) -> float:
    """Returns the mean of |x|^2 over the labels, x as a graph convolution reads features; 1 where all are 0."""
    x = normalize_features(task.graph).x
    rows = x.select_rows(task.nodes).values if isinstance(x, Csr) else x[task.nodes]
    return float(rows.double().square().sum()) / task.nodes.numel() or 1.0


def perceptron(task: Task, columns: HopColumns) -> FoldedNetwork:
    """Returns a perceptron on columns."""
    every = HOPS_DECAYS if task.scarce else HOPS_DECAYS[:1]
    common = MlpTraining(epochs=_epochs(task), columns=columns, seed=task.seed)
    return lowest(task, [dataclasses.replace(common, weight_decay=decay) for decay in every])


def convolution(task: Task) -> FoldedNetwork:
    """Returns a graph convolution."""
    every = GCNS if task.scarce else GCNS[:1]
    common = GcnTraining(epochs=_epochs(task), seed=task.seed)
    return lowest(task, [dataclasses.replace(common, hops=hops, weight_decay=decay) for hops, decay in every])


def _epochs(task: Task) -> int:
    return EPOCHS if task.scarce else MANY_EPOCHS


def lowest(task: Task, detectors: Sequence[GcnTraining]) -> FoldedNetwork:
    """Returns the network of the lowest loss by the networks without each fold, which have not seen what they judge.

    Leave-one-out is no judge here: after so many steps a network may know its labels by heart, and is then a long way
    from what one step of Newton can undo.
    """
    given = task.graph, task.nodes, task.weights
    trials = [(each, train_folds(each, *given, task.n_folds)) for each in progress("networks", detectors)]
    best, (theta, fold, own) = min(trials, key=lambda trial: mean_loss(trial[1][2], task))
    return FoldedNetwork(best.fit(task.graph, task.nodes, sample_weights=task.weights), theta, fold, own)


def label_losses(own_logits: Tensor, task: Task) -> Tensor:
    """Returns the weighted loss of each label by its own logits, float64 [m]."""
    losses = F.cross_entropy(own_logits.double(), task.targets, reduction="none")
    return task.weights.double() / task.weights.double().mean() * losses


def mean_loss(own_logits: Tensor, task: Task) -> float:
    """Returns the mean of `label_losses`; infinite where a logit is not a number."""
    return float(label_losses(own_logits, task).mean().nan_to_num(nan=torch.inf))


def choice_of(mixture: Mixture, without: Mixture | None, task: Task) -> Choice:
    """Returns what was chosen and why: each member's loss without each label, and the paired effect of the graph.

    Args:
        mixture: the detectors.
        without: the same on a node's own features only; None: the graph has no edges.
        task: what they were trained on.
    """
    rows = list[Row]()
    for m in mixture.members:  # logits of each label without it, 0 where the member has nothing to say
        own = m.calibrator.calibrated_logits(m.fitted.own_logits.double().nan_to_num(nan=0.0))
        rows.append(Row(m.name, m.weight, float(label_losses(own, task).mean())))
    together = label_losses(mixture.own_logits, task)
    if without is None:
        return Choice(tuple(rows), float(together.mean()))
    effect = label_losses(without.own_logits, task) - together
    error = float(effect.std() / max(effect.numel(), 1) ** 0.5)
    return Choice(tuple(rows), float(together.mean()), float(effect.mean()), error)
