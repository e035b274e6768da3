"""A run's settings on other labels: trained again from scratch, and what a node is then."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from calirare._util.device import device_or_cpu
from calirare._util.errors import InputError
from calirare._util.steps import counted
from calirare.explain import Explanation, Explanations
from calirare.graph import Graph, check_trainable
from calirare.graph.labelled import NO_PART
from calirare.run.data import Report
from calirare.run.data_settings import Labels
from calirare.run.folder import SavedRun
from calirare.run.outcome import Outcome
from calirare.run.settings import Settings
from calirare.run.split_assignment import assign_parts, changes_of
from calirare.run.stages import silent, train

TRAINED = "runs retrained"
NOTE = "labels: whole new runs were trained, calibration included, each without one of a node's {} strongest labels"
POSITIVE_ONLY = (
    "explain: --retrain is not available for positive-only labels: remove the label from the data and train a new run"
)


@dataclass(frozen=True, eq=False)
class Retrained:
    """A run trained again.

    Attributes:
        outcome: the new run.
        labels: that changed, with their parts of the split.
        settings: it was trained with, but for the device.
        notes: in addition to the run's own.
    """

    outcome: Outcome
    labels: Labels
    settings: Settings
    notes: list[str]


def retrain(
    settings: Settings,
    graph: Graph,
    changed: Labels,
    *,
    chosen: bool = True,
    report: Report | None = None,
) -> Retrained:
    """Returns a run trained with the settings of another, from scratch, on its graph with some labels changed.

    Args:
        settings: of the run; what its labels chose is chosen again.
        graph: its own, on the CPU.
        changed: the labels that change; unknown ones are forgotten.
        chosen: whether new labels were chosen, see `update`.
        report: called as stages proceed.

    Raises:
        InputError: the labels that are left cannot train a detector.
    """
    asked = settings.but("update", **settings.training.requested)
    table, after, notes = assign_parts(graph, changed, asked, chosen=chosen)
    labelled = table.of(graph)
    check_trainable(labelled)
    device, elsewhere = device_or_cpu(after.device)
    outcome = train(labelled, after.but("update", device=device), report=report or silent)
    return Retrained(outcome, table, after, [note for note in (elsewhere, *notes) if note])


def retrained(saved: SavedRun, graph: Graph, found: Explanations, labels: int) -> Explanations:
    """Returns explanations whose strongest labels are left out by training a whole new run without each, too.

    What `explain` says of a label follows from the run as it is; this is the answer that it stands for.

    Args:
        saved: the run.
        graph: its own graph (`saved.graph()`).
        found: of `saved.explain`.
        labels: how many labels of each node, at least 1; a run is trained for each label once.

    Raises:
        InputError: `labels` is below 1, the run is positive-only, or without a label no run can be trained.
    """
    if labels < 1:
        raise InputError(f"explain: the number of labels to retrain without must be at least 1, got {labels}")
    if saved.settings.positive_only:
        raise InputError(POSITIVE_ONLY)
    graph = graph.to("cpu")
    asked = dict.fromkeys(effect.node for each in found for effect in each.labels[:labels])
    new = dict(counted(TRAINED, _without_each(saved, graph, found, list(asked)), len(asked)))

    def told(one: Explanation) -> Explanation:
        first = (replace(each, retrained=new[each.node][one.node]) for each in one.labels[:labels])
        return replace(one, labels=(*first, *one.labels[labels:]))

    return Explanations(tuple(map(told, found)), (*found.notes, NOTE.format(labels)))


def _without_each(
    saved: SavedRun, graph: Graph, found: Explanations, asked: list[int]
) -> Iterator[tuple[int, dict[int, float]]]:
    """Yields each label's node with the probabilities of the explained nodes by a new run without that label."""
    for node in asked:
        forgotten = Labels(torch.tensor([node]), torch.tensor([-1]), torch.tensor([NO_PART]))
        changed = changes_of(graph, forgotten)
        again = retrain(saved.settings, graph, changed)
        if saved.settings.many:
            p = again.outcome.probabilities(again.settings.calibration.target)
            yield node, {each.node: float(p[each.node, graph.class_names.index(each.of)]) for each in found}
        else:
            rare = again.outcome.for_tables().rare
            yield node, {each.node: float(rare[each.node]) for each in found}
