"""Where labels of an update stand in the split: new ones that were chosen train, others calibrate."""

from __future__ import annotations

import torch
from torch import Tensor

from calirare._util.amounts import amount
from calirare._util.errors import InputError
from calirare.graph import PARTS, Graph, Split
from calirare.graph.labelled import NO_PART
from calirare.run.data_settings import Labels
from calirare.run.settings import Settings

VAL = PARTS.index("val")


FEWEST = 2  # labels of each class that calibrate


NOT_RANDOM = (
    "none of the old labels is a random sample, so {p} on the new, chosen ones too. It is too high for {a} class that "
    "is more common there. Label random nodes and pass --drawn random"
)


CALIBRATED = {False: "P(rare) is calibrated", True: "probabilities are calibrated"}  # by whether of many classes


def changes_of(graph: Graph, fresh: Labels) -> Labels:
    """Returns the labels that differ from a graph's, or that name another part of its split.

    Raises:
        InputError: there is none.
    """
    assert graph.y is not None
    differs = (graph.y[fresh.nodes] != fresh.y) | moves(graph, fresh)
    if not bool(differs.any()):
        raise InputError(
            "update: the run has these labels already, so nothing changes. Name other nodes, or write train into a "
            "column split to train on nodes that were held out"
        )
    return Labels(fresh.nodes[differs], fresh.y[differs], fresh.parts[differs])


def assign_parts(
    graph: Graph, changed: Labels, settings: Settings, *, chosen: bool = True
) -> tuple[Labels, Settings, list[str]]:
    """Returns labels with their parts of the split where new ones were chosen, settings that go with it, and notes.

    Chosen labels are no sample of the population. They train, and validation labels alone calibrate.
    Where there are none the training labels of before become such, if they were drawn at random: they train too (method
    jackknife), but for one of each class that is missing among the chosen ones, as each must train.

    Args:
        graph: with the labels and the split of before.
        changed: the labels that change.
        settings: of the run.
        chosen: whether new ones were chosen; else they calibrate where labels do at all.
    """
    if not chosen:
        return _counted(graph, changed, settings)
    after = changed.of(graph)
    before, split = graph.split, after.split
    assert before is not None
    assert split is not None
    assert after.y is not None
    fresh = split.train[~torch.isin(split.train, torch.cat([before.train, before.val]))]
    assert graph.y is not None
    refilled = _trains_again(after.y, split, graph.y[before.train].unique().tolist())
    if refilled is not None:
        alone = refilled.nodes.numel() == split.val.numel()
        said = f"moved from validation to training, where too few labels are left: {refilled.nodes.numel():,}"
        return refilled.over(changed), settings.but("update", calibrate_on="auto") if alone else settings, [said]
    asked = settings.calibration.calibrate_on == "auto" and settings.method == "jackknife"
    if not fresh.numel() or not asked:
        return changed, settings, []
    on_val = settings.but("update", calibrate_on="val")
    k, many = graph.n_classes, settings.data.task == "classes"
    if _tells(torch.bincount(after.y[split.val], minlength=k)):
        return changed, on_val, []
    moved = _sample(after.y, split, fresh, k)
    if moved is None or split.val.numel():
        return changed, settings, [NOT_RANDOM.format(p=CALIBRATED[many], a="a" if many else "the rare")]
    new = "the new one is" if fresh.numel() == 1 else f"the {fresh.numel():,} new ones are"
    said = (
        f"{CALIBRATED[many]} on {amount(moved.numel(), 'old label')}, which look like a random sample; "
        f"{new} treated as chosen, not random (--drawn random: they are random)"
    )
    more = Labels(moved.cpu(), after.y[moved].cpu(), torch.full_like(moved.cpu(), VAL))
    return more.over(changed), on_val, [said]


def _counted(graph: Graph, changed: Labels, settings: Settings) -> tuple[Labels, Settings, list[str]]:
    """Returns the same where new labels are a random sample: they calibrate too where validation labels alone do."""
    before, after = graph.split, changed.of(graph).split
    assert before is not None
    assert after is not None
    held = torch.cat([before.train, before.val, before.test])
    fresh = torch.isin(changed.nodes, after.train.cpu()) & ~torch.isin(changed.nodes, held.cpu())
    n, asked = int((fresh & (changed.parts == NO_PART)).sum()), settings.calibration.calibrate_on == "val"
    if not n or not asked or settings.method != "jackknife":
        return changed, settings, []
    parts = changed.parts.masked_fill(fresh & (changed.parts == NO_PART), VAL)
    said = (
        f"{amount(n, 'new random label')} calibrate and train, like the run's validation labels (calibrate_on val). "
        "Write train into a column split for labels that should only train"
    )
    return Labels(changed.nodes, changed.y, parts), settings, [said]


def _trains_again(y: Tensor, split: Split, trained: list[int]) -> Labels | None:
    """Returns validation labels that train where too few others are left; None where they are not needed.

    All of them where no other is left, as after chosen labels were forgotten; else one of each class that has trained
    and has no label to train left.
    """
    lost = [c for c in trained if bool((y[split.val] == c).any()) and not bool((y[split.train] == c).any())]
    if not lost:
        return None
    first = torch.cat([split.val[y[split.val] == c][:1] for c in lost])
    nodes = (first if split.train.numel() else split.val).cpu()
    return Labels(nodes, y[nodes].cpu(), torch.full_like(nodes, PARTS.index("train")))


def _tells(counts: Tensor) -> bool:
    """Returns whether numbers of labels calibrate: `FEWEST` of each of two classes, of many of two at the least."""
    return int((counts >= FEWEST).sum()) >= 2


def _sample(y: Tensor, split: Split, fresh: Tensor, k: int) -> Tensor | None:
    """Returns the training labels of before that can calibrate; None where they are no random sample or too few."""
    old = split.train[~torch.isin(split.train, fresh)]
    counts = torch.bincount(y[old], minlength=k)
    here = counts[counts >= FEWEST]
    if not _tells(counts) or int(here.min()) == int(here.max()):  # as many of each class: drawn per class
        return None
    old = old[(counts >= FEWEST)[y[old]]]  # of many classes a tiny one trains alone
    missing = [c for c in range(k) if not bool((y[fresh] == c).any())]
    stay = torch.cat([old[:0], *(old[y[old] == c][:1] for c in missing)])
    return old[~torch.isin(old, stay)]


def moves(graph: Graph, labels: Labels) -> Tensor:
    """Returns which labels name another part of the split than their node has, bool [b]; "unknown" is in none."""
    assert graph.split is not None
    has = torch.full_like(labels.parts, NO_PART)
    for number, part in enumerate(PARTS):
        has[torch.isin(labels.nodes, getattr(graph.split, part).cpu())] = number
    return (labels.y >= 0) & (labels.parts != NO_PART) & (labels.parts != has)
