"""Several detectors as one: probabilities averaged with weights that leave-one-out predictions have earned.

A linear opinion pool p(v) = sum_j w_j p_j(v), its weights by stacking of predictive distributions (Yao, Vehtari,
Simpson and Gelman 2018): they maximise the log likelihood of the labels under the members' predictions without each
label. Every member speaks through an affine map of its logits fitted on the same predictions, so that a boaster and a
doubter count alike; the map has a prior, or six labels that happen to lie apart would make a member all but sure.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor

from calirare.calibration import PriorPlattCalibrator, effective_shares
from calirare.graph import Graph
from calirare.models.columns import HopColumns
from calirare.models.crossfit import class_weights
from calirare.models.fitted import FoldFitted, Progress, State, Wrapper, joined, prefixed, unprefixed
from calirare.models.label_propagation import LabelPropagationFit

PSEUDO_LABELS = 4.0  # in favour of equal weights, shared among the members
TIMED = 0.02  # of the labels: the same where labels are of different times
STEPS, TOLERANCE = 500, 1e-9
SMALLEST_P = 1e-9  # a probability below it is none: its logarithm would speak louder than any label


@dataclass(frozen=True, eq=False)
class Member:
    """One detector of a mixture.

    Attributes:
        name: such as "trees".
        fitted: the detector.
        calibrator: the map its logits go through.
        weight: its share, in [0, 1].
    """

    name: str
    fitted: FoldFitted
    calibrator: PriorPlattCalibrator
    weight: float

    def probabilities(self, logits: Tensor) -> Tensor:
        """Returns its probabilities [.., k] of logits [.., k], float64; NaN where it has nothing to say."""
        flat = logits.double().reshape(-1, logits.shape[-1])
        return calibrated_probabilities(self.calibrator, flat).reshape(logits.shape)


@dataclass(frozen=True)
class FallbackScale:
    """What the others say where a member is silent, as sure as all say it together: an affine map of their average.

    The average of few doubts more, or less, than that of all, and maps behind it are fitted on labels which nearly all
    members speak of; of another graph spread labels tell nothing at all. With a the map of the others' logits of each
    label without itself and b that of all members', it is z -> b^-1(a(z)).

    Attributes:
        scale: factor of the logits, > 0.
        shift: what is added, of each class.
    """

    scale: float
    shift: tuple[float, ...]

    def __call__(self, logits: Tensor) -> Tensor:
        """Returns logarithms of probabilities, [.., k]."""
        moved = self.scale * logits + logits.new_tensor(self.shift)
        return moved.log_softmax(-1).clamp(min=math.log(SMALLEST_P))


@dataclass(frozen=True, eq=False)
class Mixture(Wrapper):
    """Detectors trained on the same labels with the same folds.

    Attributes:
        members: the detectors with their weights, which sum to 1.
        rest: of nodes that a member has nothing to say of; None: no member is ever silent.
    """

    members: tuple[Member, ...]
    rest: FallbackScale | None = None

    def weight_of(self, name: str) -> float:
        """Returns the weight of a member, 0 where there is none of that name."""
        return next((member.weight for member in self.members if member.name == name), 0.0)

    def without(self, kind: type[FoldFitted]) -> Mixture | None:
        """Returns the average of the members of other kinds, None where there is none."""
        others = tuple(m for m in self.members if not isinstance(m.fitted, kind))
        return Mixture(others) if others else None

    def without_label_memory(self) -> Mixture:
        """Returns the same for a graph of strangers: no node is known by its name, and spread labels are silent."""
        members = (
            replace(m, fitted=m.fitted.without_label_memory()) if isinstance(m.fitted, LabelPropagationFit) else m
            for m in self.members
        )
        return replace(self, members=tuple(members))

    @property
    def inner(self) -> FoldFitted:
        """See `Wrapper.inner`; the members' labels and folds are the same."""
        return self.members[0].fitted

    @property
    def sample_weights(self) -> Tensor:  # type: ignore[override]
        """Weight of each one's loss, [m]: classes weigh alike, as maps of the members say it, however they learnt."""
        return class_weights(self.targets, self.members[0].fitted.n_classes)[self.targets].float()

    @property
    def fold(self) -> Tensor:  # type: ignore[override]
        """See `FoldFitted`."""
        return self.inner.fold

    @property
    def own_logits(self) -> Tensor:  # type: ignore[override]
        """See `FoldFitted`."""
        return self.pooled([member.fitted.own_logits for member in self.members])

    @property
    def columns(self) -> HopColumns | None:
        """See `Fitted`."""
        return next((m.fitted.columns for m in self.members if m.fitted.columns is not None), None)

    def judged_by_folds(self, graph: Graph) -> Mixture:
        """See `FoldFitted.judged_by_folds`; members get the weights that they earn by these logits."""
        members = {m.name: m.fitted.judged_by_folds(graph) for m in self.members}
        return mixture_of(members, self.sample_weights, timed=graph.time is not None)

    def parts_of(self, graph: Graph | None, nodes: Tensor | None = None) -> list[Tensor | None]:
        """See `Fitted.parts_of`; those of the member with the most."""
        return max((member.fitted.parts_of(graph, nodes) for member in self.members), key=len)

    def evaluate(
        self, graph: Graph | None, nodes: Tensor | None = None, *, folds: bool = False, progress: Progress | None = None
    ) -> tuple[Tensor, ...]:
        """See `Fitted.evaluate`; members that read the same columns are evaluated at the same nodes in turn."""
        parts = [member.fitted.parts_of(graph, nodes) for member in self.members]
        found: list[list[tuple[Tensor, ...]]] = [[] for _ in self.members]
        most = max(len(each) for each in parts)
        for i in range(most):
            for member, mine, out in zip(self.members, parts, found, strict=True):
                if i < len(mine):
                    out.append(member.fitted.evaluate_part(graph, mine[i], folds=folds))
            if progress is not None and most > 1:
                progress(i + 1, most)
        return tuple(
            self.pooled([joined([part[which] for part in out]) for out in found]) for which in range(1 + folds)
        )

    def logits_at_labels(self) -> Tensor:
        """See `Fitted.logits_at_labels`."""
        return self.pooled([member.fitted.label_logits for member in self.members])

    def pooled(self, logits: list[Tensor]) -> Tensor:
        """Returns what the members' logits make together: the logarithm of their mean probability, [.., k]."""
        said = [m.probabilities(z) for m, z in zip(self.members, logits, strict=True)]
        together = pooled_probabilities(said, [m.weight for m in self.members]).clamp(min=SMALLEST_P).log()
        if self.rest is None:
            return together
        silent = torch.stack([each.isnan().any(-1) for each in said]).any(0)
        return torch.where(silent[..., None], self.rest(together), together)

    def state(self) -> State:
        """See `Fitted.state`."""
        tensors, facts = dict[str, Tensor](), []
        for i, member in enumerate(self.members):
            own, how = member.fitted.state()
            tensors |= prefixed(str(i), own)
            kind = type(member.fitted).__name__
            calibrator = member.calibrator.state()
            facts.append(
                {"name": member.name, "kind": kind, "fit": how, "weight": member.weight, "calibrator": calibrator}
            )
        rest = {} if self.rest is None else {"rest": {"scale": self.rest.scale, "shift": list(self.rest.shift)}}
        return tensors, {"members": facts} | rest

    @classmethod
    def from_state(cls, tensors: dict[str, Tensor], facts: dict[str, Any]) -> Self:
        """Returns what `state` was taken from."""
        members = []
        for i, each in enumerate(facts["members"]):
            fitted = cls.kinds[each["kind"]].from_state(unprefixed(str(i), tensors), each["fit"]).folded
            if fitted is None:
                raise LookupError(f"a {each['kind']} is no member of an average")
            calibrator = PriorPlattCalibrator.from_state(each["calibrator"])
            members.append(Member(each["name"], fitted, calibrator, float(each["weight"])))
        rest = facts.get("rest")  # a run of an earlier release has none
        kept = None if rest is None else FallbackScale(float(rest["scale"]), tuple(map(float, rest["shift"])))
        return cls(tuple(_sharing_columns(members)), kept)


