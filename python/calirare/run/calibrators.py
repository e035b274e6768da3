"""The maps from logits to probabilities, fitted on the labels that represent the population."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from calirare.calibration import (
    FORM_SD,
    SCAR,
    SINGLE_SLOPE,
    SINGLE_SLOPE_SD,
    TARGETS,
    AffineCalibrator,
    Calibrator,
    JackknifeCalibrator,
    PositiveOnlyCalibrator,
    Prevalence,
    PriorPlattCalibrator,
    Target,
    cross_fitted_probabilities,
    effective_shares,
    rare_among_unlabelled,
    representative_labels,
    unlabelled_share,
    with_prevalence,
)
from calirare.calibration.decisions import Labelled
from calirare.graph import Graph
from calirare.models import Fitted
from calirare.run.data import OutOfFold, Trained, TrainingData
from calirare.run.explaining import resolved_calibrate_on
from calirare.run.label_checks import leakage, why_no_sample
from calirare.run.settings import Settings

MOSTLY = 0.9  # of the odds: what is nearer to 1 goes without a word


@dataclass(frozen=True)
class Left:
    """What labels leave of the rare nodes that a prevalence stands for.

    Attributes:
        labelled: rare nodes with a label.
        stands_for: rare nodes, with a label and without.
        without: scored nodes without a label.
        odds: odds of such a node over those of all nodes with its logits.
    """

    labelled: int
    stands_for: float
    without: int
    odds: float

    @property
    def rare(self) -> float:
        """Rare nodes among those without a label."""
        return max(self.stands_for - self.labelled, 0.0)

    @property
    def share(self) -> float:
        """Their share, of half a node at least."""
        return max(self.rare, 0.5) / self.without

    @property
    def sentence(self) -> str:
        """What is left, for a user."""
        return (
            f"by the prevalence there are {self.stands_for:,.0f} rare nodes, and {self.labelled:,} of them have a "
            f"label. Expect {self.rare:,.0f} among the {self.without:,} nodes without one: counts use odds "
            f"{self.odds:.2g} times those of P(rare), which is about all nodes"
        )


@dataclass(frozen=True, eq=False)
class Calibrated:
    """What calibration ends with.

    Attributes:
        calibrators: of each target; none without calibration.
        notes: sentences a user should read.
        labelled: labels that represent the population, with P(rare) by such calibrators; None where there is none.
        leak: which column or edges give labels away, a sentence; empty where nothing does.
        no_sample: why labels are no random sample of the nodes, a sentence; empty where nothing shows it.
        left: what labels leave of the rare nodes of a given prevalence; None where it makes no difference.
    """

    calibrators: dict[Target, Calibrator] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    labelled: Labelled | None = None
    leak: str = ""
    no_sample: str = ""
    left: Left | None = None


def calibrate(data: TrainingData, settings: Settings, trained: Trained, out_of_fold: OutOfFold) -> Calibrated:
    """Returns the fitted calibrator of each target, and doubts about P(rare) of nodes without a label."""
    leak = leakage(data, settings)
    if settings.positive_only:
        found = _of_known(data, settings, trained.fitted, out_of_fold)
    elif settings.method == "ts":
        assert data.graph.y is not None
        assert data.graph.split is not None
        val = data.graph.split.val
        z, y = trained.logits[val], data.graph.y[val]
        found = Calibrated({t: AffineCalibrator(with_bias=False, target=t).fit(z, y) for t in TARGETS})
    elif settings.method != "jackknife":
        found = Calibrated()
    elif settings.calibration.map == "prior":
        found = _with_prior(data, settings, trained, out_of_fold, checks=not leak)
    else:
        found = _free(data, settings, out_of_fold)
    if settings.positive_only:  # where the known rare nodes may be all that there are, a leak looks the same
        return replace(found, no_sample=leak)
    return replace(found, leak=leak)


def _free(data: TrainingData, settings: Settings, out_of_fold: OutOfFold) -> Calibrated:
    """Returns Platt calibrators, or with few labels of the rarest class temperatures."""
    calibrators: dict[Target, Calibrator] = {}
    notes, chosen = list[str](), out_of_fold.usable(data.calibration_nodes)
    assert out_of_fold.logits is not None
    for target in TARGETS:
        fitted = JackknifeCalibrator(target=target).fit(out_of_fold.logits[chosen], data.targets[chosen])
        notes.append(fitted.note_)
        calibrators[target] = fitted
    assert data.graph.split is not None
    if not data.graph.split.val.numel():
        notes.append(
            "no validation nodes: the calibrator was fitted on the training nodes, which may not be a random sample"
        )
    return Calibrated(calibrators, tuple(notes))


def _with_prior(
    data: TrainingData, settings: Settings, trained: Trained, out_of_fold: OutOfFold, *, checks: bool
) -> Calibrated:
    """Returns Platt calibrators with the prior that undoes what training did, and what labels say of their mean."""
    fitted, k = trained.fitted, data.graph.n_classes
    assert out_of_fold.logits is not None
    known = torch.isfinite(out_of_fold.logits).all(1)
    own, targets = out_of_fold.logits[known].double(), fitted.targets[known]
    assert data.graph.split is not None
    in_train = torch.arange(known.numel(), device=known.device) < data.graph.split.train.numel()
    on = resolved_calibrate_on(settings.calibration.calibrate_on, data.graph)
    used, sampling = representative_labels(targets, in_train[known], k, calibrate_on=on)
    shares = effective_shares(fitted.targets, fitted.sample_weights, k)
    how = {"form_sd": FORM_SD}
    if fitted.folded is None:  # intervals of one network are made under affine maps
        how = {"slope": SINGLE_SLOPE, "slope_sd": SINGLE_SLOPE_SD} if k == 2 else {}
    of_target = {t: PriorPlattCalibrator(target=t, trained_shares=shares, **how) for t in TARGETS}
    for one in of_target.values():
        one.fit(own[used], targets[used], sampling=sampling)
    calibrators: dict[Target, Calibrator] = {**of_target}
    population, prevalence = of_target["population"], settings.calibration.prevalence
    if prevalence is not None:
        scored = trained.logits[data.user_graph.scored_nodes.to(trained.logits.device)]
        calibrators["population"] = with_prevalence(population, scored.double(), prevalence)
        left, note = rare_left(data.graph, prevalence), f"mean P(rare) is {prevalence:g}, the given prevalence"
        return Calibrated(calibrators, (note, "" if left is None else left.sentence), left=left)
    labelled, at = None, sampling.representative
    if k == 2 and bool(at.any()) and len(targets[used]) > 1:
        p = cross_fitted_probabilities(population, own[used], targets[used], sampling=sampling)
        rare = targets[used][at] == 1
        labelled = Labelled(p[at, 1].cpu().numpy(), rare.cpu().numpy())
    no_sample, drawn = "", at.to(own.device)
    if checks and k == 2:
        nodes = data.nodes.to(own.device)[known][used][drawn]
        no_sample = why_no_sample(data, settings, fitted, population, own[used][drawn], nodes)
    return Calibrated(calibrators, (sampling.sentence,), labelled, no_sample=no_sample)


def rare_left(graph: Graph, prevalence: float) -> Left | None:
    """Returns what is left where many of the rare nodes that a prevalence stands for have a label, else None.

    P(rare) is that of the population, nodes with a label among it. If s_c of class c have one, the odds of a node
    without are (1 - s_1) / (1 - s_0) times those of all nodes with its logits.

    Args:
        graph: the graph, its labels those of a rare class and the other.
        prevalence: proportion of the rare class among all scored nodes.
    """
    assert graph.y is not None
    labels = graph.y[graph.scored_nodes]
    n, rare, rest = len(labels), int((labels == 1).sum()), int((labels == 0).sum())
    without, stands_for = n - rare - rest, prevalence * n
    left, others = stands_for - rare, n - stands_for - rest
    if 2 * without < n or others <= 0:  # what is left would be the error of the given prevalence
        return None
    odds = left / stands_for / (others / (n - stands_for))
    return None if odds > MOSTLY else Left(rare, stands_for, without, max(odds, 0.0))


def _of_known(data: TrainingData, settings: Settings, fitted: Fitted, out_of_fold: OutOfFold) -> Calibrated:
    """Returns the calibrators where rare nodes alone are known; no label can tell whether their mean is right."""
    logits, prevalence = out_of_fold.retrained, settings.calibration.prevalence
    assert logits is not None
    has_model = torch.isfinite(logits).all(1)
    own, known = logits[has_model].double(), fitted.targets[has_model]
    n_known, n_nodes = int((fitted.targets == 1).sum()), data.graph.scored_nodes.numel()
    if prevalence is None:
        scores = own[:, 1] - own[:, 0]
        share = rare_among_unlabelled(scores[known == 1], scores[known == 0])
    else:
        number = unlabelled_share(prevalence, n_known, n_nodes)
        share = Prevalence(number, number, number, "as given")
    sentence = assumption(share, n_known, n_nodes)
    shares = effective_shares(fitted.targets, fitted.sample_weights, 2)
    fit = PositiveOnlyCalibrator.fit_known
    found = {t: fit(own, known, share, target=t, trained_shares=shares, sentence=sentence) for t in TARGETS}
    return Calibrated(dict(found), (sentence,))


def assumption(share: Prevalence, n_known: int, n_nodes: int) -> str:
    """Returns what P(rare) rests on where rare nodes alone are labelled, in one sentence.

    Args:
        share: of rare nodes among those without a label.
        n_known: number of known rare nodes.
        n_nodes: number of nodes.
    """
    rest = n_nodes - n_known
    taken, most, least = (n_known / (n_known + part * rest) for part in (share.share, share.low, share.high))
    if share.low == share.high:
        what = f"{share.share:.2%} of the nodes without a label are rare, by the given prevalence"
        return f"positive-only labels: {what}, and {SCAR}, which no label can check"
    return (
        f"positive-only labels: {SCAR} (selected completely at random), {taken:.0%} of them ({least:.0%} to "
        f"{most:.0%}). Then {share.share:.2%} ({share.low:.2%} to {share.high:.2%}) of the unlabelled nodes are rare, "
        "or many times more if the known ones are the easiest to find. Labels of random nodes would check this"
    )


def out_of_fold_logits(trained: Trained, out_of_fold: OutOfFold) -> Tensor:
    """Returns every node's logits [n, k], of drawn nodes those by models that did not learn them as not rare."""
    own, fitted = out_of_fold.retrained, trained.fitted
    assert own is not None
    drawn = (fitted.targets == 0) & torch.isfinite(own).all(1)
    out = trained.logits.clone()
    out[fitted.nodes[drawn]] = own[drawn].to(out.dtype)
    return out
