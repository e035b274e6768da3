"""Where labels of an update stand in the split: chosen ones train, a random sample of before calibrates."""

from __future__ import annotations

import torch
from torch import Tensor

from calirare.graph import NO_PART, PARTS, Graph, Split
from calirare.run import Labels, Settings

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
    more = Labels(moved.cpu(), after.y[moved].cpu(), torch.full_like(moved.cpu(), VAL))
    return more.over(changed), on_val, []


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