def calibrated_probabilities(mapping: PriorPlattCalibrator, logits: Tensor) -> Tensor:
    """Returns probabilities [n, k] of a member's logits [n, k] through its map, NaN where these are."""
    with_logits = ~logits.isnan().any(1)
    if bool(with_logits.all()):
        return mapping.transform(logits)
    out = torch.full_like(logits, torch.nan)
    out[with_logits] = mapping.transform(logits[with_logits])
    return out


def pooled_probabilities(said: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    """Returns the weighted mean of the members' probabilities; one that says NaN leaves its weight to the others."""
    p = torch.stack([weight * each for weight, each in zip(weights, said, strict=True)])
    silent = p.isnan()
    if not bool(silent.any()):
        return p.sum(0)
    each = p.new_tensor(list(weights)).view(-1, *[1] * (p.ndim - 1))
    return p.nan_to_num(nan=0.0).sum(0) / (each * ~silent).sum(0)


def _sharing_columns(members: list[Member]) -> Iterator[Member]:
    """Yields members read from a file, of which those that read the same columns share them again."""
    known = list[HopColumns]()

    def shared(columns: HopColumns) -> HopColumns:
        found = next((each for each in known if each.same_as(columns)), None)
        if found is None:
            known.append(columns)
        return columns if found is None else found

    for member in members:
        columns = member.fitted.columns
        yield member if columns is None else replace(member, fitted=member.fitted.reading(shared(columns)))


def stacking_weights(probabilities: Tensor, sample_weights: Tensor, pseudo_labels: float = PSEUDO_LABELS) -> Tensor:
    """Returns the weights of a mixture with the highest penalised likelihood of the labels.

    argmax over the simplex of sum_i v_i log sum_j w_j p_ij + (c / J) sum_j log w_j (Yao et al. 2018, Eq. 4, with a
    Dirichlet prior worth c labels in favour of equal weights), by expectation maximisation: concave, so that every
    start ends at the same weights.

    Args:
        probabilities: p_ij, member j's probability of label i's class without label i, [m, J], in (0, 1].
        sample_weights: v_i [m], of mean 1.
        pseudo_labels: c > 0.

    Returns:
        Weights float64 [J], which sum to 1.
    """
    p, v = probabilities.double().clamp(min=SMALLEST_P), sample_weights.double()
    n_members = p.shape[1]
    weights = torch.full((n_members,), 1 / n_members, dtype=torch.float64, device=p.device)
    for _ in range(STEPS):
        shares = weights * ((v / (p @ weights)) @ p)  # of the labels each member explains
        new = (shares + pseudo_labels / n_members) / (v.sum() + pseudo_labels)
        moved, weights = float((new - weights).abs().max()), new
        if moved < TOLERANCE:
            break
    return weights


def mixture_of(fits: dict[str, FoldFitted], sample_weights: Tensor, *, timed: bool = False) -> Mixture:
    """Returns detectors as one, their weights by stacking of their predictions without each label.

    Args:
        fits: detectors by name, on the same labels with the same folds.
        sample_weights: v_i [m], the labels' weights in the population that is asked about.
        timed: labels are of different times. What was best before may not be so later: weights are nearer to equal.
    """
    maps, said = dict[str, PriorPlattCalibrator](), []
    targets = next(iter(fits.values())).targets
    for name, fitted in fits.items():
        own = fitted.own_logits.double()
        with_logits = ~own.isnan().any(1)
        shares = effective_shares(targets, fitted.sample_weights, fitted.n_classes)
        one = PriorPlattCalibrator(target="balanced", trained_shares=shares)
        maps[name] = one.fit(own[with_logits], targets[with_logits])
        said.append(calibrated_probabilities(maps[name], own).gather(1, targets[:, None]))
    p = torch.cat(said, 1)
    # Of a label that a member has nothing to say of it says what the others do on average: it neither earns nor loses.
    p = torch.where(p.isnan(), p.nanmean(1, keepdim=True), p).nan_to_num(nan=0.5)
    prior = max(PSEUDO_LABELS, TIMED * len(targets)) if timed else PSEUDO_LABELS
    weights = stacking_weights(p, sample_weights / sample_weights.mean(), prior)
    parts = zip(fits.items(), weights.tolist(), strict=True)
    mixture = Mixture(tuple(Member(name, fitted, maps[name], weight) for (name, fitted), weight in parts))
    return replace(mixture, rest=_rest_of(mixture))


def _rest_of(mixture: Mixture) -> FallbackScale | None:
    """Returns the `FallbackScale` for members that may have no logits at a node, from out-of-fold logits."""
    others = mixture.without(LabelPropagationFit)
    if others is None or len(others.members) == len(mixture.members):
        return None
    own, targets = [m.fitted.own_logits for m in mixture.members], mixture.targets
    with_logits = ~torch.stack([z.isnan().any(1) for z in own]).any(0)
    every, alone = mixture.pooled(own), others.own_logits
    shares = effective_shares(targets, mixture.sample_weights, mixture.members[0].fitted.n_classes)
    one, all_of_them = (PriorPlattCalibrator(target="balanced", trained_shares=shares) for _ in range(2))
    one.fit(alone, targets)
    all_of_them.fit(every[with_logits], targets[with_logits])
    assert one.bias_ is not None
    assert all_of_them.bias_ is not None
    shift = (one.bias_ - all_of_them.bias_) / all_of_them.scale_
    return FallbackScale(float(one.scale_ / all_of_them.scale_), tuple(shift.tolist()))
