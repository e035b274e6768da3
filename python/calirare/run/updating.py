"""A saved run with other labels: trained again from scratch, and what that changed."""

from __future__ import annotations

import torch
from torch import Tensor

from calirare._util.device import device_or_cpu
from calirare._util.errors import InputError
from calirare.graph import Graph, check_trainable
from calirare.run.changes import Side, Updated
from calirare.run.data import Report
from calirare.run.data_settings import Labels
from calirare.run.folder import SavedRun
from calirare.run.recalibration import Recalibrated, recalibrated, without_calibrators
from calirare.run.scoring import Say, to_stderr
from calirare.run.split_assignment import assign_parts, changes_of
from calirare.run.stages import silent, train

NO_UPDATE = (
    "update: a positive-only run ignores labels of nodes that are not rare. Put the new ones into the data and train "
    "again, without --positive-only if there are labels of both classes"
)


def update(
    saved: SavedRun, graph: Graph, fresh: Labels, *, chosen: bool = True, report: Report | None = None
) -> Updated:
    """Returns a run trained again with some labels in the place of its own, from scratch and with its settings.

    Args:
        saved: the run.
        graph: its own graph (`SavedRun.graph`).
        fresh: the labels that change; unknown ones are forgotten.
        chosen: whether nodes that get a first label were chosen for it, by their P(rare) or `Outcome.next_labels`; then
            P(rare) is calibrated on the labels of before alone, where these were a random sample.
        report: called as stages proceed.

    Raises:
        InputError: no label changes, or the labels that are left cannot train a detector.
    """
    if saved.settings.positive_only:
        raise InputError(NO_UPDATE)
    graph = graph.to("cpu")
    changed = changes_of(graph, fresh)
    asked = saved.settings.but("update", **saved.settings.training.requested)
    labels, after, notes = assign_parts(graph, changed, asked, chosen=chosen)
    labelled = labels.of(graph)
    check_trainable(labelled)
    device, elsewhere = device_or_cpu(after.device)
    outcome = train(labelled, after.but("update", device=device), report=report or silent)
    outcome.notes += [note for note in (elsewhere, *notes) if note]
    many, was = saved.settings.many, saved.scorer.probabilities(saved.mapped(graph))
    old = Side.of(was, saved.scorer.threshold, graph, saved.fit.nodes, many=many)
    new = Side.of(outcome.for_tables(), outcome.threshold, outcome.graph, outcome.fit.nodes, many=many)
    return Updated(outcome, labels, changed, old, new, not _calibrating(saved, graph, changed, chosen=chosen)[1])


def update_calibrators(
    saved: SavedRun, graph: Graph, fresh: Labels, *, chosen: bool = True, say: Say = to_stderr
) -> Recalibrated:
    """Returns a run with its detector, and calibrators fitted again on its labels and others.

    Args:
        saved: the run.
        graph: its own graph, of a scoring the scored one (`SavedRun.graph_to_label`).
        fresh: the labels that change; those of test nodes do not calibrate.
        chosen: whether nodes that get a first label were chosen for it; then these do not calibrate.
        say: takes notes.

    Raises:
        InputError: none of the labels calibrates, one is to be forgotten, or the run has no calibrator to fit again.
    """
    if saved.settings.positive_only:
        raise InputError(NO_UPDATE)
    graph = graph.to("cpu")
    changed = changes_of(graph, fresh)
    used, fault = _calibrating(saved, graph, changed, chosen=chosen)
    if fault:
        raise InputError(fault)
    kept = Labels(changed.nodes[used], changed.y[used], changed.parts[used])
    return recalibrated(*saved.with_fresh_labels(graph, kept), say, with_own=True)


def _calibrating(saved: SavedRun, graph: Graph, changed: Labels, *, chosen: bool) -> tuple[Tensor, str]:
    """Returns which changed labels fit the calibrators again, bool, and why they cannot; as `update_calibrators`."""
    assert graph.y is not None
    used = ~torch.isin(changed.nodes, saved.split.test.cpu())
    if chosen:
        used &= (graph.y[changed.nodes] >= 0) & (not saved.is_scoring)
    if bool((changed.y < 0).any()):
        return used, "update: --calibrator-only keeps the detector, which has seen the labels to forget: leave it out"
    if not bool(used.any()):
        return used, (
            "update: --calibrator-only has nothing to fit: labels of test nodes and chosen ones, such as a queue's, do "
            "not calibrate. Leave --calibrator-only out, or pass --drawn random if the new labels are a random sample"
        )
    return used, without_calibrators(saved)
