"""Sets of classes that each node may have, with a coverage that holds within every class."""

from __future__ import annotations

import torch
from torch import Tensor

from calirare.calibration.base import check_logits


def label_sets(logits: Tensor, own_logits: Tensor, labels: Tensor, coverage: float = 0.9) -> Tensor:
    """Returns which classes each node may have: class-conditional (Mondrian) conformal sets.

    Class c is in the set of a node unless its log-odds of c are lower than those of most labels of class c by models
    that have not seen them: with m_c such labels, unless at most (1 - coverage) (m_c + 1) - 1 have lower or equal
    ones. For labels and nodes that are exchangeable within a class, and scores by models that saw neither, the true
    class is inside with probability at least `coverage`, for each class (Vovk 2012). Here nodes are scored by the model
    on all labels, so that the guarantee holds up to the difference between this model and those without a label.
    A class with too few labels, m_c < 1 / (1 - coverage) - 1, is in every set. A set may be empty.

    Args:
        logits: of the nodes, by the model on all labels, [n, k].
        own_logits: of the labels, by models without them (out of fold or leave-one-out), [m, k]; labels with a NaN are
            left out.
        labels: their classes, int64 [m].
        coverage: in (0, 1).

    Returns:
        bool [n, k].

    Raises:
        ValueError: shapes do not fit or the coverage is out of range.

    Time is O((n + m) k log m).
    """
    check_logits("label_sets", logits)
    if not 0 < coverage < 1:
        raise ValueError(f"label_sets: coverage must be in (0, 1), got {coverage}")
    if own_logits.shape != (len(labels), logits.shape[1]):
        expected = (len(labels), logits.shape[1])
        raise ValueError(f"label_sets: own_logits must be {expected}, got {tuple(own_logits.shape)}")
    scores, own = _log_odds(logits), _log_odds(own_logits)
    sets = torch.zeros_like(scores, dtype=torch.bool)
    for c in range(logits.shape[1]):
        known = own[labels == c, c]
        known = known[~known.isnan()].sort().values
        rank = torch.searchsorted(known, scores[:, c].contiguous(), right=True)
        sets[:, c] = rank + 1 > (1 - coverage) * (len(known) + 1) + 1e-9  # the 1e-9 undoes rounding
    return sets


def _log_odds(logits: Tensor) -> Tensor:
    """Returns the log-odds of each class against all others, float64 [n, k]."""
    log_p = logits.double().log_softmax(1)
    others = torch.stack([log_p.roll(-c, 1)[:, 1:].logsumexp(1) for c in range(log_p.shape[1])], 1)
    return log_p - others
