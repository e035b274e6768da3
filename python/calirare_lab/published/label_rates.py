"""The paper's label rates 30 and 40 on public splits."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from calirare._util.errors import InputError
from calirare.graph import PARTS, Split
from calirare.graph.splits import class_in_words, draw_per_class, wanted_per_class


def raise_label_rate(
    split: Split, original_y: Tensor, label_rate: int, seed: int = 0, *, class_names: tuple[str, ...] = ()
) -> Split:
    """Returns the split with random training nodes added until every class that occurs has `label_rate` of them.

    The paper's label rates 30 and 40 on the public splits. Validation and test nodes stay as they are, and only
    labelled nodes outside the split are drawn.

    Args:
        split: the split to enlarge.
        original_y: int64 [n], classes 0 to k - 1 before merging, -1 for a node without a label.
        label_rate: training nodes per class that are wanted.
        seed: of numpy's default generator, >= 0.
        class_names: names of the k classes, for messages.

    Returns:
        The larger split; `split` itself where every class already has exactly `label_rate`.

    Raises:
        InputError: a class already has more training nodes, or too few nodes are left.
    """
    y = original_y.cpu().numpy()
    train = split.train.cpu().numpy()
    want = wanted_per_class(y, label_rate)
    have = np.bincount(y[train], minlength=len(want))
    if (have > label_rate).any():
        k = int(np.argmax(have > label_rate))
        raise InputError(
            f"raise_label_rate: label_rate must be at least what the split has, got {label_rate}, but "
            f"{class_in_words(k, class_names)} has {int(have[k])}: take split='random' (command line: --split random)"
        )
    if (have == want).all():
        return split
    free = y >= 0
    for part in PARTS:
        free[getattr(split, part).cpu().numpy()] = False
    added = draw_per_class(y, free, want - have, label_rate, np.random.default_rng(seed), class_names)
    name = f"{split.name} with random nodes added (label_rate={label_rate}, seed={seed})"
    return Split(torch.from_numpy(np.concatenate([train, added])), split.val.cpu(), split.test.cpu(), name)
