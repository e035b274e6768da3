"""Each calibration label's probability from a map that has not seen it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from calirare._util.errors import InputError
from calirare.calibration.base import Calibrator, check_labelled
from calirare.calibration.sampling import Sampling

FOLDS = 10


def cross_fitted_probabilities(
    settings: Calibrator,
    logits: Tensor,
    labels: Tensor,
    *,
    sampling: Sampling | None = None,
    n_folds: int = FOLDS,
    seed: int = 0,
) -> Tensor:
    """Returns P of each label from maps fitted without its fold, in the map's population, float64 [m, k].

    What a reliability figure, a check or a proved threshold should be made of where every label calibrates. Folds are
    drawn without regard to classes: with equal numbers per class in each, every fold's share would agree with the
    others' by construction.

    Args:
        settings: a map, fitted or not, whose settings are taken; it is not changed.
        logits: of the labels without themselves, [m, k].
        labels: int64 [m].
        sampling: as of `PriorPlattCalibrator.fit`; of other maps None.
        n_folds: number of folds, 2 to m; fewer labels than that are left out one by one.
        seed: of the folds.

    Raises:
        InputError: there are fewer than 2 labels, or fewer than 2 folds.
        TypeError: logits or labels are no tensors, or of another dtype.
        ValueError: their shapes do not fit, or a number is out of range.
    """
    check_labelled("cross_fitted_probabilities", logits, labels)
    m = len(labels)
    if m < 2 or n_folds < 2:
        raise InputError(f"cross_fitted_probabilities: needs 2 labels and 2 folds, got {m} and {n_folds}")
    order = torch.from_numpy(np.random.default_rng(seed).permutation(m)).to(labels.device)
    out = torch.empty_like(logits, dtype=torch.float64)
    for held in order.tensor_split(min(n_folds, m)):
        kept = torch.ones(m, dtype=torch.bool, device=labels.device)
        kept[held] = False
        more: dict[str, Any] = {} if sampling is None else {"sampling": sampling.select(kept)}
        fitted = type(settings)(**settings.get_params()).fit(logits[kept], labels[kept], **more)
        out[held] = fitted.predict_proba(logits[held].double())
    return out
