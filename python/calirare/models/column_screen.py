"""Which columns trees are grown on where there are tens of thousands: those that tell classes apart one by one.

A tree looks at every column in every leaf, and of tens of thousands, as of genes, most tell nothing: one by one those
that are kept part the classes best by ranks (sure independence screening, Fan and Lv 2008, with Wilcoxon's statistic,
which as trees do takes no notice of a column's scale). Only labels that trees are grown on are asked.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from calirare._util.array_files import NumpyArray

WIDE, KEPT = 15_000, 4_000  # columns: of more than the one as many as the other are kept
BLOCK = 4_000_000  # numbers that are ranked together


def screened(columns: NumpyArray, targets: NumpyArray, parts: Sequence[NumpyArray]) -> list[NumpyArray | None]:
    """Returns which columns each part of the labels keeps, bool [d]; None: there are few, and all are kept.

    Args:
        columns: of the labels, [m, d].
        targets: their classes, int64 [m].
        parts: places of labels, int64 [m'] each.
    """
    m, d = columns.shape
    if d <= WIDE:
        return [None] * len(parts)
    from scipy.stats import rankdata  # late: it takes most of a second to import

    contrasts = [_contrasts(targets, rows) for rows in parts]
    telling = np.empty((len(parts), d))
    step = max(1, BLOCK // m)
    for first in range(0, d, step):
        some = slice(first, first + step)
        ranks = _standard(rankdata(columns[:, some], axis=0))
        for own, contrast in zip(telling, contrasts, strict=True):
            own[some] = np.abs(contrast @ ranks).max(0)
    return [_largest(own) for own in telling]


def _contrasts(targets: NumpyArray, rows: NumpyArray) -> NumpyArray:
    """Returns what each class's mean less that of the others weighs every label, by its standard error, [k, m]."""
    classes = np.unique(targets[rows])
    out = np.zeros((len(classes), targets.size))
    for own, c in zip(out, classes, strict=True):
        of_class, others = rows[targets[rows] == c], rows[targets[rows] != c]
        scale = (1 / of_class.size + 1 / max(others.size, 1)) ** -0.5
        own[of_class], own[others] = scale / of_class.size, -scale / max(others.size, 1)
    return out


def _standard(ranks: NumpyArray) -> NumpyArray:
    """Returns ranks [m, b] with mean 0 and standard deviation 1; of a constant column 0."""
    differ = np.ptp(ranks, axis=0) > 0.25  # ranks are multiples of one half
    out: NumpyArray = np.where(differ, ranks - ranks.mean(0), 0.0) / np.where(differ, ranks.std(0), 1.0)
    return out


def _largest(telling: NumpyArray) -> NumpyArray:
    """Returns which are the `KEPT` largest, of equal ones the first, bool [d]."""
    kept = np.zeros(telling.size, dtype=bool)
    kept[np.argsort(-telling, kind="stable")[:KEPT]] = True
    return kept
