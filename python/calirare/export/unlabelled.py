"""A run without the labels around a node, which no export holds: the average of the rest, map and threshold anew."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from calirare._util.amounts import amount
from calirare._util.errors import InputError
from calirare.calibration import (
    Calibrator,
    PriorPlattCalibrator,
    Sampling,
    Target,
    cross_fitted_probabilities,
    representative_labels,
)
from calirare.calibration.decisions import Labelled
from calirare.models import Mixture, SpreadingFit
from calirare.run import Scorer
from calirare.training import Fitted, FoldFitted

MOST_SPREADING = 0.5  # weight of spread labels in an average that is exported without them


def without_labels(scorer: Scorer) -> tuple[Scorer, str]:
    """Returns what an export holds of a run, and what to say of it: nothing where that is all of it.

    Map and threshold are made as the run made them, of the logits of its labels without themselves; labels that
    represent the population stand for its nodes. A budget's threshold stays, and a map of a prevalence or fresh labels.

    Raises:
        InputError: the labels around a node say so much that without them it would be another detector, or labels
            cannot prove what the decision asks for.
    """
    weight = _spread_weight(scorer.fit)
    if not weight:
        return scorer, ""
    if weight > MOST_SPREADING:
        raise InputError(
            f"export: in this run the labels around a node have weight {weight:.2f}, and an export holds no labels: "
            "score with `calirare predict`, or train one detector (--model hops, gcn, trees or forest) and export it"
        )
    assert isinstance(scorer.fit, Mixture)
    spoken = [member for member in scorer.fit.members if not isinstance(member.fitted, SpreadingFit)]
    rest = Mixture(tuple(replace(member, weight=member.weight / (1 - weight)) for member in spoken))
    left, said = replace(scorer, fit=rest), f"the labels around a node, of weight {weight:.2f} in the run, are left out"
    prior = all(isinstance(each, PriorPlattCalibrator) for each in scorer.calibrators.values())
    told = scorer.settings.positive_only or scorer.settings.calibration.prevalence is not None
    if told or scorer.anew or not prior:
        return left, f"{said}; map and threshold stay those that were fitted with them"
    labels, old = _Labels.of(left), scorer.calibrators
    p = labels.probabilities(old)
    threshold = labels.threshold(p, scorer)
    anew = replace(left, calibrators=labels.maps(old), threshold=threshold)
    before = _Labels.of(scorer)
    return anew, (
        f"{said}, and the map is fitted anew on {amount(len(labels.targets), 'label')} left out: their log loss is "
        f"{labels.loss(p):.4f}, with them {before.loss(before.probabilities(old)):.4f}; the threshold is "
        f"{threshold:.6g}, with them {scorer.threshold:.6g}"
    )


def _spread_weight(fit: Fitted) -> float:
    """Returns the weight that the labels around a node have in an average, 0 where there are none."""
    members = fit.members if isinstance(fit, Mixture) else ()
    return sum(member.weight for member in members if isinstance(member.fitted, SpreadingFit))


@dataclass(frozen=True, eq=False)
class _Labels:
    """Labels that maps are fitted on, as a run chose them.

    Attributes:
        own: logits of each without itself, float64 [m, 2].
        targets: their classes, int64 [m].
        sampling: how they were drawn.
    """

    own: Tensor
    targets: Tensor
    sampling: Sampling

    @classmethod
    def of(cls, scorer: Scorer) -> _Labels:
        """Returns those of a run's detector."""
        assert isinstance(scorer.fit, FoldFitted)
        every = scorer.fit.own_logits
        known = torch.isfinite(every).all(1)
        own, targets = every[known].double(), scorer.fit.targets[known]
        in_val = scorer.calibration_nodes
        in_train = torch.ones_like(known) if in_val is None else ~in_val.to(known.device)
        on = scorer.settings.calibration.calibrate_on
        used, sampling = representative_labels(targets, in_train[known], 2, calibrate_on=on)
        return cls(own[used], targets[used], sampling)

    def maps(self, old: dict[Target, Calibrator]) -> dict[Target, Calibrator]:
        """Returns maps like others, fitted on the labels."""
        likes = {target: PriorPlattCalibrator(**_prior(each).get_params()) for target, each in old.items()}
        return {target: each.fit(self.own, self.targets, sampling=self.sampling) for target, each in likes.items()}

    def probabilities(self, old: dict[Target, Calibrator]) -> Tensor:
        """Returns each label's probabilities by maps of the population without it, float64 [m, 2]."""
        return cross_fitted_probabilities(_prior(old["population"]), self.own, self.targets, sampling=self.sampling)

    def loss(self, p: Tensor) -> float:
        """Returns the mean log loss of the labels that represent the population, of all where none does."""
        at = self.sampling.representative.to(p.device)
        at = at if bool(at.any()) else torch.ones_like(at)
        return float(F.nll_loss(p[at].log(), self.targets[at]))

    def threshold(self, p: Tensor, scorer: Scorer) -> float:
        """Returns the threshold of a run's decision, the labels that represent the population in the nodes' place."""
        how, at = scorer.settings.decision, self.sampling.representative.to(p.device)
        if how.decide == "budget" or not bool(at.any()):
            return scorer.threshold
        rare = (self.targets[at] == 1).cpu().numpy()
        return how.rule.threshold(p[at, 1].cpu().numpy(), Labelled(p[at, 1].cpu().numpy(), rare))


def _prior(fitted: Calibrator) -> PriorPlattCalibrator:
    assert isinstance(fitted, PriorPlattCalibrator)
    return fitted
