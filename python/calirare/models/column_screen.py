"""Which columns trees are grown on where there are tens of thousands: those that tell classes apart one by one.

Sure independence screening (Fan and Lv 2008) with Wilcoxon's statistic, on the labels that trees are grown on.
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
    strength = np.empty((len(parts), d))
    step = max(1, BLOCK // m)
    for first in range(0, d, step):
        some = slice(first, first + step)
        ranks = rankdata(columns[:, some], axis=0)
        differ = np.ptp(ranks, axis=0) > 0.25  # of a constant column 0; ranks are multiples of one half
        ranks = np.where(differ, ranks - ranks.mean(0), 0.0) / np.where(differ, ranks.std(0), 1.0)
        for own, contrast in zip(strength, contrasts, strict=True):
            own[some] = np.abs(contrast @ ranks).max(0)
    kept = np.zeros(strength.shape, dtype=bool)
    np.put_along_axis(kept, np.argsort(-strength, kind="stable")[:, :KEPT], True, axis=1)
    return list(kept)


def _contrasts(targets: NumpyArray, rows: NumpyArray) -> NumpyArray:
    """Returns what each class's mean less that of the others weighs every label, by its standard error, [k, m]."""
    classes = np.unique(targets[rows])
    out = np.zeros((len(classes), targets.size))
    for own, c in zip(out, classes, strict=True):
        of_class, others = rows[targets[rows] == c], rows[targets[rows] != c]
        scale = (1 / of_class.size + 1 / max(others.size, 1)) ** -0.5
        own[of_class], own[others] = scale / of_class.size, -scale / max(others.size, 1)
    return out
