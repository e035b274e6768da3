"""Which leave-one-out method a network of the user's own gets, and with which damping: by labels it has not seen."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch

from calirare._util.arrays import brief
from calirare.curvature import with_class_zero
from calirare.leave_one_out.alo import ALO, grouped
from calirare.leave_one_out.folds import FOLDS, FoldNetworks, fold_networks
from calirare.leave_one_out.held_out import Compared, HeldOut, Retraining, compared
from calirare.leave_one_out.method import LeaveOneOutMethod, Problem
from calirare.leave_one_out.own_logits import Agreement, OwnLogits, bisect, choose_damping
from calirare.leave_one_out.tangent import Tangent
from calirare.models import ModuleFit

MARGIN = 0.02  # of correlation, by which `Tangent` must be better: it has one number more to fit


@dataclass(frozen=True, eq=False)
class Choice:
    """A method for a network, and the evidence.

    Attributes:
        method: with its damping.
        likeness: correlation of its changes with those of networks trained without folds, at the labels that are left
            out and at other nodes; None without such networks.
        agreement: of its leave-one-out loss with that of networks without folds; None without.
        networks: these, or None.
        reason: what was chosen, by what, and what it cost.
    """

    method: LeaveOneOutMethod
    likeness: tuple[float, float] | None
    agreement: Agreement | None
    networks: FoldNetworks | None
    reason: str

    __repr__ = brief


def choose_method(
    fitted: ModuleFit,
    method: LeaveOneOutMethod | None = None,
    *,
    validation: HeldOut | None = None,
    retrain: Retraining | None = None,
    folds: int = FOLDS,
    seed: int = 0,
) -> Choice:
    """Returns the method whose changes are most like those of networks trained without folds of the labels.

    `ALO` has the damping and `Tangent` the size of its changes at which leave-one-out loss is that of the labels by the
    networks without their fold. `Tangent` is taken where its correlation of changes (mean of labels and other nodes) is
    larger by .02. Without such networks `ALO` has the damping at which its loss is that of the validation labels, each
    class weighted as among the labels, and without these the weight decay.

    Args:
        fitted: the network with its labels.
        method: None: either; `ALO(damping="auto")`: that one; another one is kept, and the evidence is about it.
        validation: labels that the network was not trained on.
        retrain: see `fold_networks`.
        folds: of these; 0: none.
        seed: of these.
    """
    networks = fold_networks(fitted, retrain, folds, seed) if folds or retrain is not None else None
    auto = isinstance(method, ALO) and method.damping == "auto"
    if networks is None:
        return _by_validation(fitted, method, validation)
    cost = f"{networks.number} networks trained without a fold ({networks.how}; {networks.seconds:.0f} s)"
    if method is not None and not auto:
        return _given(fitted, method, networks, cost)
    found = [_alo(fitted, method if isinstance(method, ALO) else ALO(), networks)]
    tangent = _tangent(fitted, networks) if method is None else None
    found += [] if tangent is None else [tangent]
    best = found[0]
    if tangent is not None and sum(tangent.likeness or ()) > sum(best.likeness or ()) + 2 * MARGIN:
        best = tangent
    others = "".join(f"; {each.reason}" for each in found if each is not best)
    return replace(best, reason=f"{best.reason}{others}; by {cost}")


def _alo(fitted: ModuleFit, method: ALO, networks: FoldNetworks) -> Choice:
    """Returns `ALO` with the damping at which the losses agree."""
    start = fitted.weight_decay or 5e-4
    everyone, own = torch.ones_like(fitted.targets, dtype=torch.bool), OwnLogits(fitted.linearisation)
    weights = torch.ones_like(everyone, dtype=torch.float64)
    agreement = choose_damping(own, start, networks.logits, everyone, weights, closely=True)
    moved = grouped(
        fitted.linearisation, fitted.evaluation_field(None, networks.nodes), agreement.damping, networks.fold
    )
    like = networks.likeness(moved.own, moved.change)
    chosen = replace(method, damping=agreement.damping)
    return Choice(chosen, like, agreement, networks, f"ALO with damping {agreement.damping:.2g} ({_shown(like)})")


def _tangent(fitted: ModuleFit, networks: FoldNetworks) -> Choice | None:
    """Returns `Tangent`, its changes as large as the losses want; None where it moves against the networks."""
    found = Tangent().likeliest(fitted, networks)
    if found is None:
        return None
    plain = replace(found[0], factor=1.0)
    change = plain.run(Problem(fitted, fitted.evaluation_field(None, fitted.nodes), plain.damping or 0.0)).own.double()
    start = fitted.linearisation.differences.double()
    everyone = torch.ones_like(fitted.targets, dtype=torch.bool)
    weights = torch.ones_like(everyone, dtype=torch.float64)
    agreement = choose_damping(
        lambda divisor: with_class_zero(start + change / divisor),
        1 / found[0].factor,
        networks.logits,
        everyone,
        weights,
        targets=fitted.targets,
        closely=True,
    )
    chosen = replace(plain, factor=1 / agreement.damping)
    reason = f"Tangent with damping {plain.damping:.2g} and factor {chosen.factor:.2g} ({_shown(found[1])})"
    return Choice(chosen, found[1], agreement, networks, reason)


def _given(fitted: ModuleFit, method: LeaveOneOutMethod, networks: FoldNetworks, cost: str) -> Choice:
    """Returns the user's method with what the networks say of it."""
    if method.one_by_one:
        return Choice(method, None, None, networks, f"{method.name} as requested")
    out = method.run(Problem(fitted, fitted.evaluation_field(None, fitted.nodes), method.damping_for(fitted)[0]))
    own = with_class_zero(fitted.linearisation.differences.double() + out.own.double())
    known = torch.isfinite(own).all(1)
    weights = torch.ones_like(known, dtype=torch.float64)
    agreement = choose_damping(
        lambda _: own, out.damping, networks.logits, known, weights, targets=fitted.targets, closely=True
    )
    return Choice(method, None, agreement, networks, f"{method.name} as requested; checked by {cost}")


def _by_validation(fitted: ModuleFit, method: LeaveOneOutMethod | None, validation: HeldOut | None) -> Choice:
    """Returns the choice where no network was trained without a fold."""
    if method is not None and not (isinstance(method, ALO) and method.damping == "auto"):
        return Choice(method, None, None, None, f"{method.name} as requested")
    plain = method if isinstance(method, ALO) else ALO()
    start, own = fitted.weight_decay or 5e-4, OwnLogits(fitted.linearisation)

    def losses(damping: float) -> Compared | None:
        return None if validation is None else compared(own(damping), fitted.targets, validation)

    first = losses(start)
    if first is None:
        reason = (
            f"ALO with damping {start:.2g}, the weight decay: no labels that the network has not seen to choose it by"
        )
        return Choice(replace(plain, damping=start), None, None, None, reason)

    def gap(multiple: float) -> float:
        there = losses(multiple * start)
        return math.inf if there is None else there.loo_nll - there.held_out_nll

    damping = start * bisect(gap)
    reason = f"ALO with damping {damping:.2g}, at which its loss is that of {first.labels:,} validation labels"
    return Choice(replace(plain, damping=damping), None, None, None, reason)


def _shown(likeness: tuple[float, float]) -> str:
    return f"correlation {likeness[0]:.2f} at the labels, {likeness[1]:.2f} elsewhere"
