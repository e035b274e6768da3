"""The leave-one-out models of a detector that was trained without each fold of its labels: CV+ (Barber et al. 2021)."""

from __future__ import annotations

from typing import Any

import torch

from calirare.curvature import logit_differences
from calirare.leave_one_out.result import Diagnostics, LooResult
from calirare.training import FoldFitted

NAME = "cross-fitting"


def from_folds(fitted: FoldFitted, field: Any) -> LooResult:
    """Returns what leaving out each label's fold does to the logits: label i's model is the one without its fold.

    The interval of CV+ with these models keeps the jackknife+'s promise up to a term in 1 / K (Barber et al. 2021,
    "Predictive inference with the jackknife+", Theorem 4).

    Args:
        fitted: the detector with its folds.
        field: its evaluation field of the nodes v.

    Returns:
        Changes with one model per fold; leverages are unknown, there is no damping.
    """
    labels = fitted.label_logits
    start = logit_differences(fitted.logits_at(field))
    without = torch.stack([logit_differences(z) for z in fitted.logits_without_folds(field)], 2)  # [n, k - 1, K]
    own = logit_differences(fitted.own_logits) - logit_differences(labels).double()
    unknown = torch.full((labels.shape[0],), torch.nan, dtype=torch.float64, device=labels.device)
    facts = Diagnostics(NAME, "folds", 0.0)
    return LooResult(
        (without - start[:, :, None]).to(labels.dtype),
        own.to(labels.dtype),
        unknown,
        0.0,
        fitted.fold,
        facts,
        field.nodes,
    )
