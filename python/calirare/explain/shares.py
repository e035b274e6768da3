"""Shares of trees and of averages, and how shares pass through a calibration map."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from calirare._util.array_files import NumpyArray
from calirare.explain.explainable_model import Shares, difference, two_columns
from calirare.models import Ensemble, TreesFit

EVEN = 1e-12  # a difference that counts as none
STEPS = 16  # of a path along which logits move together


def tree_shares(fitted: TreesFit, columns: NumpyArray, names: tuple[str, ...], logits: Tensor) -> Shares:
    """Returns what each column adds to the log-odds of trees: TreeSHAP (Lundberg et al. 2020), as LightGBM makes it.

    Of boosting the shares add up by themselves. A forest's add up to its share of the rare class, and are stretched by
    one number for each node so that they add up to its log-odds.

    Args:
        fitted: the trees.
        columns: of the nodes, float32 [n, d].
        names: of the columns.
        logits: of the nodes, float64 [n, k]; of a forest logarithms of shares.
    """
    ensemble = fitted.trees.all_labels
    if fitted.n_classes > 2:
        return _of_classes(ensemble, columns, names, logits)
    made = np.asarray(ensemble.booster.predict(columns, pred_contrib=True, num_threads=1), dtype=np.float64)
    prior = float(ensemble.prior[1])
    if ensemble.kind == "boosting":
        base = made[:, -1] + np.log(prior) - np.log1p(-prior)
        return Shares(two_columns(torch.from_numpy(base)), names, two_columns(torch.from_numpy(made[:, :-1].copy())))
    made /= ensemble.booster.num_trees()
    start = torch.from_numpy(np.clip(prior + made[:, -1], EVEN, 1 - EVEN))
    shares = Shares(start[:, None], names, torch.from_numpy(made[:, :-1].copy())[..., None])
    odds = stretched(shares, torch.logit(start)[:, None], difference(logits)[:, None])
    return Shares(pad(odds.base, (1, 0)), names, pad(odds.values, (1, 0)))


def _of_classes(ensemble: Ensemble, columns: NumpyArray, names: tuple[str, ...], logits: Tensor) -> Shares:
    """Returns what each column adds to each logit of trees of k > 2 classes, see `tree_shares`."""
    prior, n = ensemble.prior, columns.shape[0]
    if ensemble.kind == "boosting":
        made = np.asarray(ensemble.booster.predict(columns, pred_contrib=True, num_threads=1), dtype=np.float64)
        parts = torch.from_numpy(made).view(n, prior.size, -1).permute(0, 2, 1)  # [n, d + 1, k]
        return Shares(parts[:, -1] + torch.from_numpy(np.log(prior)), names, parts[:, :-1])
    boosters = [ensemble.booster_of(c) for c in range(prior.size)]
    each = [np.asarray(own.predict(columns, pred_contrib=True, num_threads=1)) / own.num_trees() for own in boosters]
    parts = torch.from_numpy(np.stack(each, 2).astype(np.float64))
    start = (parts[:, -1] + torch.from_numpy(prior)).clamp(EVEN, 1 - EVEN)
    return stretched(Shares(start, names, parts[:, :-1]), start.log(), logits)


def stretched(shares: Shares, base: Tensor, total: Tensor) -> Shares:
    """Returns shares of something that rises with what they are shares of: one number for each node times each.

    Args:
        shares: of the old quantity.
        base: the new quantities where they start, [n, q].
        total: the new quantities of the nodes, the same.
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
    first = parts[0].values
    values = first.new_zeros(first.shape[0], len(names), *first.shape[2:])
    for part in parts:
        values.index_add_(1, torch.tensor([place[name] for name in part.names]), part.values)
    return Shares(torch.stack([part.base for part in parts]).sum(0), names, values)


def completed(shares: Shares, total: Tensor) -> Shares:
    """Returns shares that add up to a total [n, q] from which rounding parts them: the larger take more."""
    off, size = total - shares.base - shares.values.sum(1), shares.values.abs()
    part = size / _not_zero(size.sum(1))[:, None]
    return Shares(shares.base, shares.names, shares.values + off[:, None] * part)


def passed_on(shares: Shares, made: Callable[[Tensor], Tensor]) -> Shares:
    """Returns shares of what is made of k quantities, by what a move of each of them brings on the way from the start.

    All quantities move together along the straight line from the base to its end (Aumann & Shapley 1974), in `STEPS`
    steps. Of each step the change is split exactly, whatever is made: the quantities move one after the other, in
    order and in reverse, and each has the mean of what its own two moves bring.

    Args:
        shares: of the k quantities, [n, f, k].
        made: makes q numbers, [.., q], of quantities [.., k]; a map of any kind, no derivative is taken.

    Returns:
        Base [n, q] and values [n, f, q]; they add up to what is made at the end.
    """
    start, end = shares.base, shares.base + shares.values.sum(1)
    moved, k = end - start, start.shape[1]
    before, brought = torch.arange(k) < torch.arange(k + 1)[:, None], list[Tensor]()  # which have moved, [k + 1, k]
    for step in range(STEPS):
        old, new = (start + at / STEPS * moved for at in (step, step + 1))
        for mask in (before, ~before.flip(0)):
            change = made(torch.where(mask[:, None], new, old)).diff(dim=0)  # [k, n, q]
            brought.append((change if mask is before else change.flip(0)) / 2)
    total = torch.stack(brought).sum(0)  # [k, n, q]
    slopes = torch.where(moved.T[:, :, None].abs() < EVEN, 0.0, total / _not_zero(moved.T)[:, :, None])
    passed = Shares(made(start), shares.names, torch.einsum("nfk,knq->nfq", shares.values, slopes))
    return completed(passed, made(end))
