"""How labels were sampled: which of them inform about class frequencies, and which only about the slope."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from calirare._util.arrays import brief
from calirare._util.errors import InputError

ABSENT = -700.0  # log of the proportion of a class that a draw left out: exp of it is 0 next to any other


@dataclass(frozen=True, eq=False)
class Sampling:
    """Where each label of a calibration sample came from.

    Attributes:
        representative: whether the label was drawn without regard to its class, bool [m], on the CPU; else it is of a
            draw with numbers fixed per class, such as 20 of each.
        sentence: what was assumed, for the user.
    """

    representative: Tensor
    sentence: str = ""

    __repr__ = brief

    @classmethod
    def at_random(cls, m: int) -> Sampling:
        """Returns the sampling of m labels that were drawn without regard to their classes."""
        return cls(torch.ones(m, dtype=torch.bool))

    def select(self, chosen: Tensor) -> Sampling:
        """Returns the sampling of some of the labels, given as bool [m] or int64 [c]."""
        return Sampling(self.representative[chosen.cpu()], self.sentence)

    def offsets(self, labels: Tensor, n_classes: int) -> Tensor:
        """Returns what sampling adds to each label's log-odds, float64 [m, k].

        A draw with fixed numbers m_c of class c sees P(y = c) = m_c / m whatever the population is, so log m_c stands
        there in place of the population's log-share.
        """
        out = labels.new_zeros(len(labels), n_classes, dtype=torch.float64)
        member = ~self.representative.to(labels.device)
        number = torch.bincount(labels[member], minlength=n_classes).double()
        out[member] = (number / number.sum()).log().clamp(min=ABSENT)
        return out


CalibrateOn = Literal["auto", "val", "all", "random"]
CALIBRATE_ON: tuple[CalibrateOn, ...] = ("auto", "val", "all", "random")
LEVEL = 0.05  # of the test that training and validation labels have the same class shares


def representative_labels(
    labels: Tensor, in_train: Tensor, n_classes: int, *, calibrate_on: CalibrateOn = "auto"
) -> tuple[Tensor, Sampling]:
    """Returns which labels calibrate, and how they were sampled.

    Validation labels represent the population. Training labels do where they are exchangeable with the rest: there are
    no validation labels and classes differ in number, or class frequencies agree with those of the validation labels
    (exact or chi-squared test at 5 %). Training labels with the same number in every class, or whose frequencies
    disagree, were drawn per class: they inform the slope only.

    Args:
        labels: of the labelled nodes, int64 [m].
        in_train: which of them are training nodes, bool [m]; the others are validation nodes.
        n_classes: k.
        calibrate_on: "auto": as above; "val": validation labels only; "all": every label is taken to represent the
            population; "random": as "auto", but labels drawn per class are left out, their slope too.

    Returns:
        Which labels to calibrate on, bool [m], and the sampling of those.

    Raises:
        InputError: there is no such label.
    """
    if calibrate_on not in CALIBRATE_ON:
        raise InputError(f"calibrate_on must be one of {', '.join(CALIBRATE_ON)}, got {calibrate_on!r}")
    counts = torch.stack([torch.bincount(labels[part], minlength=n_classes) for part in (in_train, ~in_train)])
    used, drawn, why = _roles(counts, in_train, calibrate_on)
    if not bool(used.any()):
        raise InputError(
            f"calibrate_on={calibrate_on}: there is no such label: take auto or all, or add labels drawn at random"
        )
    return used, Sampling(~(in_train.cpu() & drawn), why).select(used)


def effective_shares(labels: Tensor, sample_weights: Tensor | None, n_classes: int) -> list[float]:
    """Returns the share of each class in a training loss: what a network learns to take for the classes' frequency.

    A class without a training label counts as half a label of mean weight, as in Jeffreys' prior.

    Args:
        labels: of the training nodes, int64 [m].
        sample_weights: their weights in the loss [m]; None: all alike.
        n_classes: k.
    """
    weights = labels.new_ones(len(labels), dtype=torch.float64) if sample_weights is None else sample_weights.double()
    sums = weights.new_zeros(n_classes).index_add(0, labels, weights)
    sums = torch.where(sums > 0, sums, weights.mean() / 2)
    return (sums / sums.sum()).tolist()


def _roles(counts: Tensor, in_train: Tensor, calibrate_on: CalibrateOn) -> tuple[Tensor, bool, str]:
    """Returns which labels calibrate, whether the training labels were drawn per class, and a sentence."""
    train, val = int(counts[0].sum()), int(counts[1].sum())
    every = torch.ones_like(in_train)
    if calibrate_on == "all":
        return every, False, f"all {train + val} labels are taken for a random sample (calibrate_on all)"
    if calibrate_on == "val":
        return ~in_train, False, f"{val} validation labels are taken for a random sample (calibrate_on val)"
    drawn, why = _drawn_per_class(counts)
    if not train:
        return every, False, f"{val} validation labels are taken for a random sample"
    if not drawn:
        return every, False, f"all {train + val} labels are taken for a random sample: {why}"
    if calibrate_on == "random":
        return (
            ~in_train,
            True,
            f"{val} validation labels are taken for a random sample; training labels are left out: {why}",
        )
    if not val:
        remedy = "label some nodes at random"
        if counts.shape[1] == 2:
            said = f"no label shows the base rate: pass it with --prevalence, or {remedy}"
        else:
            said = f"no label shows the base rate, so P assumes equally common classes: {remedy}"
        return every, True, f"{said}; the {train} training labels were sampled per class: {why}"
    said = f"the base rate comes from the {val} validation labels; the {train} training labels only sharpen P"
    return every, True, f"{said}: {why}"


def _drawn_per_class(counts: Tensor) -> tuple[bool, str]:
    """Returns whether training labels, [2, k] counts of both parts, were drawn with numbers per class, and why."""
    train, val = counts[0], counts[1]
    present = train[train > 0]
    if len(present) > 1 and int(present.min()) == int(present.max()) > 1:
        return True, f"training labels have the same number in every class, {int(present[0])}"
    if not int(val.sum()):
        return False, "there are no validation labels, and classes have different numbers of training labels"
    p = _same_shares(counts)
    if p < LEVEL:
        return True, f"their class proportions differ from those of the validation labels (p = {p:.2g})"
    return False, f"training and validation labels have the same class proportions (p = {p:.2g})"


def _same_shares(counts: Tensor) -> float:
    """Returns the p-value that both rows of counts [2, k] have the same shares."""
    from scipy.stats import chi2_contingency, fisher_exact

    table = counts[:, counts.sum(0) > 0].cpu().numpy()
    if table.shape[1] < 2:
        return 1.0
    return float(fisher_exact(table).pvalue if table.shape[1] == 2 else chi2_contingency(table).pvalue)
