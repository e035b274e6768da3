"""A saved run with labels that are new, others or forgotten: trained again, and what that changed."""

from __future__ import annotations

import torch
from torch import Tensor

from calirare._util.amounts import amount
from calirare._util.device import device_or_cpu
from calirare._util.errors import InputError
from calirare.explain import Explainer, probability
from calirare.graph import NO_PART, PARTS, Graph, Split, check_trainable
from calirare.pipeline.changes import Foreseen, Side, Updated
from calirare.pipeline.job import Report
from calirare.pipeline.stages import silent, train
from calirare.run import Labels, Outcome, SavedRun, Settings

FORESEEN, TOGETHER = 2000, 500  # nodes, those that moved most, that the closed form speaks of; of these in a pass


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
    if saved.settings.positive_only:
        raise InputError(
            "update: the run's labels are positive-only, where labels of the rest count as none: put the new ones into "
            "the data and train again (calirare train --labels positive-only; with labels of both classes without it)"
        )
    graph = graph.to("cpu")
    assert graph.y is not None
    differs = (graph.y[fresh.nodes] != fresh.y) | moves(graph, fresh)
    if not bool(differs.any()):
        raise InputError(
            "update: the labels are those of the run already, so nothing changes: name other nodes, or "
            "say train in a column split to train on nodes that were held out"
        )
    changed = Labels(fresh.nodes[differs], fresh.y[differs], fresh.parts[differs])
    table, settings, notes = placed(graph, changed, saved.settings) if chosen else (changed, saved.settings, [])
    after_graph = table.of(graph)
    check_trainable(after_graph)
    before = Side(saved.scorer.probabilities(saved.mapped(graph)), graph, saved.fit.nodes.cpu())
    device, elsewhere = device_or_cpu(settings.device)
    outcome = train(after_graph, settings.but("update", device=device), report=report or silent)
    outcome.notes += [note for note in (elsewhere, *notes) if note]
    after = Side(outcome.for_tables(), outcome.graph, outcome.fit.nodes.cpu())
    return Updated(outcome, table, changed, before, after, _foreseen(saved, graph, changed, before, outcome))


def _foreseen(saved: SavedRun, graph: Graph, changed: Labels, before: Side, outcome: Outcome) -> Foreseen | None:
    """Returns what the old run in closed form says the labels would change; None where it cannot."""
    try:
        explainer = saved.explainer(graph)
    except InputError:
        return None
    p = before.said.rare.cpu()
    moved = (outcome.for_tables().rare.cpu() - p).abs()
    nodes = torch.argsort(moved, descending=True, stable=True)[:FORESEEN]
    parts = [_effects(explainer, saved.fit.nodes.cpu(), changed, some) for some in nodes.split(TOGETHER)]
    each, together = torch.cat([part[0] for part in parts], 1), torch.cat([part[1] for part in parts])
    base, mapped = explainer.voice.log_odds(nodes), outcome.graph if outcome.mapped is None else outcome.mapped
    now = outcome.fit.logits_of(mapped, nodes.to(mapped.device)).double().cpu()
    effects = probability(base + each, explainer.subject.mapping) - p[nodes]
    moved_by = (together, now[:, 1] - now[:, 0] - base)
    return Foreseen(nodes, effects, probability(base + together, outcome.calibrators.get("population")), moved_by)


def _effects(explainer: Explainer, trained: Tensor, changed: Labels, nodes: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the change of the log-odds of nodes by each label, [b, n], and by all together, [n]."""
    voice = explainer.voice
    base = voice.log_odds(nodes)
    each = base.new_zeros(changed.nodes.numel(), nodes.numel())
    together = torch.zeros_like(base)
    places = {node: place for place, node in enumerate(trained.tolist())}
    gone = torch.tensor([node in places for node in changed.nodes.tolist()])
    if bool(gone.any()):
        sets = [torch.tensor([places[node]]) for node in changed.nodes[gone].tolist()]
        out = voice.without_labels(nodes, [*sets, torch.cat(sets)]) - base
        each[gone] += out[:-1]
        together += out[-1]
    come = changed.y >= 0
    if bool(come.any()):
        both = voice.with_each_label(nodes, changed.nodes[come])
        more = both[changed.y[come], torch.arange(int(come.sum()))] - base
        each[come] += more
        together += more.sum(0)
    return each, together


VAL = PARTS.index("val")
FEWEST = 2  # labels of each class that calibrate
NOT_RANDOM = (
    "no labels of before are a random sample, so P(rare) is calibrated on the chosen ones too: where the rare class is "
    "commoner among these than elsewhere it is too high; label some nodes drawn at random and pass --drawn random"
)


def placed(graph: Graph, changed: Labels, settings: Settings) -> tuple[Labels, Settings, list[str]]:
    """Returns labels with their parts of the split where new ones were chosen, settings that go with it, and notes.

    Chosen labels are no sample of the population. They train, and P(rare) is calibrated on validation labels alone.
    Where there are none the training labels of before become such, if they were drawn at random: they train too (method
    jackknife), but for one of each class that is missing among the chosen ones, as each must train.

    Args:
        graph: with the labels and the split of before.
        changed: the labels that change.
        settings: of the run.
    """
    after = changed.of(graph)
    before, split = graph.split, after.split
    assert before is not None
    assert split is not None
    assert after.y is not None
    fresh = split.train[~torch.isin(split.train, torch.cat([before.train, before.val]))]
    asked = settings.calibration.calibrate_on == "auto" and settings.method == "jackknife"
    if not fresh.numel() or not asked:
        return changed, settings, []
    on_val = settings.but("update", calibrate_on="val")
    if int(torch.bincount(after.y[split.val], minlength=2).min()) >= FEWEST:
        return changed, on_val, []
    moved = _sample(after.y, split, fresh)
    if moved is None or split.val.numel():
        return changed, settings, [NOT_RANDOM]
    new = "the new one is" if fresh.numel() == 1 else f"the {fresh.numel():,} new ones are"
    said = (
        f"P(rare) is calibrated on {amount(moved.numel(), 'label')} of before, which look like a random sample "
        f"and train too: {new} taken for chosen (--drawn random says that it is not so)"
    )
    more = Labels(moved.cpu(), after.y[moved].cpu(), torch.full_like(moved.cpu(), VAL))
    return more.over(changed), on_val, [said]


def _sample(y: Tensor, split: Split, fresh: Tensor) -> Tensor | None:
    """Returns the training labels of before that can calibrate; None where they are no random sample or too few."""
    old = split.train[~torch.isin(split.train, fresh)]
    counts = torch.bincount(y[old], minlength=2)
    if int(counts.min()) < FEWEST or int(counts[0]) == int(counts[1]):  # as many of each class: drawn per class
        return None
    missing = [k for k in (0, 1) if not bool((y[fresh] == k).any())]
    stay = torch.cat([old[:0], *(old[y[old] == k][:1] for k in missing)])
    return old[~torch.isin(old, stay)]


def moves(graph: Graph, labels: Labels) -> Tensor:
    """Returns which labels name another part of the split than their node has, bool [b]."""
    assert graph.split is not None
    has = torch.full_like(labels.parts, NO_PART)
    for number, part in enumerate(PARTS):
        has[torch.isin(labels.nodes, getattr(graph.split, part).cpu())] = number
    return (labels.parts != NO_PART) & (labels.parts != has)
