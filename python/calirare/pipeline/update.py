"""A saved run with labels that are new, others or forgotten: trained again, and what that changed."""

from __future__ import annotations

import torch
from torch import Tensor

from calirare._util.errors import InputError
from calirare.explain import probability
from calirare.graph import NO_PART, PARTS, Graph, check_trainable
from calirare.pipeline.changes import Foreseen, Side, Updated
from calirare.pipeline.job import Report
from calirare.pipeline.stages import silent, train
from calirare.run import Labels, Outcome, SavedRun

TRAIN, VAL = PARTS.index("train"), PARTS.index("val")
FORESEEN = 20_000_000  # changed labels times nodes whose effects are worked out; of more the nodes are the likeliest
SPARSE = "the run has no labels left that were drawn at random: P(rare) is as common as the chosen labels make it"


def update(
    saved: SavedRun, graph: Graph, fresh: Labels, *, chosen: bool = True, report: Report | None = None
) -> Updated:
    """Returns a run trained again with some labels in the place of its own, from scratch and with its settings.

    Args:
        saved: the run, of two classes.
        graph: its own graph (`SavedRun.graph`).
        fresh: the labels that change; unknown ones are forgotten.
        chosen: whether nodes that get a first label were chosen for it, by their P(rare) or `Outcome.next_labels`; then
            P(rare) is calibrated on the labels of before alone, where these were a random sample.
        report: called as stages proceed.

    Raises:
        InputError: no label changes, or the labels that are left cannot train a detector.
    """
    assert graph.y is not None
    differs = (graph.y.cpu()[fresh.nodes] != fresh.y) | _moves(graph, fresh)
    if not bool(differs.any()):
        raise InputError(
            f"update: the {fresh.nodes.numel():,} labels are those of the run already, so nothing changes: name other "
            "nodes, or say train in a column split to train on nodes that were held out"
        )
    changed = Labels(fresh.nodes[differs], fresh.y[differs], fresh.parts[differs])
    placed, notes = _placed(graph, changed, chosen=chosen)
    after_graph, settings = placed.of(graph), saved.settings
    check_trainable(after_graph)
    if placed.nodes.numel() > changed.nodes.numel() and settings.calibration.calibrate_on == "auto":
        settings = settings.but("update", calibrate_on="val")
    before = Side(saved.scorer.probabilities(saved.mapped(graph)), graph, saved.fit.nodes.cpu())
    outcome = train(after_graph, settings, report=report or silent)
    outcome.notes += notes
    after = Side(outcome.for_tables(), outcome.graph, outcome.fit.nodes.cpu())
    return Updated(outcome, placed, changed, before, after, _foreseen(saved, graph, changed, before, outcome))


def _moves(graph: Graph, fresh: Labels) -> Tensor:
    """Returns which labels name another part of the split than their node has, bool [b]."""
    assert graph.split is not None
    has = torch.full_like(fresh.parts, NO_PART)
    for number, part in enumerate(PARTS):
        has[torch.isin(fresh.nodes, getattr(graph.split, part).cpu())] = number
    return (fresh.parts != NO_PART) & (fresh.parts != has)


def _placed(graph: Graph, changed: Labels, *, chosen: bool) -> tuple[Labels, list[str]]:
    """Returns the labels with their parts of the split, and notes.

    Labels that were chosen train; those of before, where they were a random sample and trained, become validation
    labels, which say how common the rare class is and train too (method jackknife).
    """
    split = graph.split
    assert split is not None
    assert graph.y is not None
    after = changed.of(graph)
    assert after.split is not None
    assert after.y is not None
    known = torch.cat([split.train, split.val]).cpu()
    new = torch.isin(changed.nodes, after.split.train.cpu()) & ~torch.isin(changed.nodes, known)
    if not (chosen and bool(new.any())) or split.val.numel():
        return changed, []
    old = after.split.train[~torch.isin(after.split.train.cpu(), changed.nodes[new])]
    counts = torch.bincount(after.y[old], minlength=2)
    if int(counts.min()) < 2 or int(counts[0]) == int(counts[1]):
        return changed, [SPARSE]
    have = after.y[changed.nodes[new].to(old.device)]
    stay = [old[after.y[old] == k][:1] for k in (0, 1) if not bool((have == k).any())]
    moved = old[~torch.isin(old, torch.cat(stay))] if stay else old
    moved = moved[~torch.isin(moved, changed.nodes.to(moved.device))].cpu()
    parts = torch.where(changed.y >= 0, changed.parts, NO_PART)
    in_old = (parts == NO_PART) & (changed.y >= 0) & ~new & torch.isin(changed.nodes, split.train.cpu())
    more = Labels(moved, graph.y.cpu()[moved], torch.full_like(moved, VAL))
    return Labels(changed.nodes, changed.y, torch.where(in_old, VAL, parts)).over(more), []


def _foreseen(saved: SavedRun, graph: Graph, changed: Labels, before: Side, outcome: Outcome) -> Foreseen | None:
    """Returns what the old run in closed form says the labels would change; None where it cannot."""
    try:
        explainer = saved.explainer(graph)
    except InputError:
        return None
    most = max(1, FORESEEN // max(changed.nodes.numel(), 1))
    p = before.said.rare.cpu()
    moved = (outcome.for_tables().rare.cpu() - p).abs()
    nodes = torch.argsort(moved, descending=True, stable=True)[:most]
    base, places = explainer.voice.log_odds(nodes), list[Tensor]()
    trained, gone = saved.fit.nodes.cpu(), torch.zeros(changed.nodes.numel(), nodes.numel(), dtype=torch.float64)
    taught = torch.isin(changed.nodes, trained)
    if bool(taught.any()):
        places = [(trained == node).nonzero()[0] for node in changed.nodes[taught]]
        gone[taught] = explainer.voice.without_labels(nodes, places) - base
    come = torch.zeros_like(gone)
    given = changed.y >= 0
    if bool(given.any()):
        both = explainer.voice.with_each_label(nodes, changed.nodes[given])
        come[given] = both[changed.y[given], torch.arange(int(given.sum()))] - base
    each = gone + come
    together = base + each.sum(0)
    if not bool(given.any()):
        together = explainer.voice.without_labels(nodes, [torch.cat(places)])[0]
    mapped = outcome.graph if outcome.mapped is None else outcome.mapped
    effects = probability(base + each, explainer.subject.mapping) - p[nodes]
    now, fitted = outcome.fit.logits_of(mapped, nodes).double(), outcome.calibrators
    moved_by = (together - base, now[:, 1] - now[:, 0] - base)
    return Foreseen(nodes, effects, probability(together, fitted.get("population")), moved_by)
