"""Checks of a leave-one-out result by labels that a network has not seen: validation nodes, and retraining in folds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from calirare._util.arrays import brief
from calirare._util.errors import InputError
from calirare.models import Fitted, FittedNetwork, fold_of, node_labels

Retraining = Callable[[Tensor], nn.Module]
VALIDATION, FOLDED = "validation labels", "labels by networks trained without their fold"
FAR, NEAR = 0.5, 0.8  # ratio of the two losses below which the result is refused, and doubted
SURE = 2.0  # standard errors of their difference that it must be beyond


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Labelled nodes that the network was not trained on.

    Attributes:
        nodes: int64 [v].
        logits: theirs, [v, k].
        targets: their classes, int64 [v].
        what: they are called.
    """

    nodes: Tensor
    logits: Tensor
    targets: Tensor
    what: str = VALIDATION

    __repr__ = brief


@dataclass(frozen=True)
class Compared:
    """Mean leave-one-out loss of labels, and loss of held-out ones weighted to the same class frequencies.

    Attributes:
        loo_nll: over the labels whose class is held out too.
        held_out_nll: of the held-out labels, each class weighted as among those.
        error: standard error of the difference.
        labels: number of held-out labels.
        what: these are called.
    """

    loo_nll: float
    held_out_nll: float
    error: float
    labels: int
    what: str = VALIDATION

    @property
    def verdict(self) -> tuple[str, str] | None:
        """Verdict and reason where the losses differ, or may by a factor of two; None where they agree."""
        gap = abs(self.held_out_nll - self.loo_nll)
        low, high = sorted((self.loo_nll, self.held_out_nll))
        if not gap > SURE * self.error or low > NEAR * high:
            if gap + SURE * self.error <= FAR * high:
                return None
            return "caution", (
                f"{self.labels:,} {self.what} cannot tell whether leave-one-out loss {self.loo_nll:.3f} is right: "
                f"theirs is {self.held_out_nll:.3f}, and the standard error of the difference {self.error:.3f}"
            )
        side = "overfitted" if self.loo_nll < self.held_out_nll else "worse without a label than on unseen nodes"
        reason = (
            f"leave-one-out loss {self.loo_nll:.3f} against {self.held_out_nll:.3f} of {self.labels:,} "
            f"{self.what} (difference {gap:.3f}, standard error {self.error:.3f}): {side}"
        )
        return ("do not trust" if low < FAR * high else "caution"), reason


def validation_of(fitted: Fitted, data: Any) -> HeldOut | None:
    """Returns the labelled validation nodes that did not train, of the network's own or else of the graph; or None.

    Args:
        fitted: the detector with its labels.
        data: the graph, a `Data` of PyTorch Geometric, or None.
    """
    unseen = getattr(fitted, "unseen", None)
    if unseen is None:
        known = None if data is None else node_labels("validation", data)
        if known is None or known.y is None or known.val is None:
            return None
        val, y = known.val.to(fitted.nodes.device), known.y.to(fitted.nodes.device)
        nodes = val[(y[val] >= 0) & ~torch.isin(val, fitted.nodes)]
        unseen = nodes, y[nodes]
    nodes, targets = unseen
    if not nodes.numel() or int(targets.max()) >= fitted.n_classes:
        return None
    with torch.no_grad():
        logits = fitted.logits_of(data if fitted.needs_graph else None, nodes)
    return HeldOut(nodes, logits, targets)


def compared(own_logits: Tensor, targets: Tensor, held: HeldOut) -> Compared | None:
    """Returns both losses; None where no class is among both, or fewer than two labels of them.

    Args:
        own_logits: each label's leave-one-out logits, finite, [m, k].
        targets: their classes, int64 [m].
        held: held-out labels.
    """
    k = own_logits.shape[1]
    counts = [torch.bincount(each, minlength=k).double() for each in (targets, held.targets)]
    both = (counts[0] > 0) & (counts[1] > 0)
    ours, theirs = both[targets], both[held.targets]
    if int(ours.sum()) < 2 or int(theirs.sum()) < 2:
        return None
    loo = F.cross_entropy(own_logits[ours].double(), targets[ours], reduction="none")
    other = F.cross_entropy(held.logits[theirs].double(), held.targets[theirs], reduction="none")
    shares = counts[0] / counts[1].clamp(min=1)
    weights = shares[held.targets[theirs]]
    weights = weights / weights.sum()
    mean = float(weights @ other)
    spread = (weights.square() @ (other - mean).square()) + loo.var() / len(loo)
    return Compared(float(loo.mean()), mean, float(spread.sqrt()), int(theirs.sum()), held.what)


def retrained_modules(
    fitted: FittedNetwork, retrain: Retraining, folds: int, seed: int = 0
) -> Iterator[tuple[Tensor, nn.Module]]:
    """Yields which labels a fold holds out, bool [m], and the network trained without them."""
    m = fitted.nodes.numel()
    if not 2 <= folds <= m:
        raise InputError(f"retrain: folds must be from 2 to {m}, the number of labels, got {folds}")
    fold = fold_of(fitted.targets, folds, seed)
    for number in range(folds):
        held = fold == number
        yield held, retrain(fitted.nodes[~held])
