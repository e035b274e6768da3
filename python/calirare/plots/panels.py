"""What a reliability diagram shows side by side: titles, what happened, and its probability."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from calirare._util.arrays import Array
from calirare.metrics.inputs import class_members, confidence_and_correct, read, refuse_multilabel


class Panel(NamedTuple):
    """One panel; a plain tuple of the same order does as well.

    Attributes:
        title: the line above it.
        y_true: whether it happened, [n] of 0 and 1.
        p: with what probability, [n] in [0, 1].
        weights: sample weights [n] >= 0, or None.
    """

    title: str
    y_true: Array
    p: Array
    weights: Array | None = None


def confidence_panel(
    title: str, y_true: Array, p: Array, *, cls: int | None = None, weights: Array | None = None
) -> Panel:
    """Returns a panel that asks whether the predicted class is right as often as its probability says.

    `y_true` is int [n], `p` [n, C] with rows that sum to one, or [n] = P(class 1); `cls` keeps only samples of this
    true class (the view of `metrics.class_ace`). ValueError for a wrong shape or range, or where no sample has that
    class.
    """
    name = "confidence_panel"
    data = refuse_multilabel(name, read(name, y_true, p, weights))
    confidence, correct = confidence_and_correct(data)
    members = torch.ones_like(correct, dtype=torch.bool) if cls is None else class_members(name, data, cls)
    weights = None if data.weights is None else data.weights[members]
    return Panel(title, correct[members], confidence[members].detach(), weights)


def class_panels(
    y_true: Array,
    p: Array,
    *,
    class_names: Sequence[str] | None = None,
    weights: Array | None = None,
) -> list[Panel]:
    """Returns one panel per class, or label: does the class occur as often as its probability says?

    Takes what `metrics.ece` does ([n] = P(class 1): one panel, for class 1). The titles are `class_names`, or "class
    0", ..; ValueError where their number is wrong, too.
    """
    data = read("class_panels", y_true, p, weights)
    if data.kind == "binary":
        columns, hits, numbers = data.probabilities[:, None], data.labels[:, None] == 1, [1]
    else:
        columns, hits, numbers = data.probabilities, data.one_hot(), list(range(data.n_classes))
    names = [f"class {k}" for k in numbers] if class_names is None else list(class_names)
    if len(names) != len(numbers):
        raise ValueError(f"class_panels: class_names must hold {len(numbers)} names, got {len(names)}")
    return [Panel(name, hits[:, i], columns[:, i].detach(), data.weights) for i, name in enumerate(names)]
