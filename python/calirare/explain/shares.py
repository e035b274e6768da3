"""Shares of trees and of averages, and how shares pass through a calibration map."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from calirare._util.array_files import NumpyArray
from calirare.explain.voice import Shares
from calirare.models import TreesFit

EVEN = 1e-12  # a difference that counts as none


def tree_shares(fitted: TreesFit, columns: NumpyArray, names: tuple[str, ...], log_odds: Tensor) -> Shares:
    """Returns what each column adds to the log-odds of trees: TreeSHAP (Lundberg et al. 2020), as LightGBM makes it.

    Of boosting the shares add up by themselves. A forest's add up to its share of the rare class, and are stretched by
    one number for each node so that they add up to its log-odds.

    Args:
        fitted: trees of two classes.
        columns: of the nodes, float32 [n, d].
        names: of the columns.
        log_odds: of the nodes, float64 [n].
    """
    ensemble = fitted.trees.all_labels
    booster = ensemble.boosters[0]
    made = np.asarray(booster.predict(columns, pred_contrib=True, num_threads=1), dtype=np.float64)
    prior = float(ensemble.prior[1])
    if ensemble.kind == "boosting":
        base = made[:, -1] + np.log(prior) - np.log1p(-prior)
        return Shares(torch.from_numpy(base), names, torch.from_numpy(made[:, :-1].copy()))
    made /= booster.num_trees()
    start = torch.from_numpy(np.clip(prior + made[:, -1], EVEN, 1 - EVEN))
    shares = Shares(start, names, torch.from_numpy(made[:, :-1].copy()))
    return stretched(shares, torch.logit(start), log_odds)


def stretched(shares: Shares, base: Tensor, total: Tensor) -> Shares:
    """Returns shares of something that rises with what they are shares of: one number for each node times each.

    Args:
        shares: of the old quantity.
        base: the new quantity where it starts, [n].
        total: the new quantity of the nodes, [n].
    """
    moved = shares.values.sum(1)
    factor = torch.where(moved.abs() < EVEN, torch.zeros_like(moved), (total - base) / _not_zero(moved))
    return Shares(base, shares.names, shares.values * factor[:, None])


def _not_zero(x: Tensor) -> Tensor:
    return torch.where(x.abs() < EVEN, torch.ones_like(x), x)


def added(parts: Sequence[Shares]) -> Shares:
    """Returns the sum of shares of several quantities; columns of one name are one column."""
    names = tuple(dict.fromkeys(name for part in parts for name in part.names))
    place = {name: i for i, name in enumerate(names)}
    values = parts[0].values.new_zeros(parts[0].values.shape[0], len(names))
    for part in parts:
        values.index_add_(1, torch.tensor([place[name] for name in part.names]), part.values)
    return Shares(torch.stack([part.base for part in parts]).sum(0), names, values)
