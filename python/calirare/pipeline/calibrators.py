"""The maps from logits to probabilities, fitted on the labels that represent the population."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from calirare._util.errors import InputError
from calirare.calibration import (
    FORM_SD,
    NO_DOUBT,
    SCAR,
    SINGLE_SLOPE,
    SINGLE_SLOPE_SD,
    TARGETS,
    AffineCalibrator,
    Calibrator,
    Doubt,
    JackknifeCalibrator,
    PositiveOnlyCalibrator,
    Prevalence,
    PriorPlattCalibrator,
    Sampling,
    Target,
    check_known,
    cross_fitted_probabilities,
    effective_shares,
    rare_among_unlabelled,
    representative_labels,
    unlabelled_share,
    with_prevalence,
)
from calirare.calibration.decisions import Labelled
from calirare.graph import Graph, with_sampled_negatives
from calirare.metrics import PopulationCheck, population_check
from calirare.pipeline.job import Job, LeftOutLabels
from calirare.pipeline.no_sample import doubt_of, leak
from calirare.run import Settings, resolved_calibrate_on
from calirare.training import Fitted

MOSTLY = 0.9  # of the odds: what is nearer to 1 goes without a word
ROUNDED = 0.05  # of the nodes that a prevalence stands for: what its last digit may be off by


@dataclass(frozen=True, eq=False)
class Maps:
    """What calibration ends with.

    Attributes:
        maps: of each target; none without calibration.
        notes: sentences a user should read.
        check: mean P(rare) over the observed share, by maps without each label; None where labels cannot tell.
        labelled: labels that represent the population, with P(rare) by such maps; None where there is none.
        doubt: what else speaks against P(rare) of nodes without a label, see `doubt_of`.
    """

    maps: dict[Target, Calibrator] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    check: PopulationCheck | None = None
    labelled: Labelled | None = None
    doubt: Doubt = NO_DOUBT


def calibrate(job: Job, fitted: Fitted, logits: Tensor, loo_logits: Tensor) -> Maps:
    """Returns the fitted map for each target.

    Args:
        job: the job.
        fitted: the detector.
        logits: of every node [n, k].
        loo_logits: of the labels without themselves, [m, k].
    """
    split, labels = job.graph.split, job.graph.y
    assert split is not None
    assert labels is not None
    if job.settings.method == "ts":
        z = logits[split.val]
        found = Maps({t: AffineCalibrator(with_bias=False, target=t).fit(z, labels[split.val]) for t in TARGETS})
    elif job.settings.method != "jackknife":
        found = Maps()
    elif job.settings.calibration.map == "platt":
        found = _free(job, loo_logits)
    else:
        return _with_prior(job, fitted, logits, loo_logits)
    return _doubted(job, found)


def _doubted(job: Job, maps: Maps) -> Maps:
    """Returns maps with what gives labels away, of two classes.

    Where rare nodes alone are known, it looks the same where they are all of them: that is no more than a doubt.
    """
    doubt = leak(job) if job.graph.n_classes == 2 else NO_DOUBT
    if doubt.sentence and job.settings.positive_only:
        doubt = replace(doubt, verdict="caution")
    return replace(maps, notes=(*maps.notes, doubt.sentence), doubt=doubt)


def _free(job: Job, loo_logits: Tensor) -> Maps:
    """Returns Platt maps, or with few labels of the rarest class temperatures."""
    maps: dict[Target, Calibrator] = {}
    notes, chosen = list[str](), job.calibration_nodes
    assert job.graph.y is not None
    assert job.graph.split is not None
    targets = job.graph.y[job.nodes][chosen]
    for target in TARGETS:
        sharpen = job.settings.calibration.sharpen and target == "balanced"
        fitted = JackknifeCalibrator(target=target, sharpen=sharpen).fit(loo_logits[chosen], targets)
        notes.append(fitted.note_)
        if fitted.note_ and sharpen:
            notes.append("sharpen changed nothing: a temperature has no sharpness of its own")
        maps[target] = fitted
    if job.graph.split.val.numel() == 0:
        notes.append(
            "no validation nodes: the map was fitted on the training nodes, which may not represent the population"
        )
    return Maps(maps, tuple(notes))


def _with_prior(job: Job, fitted: Fitted, logits: Tensor, loo_logits: Tensor) -> Maps:
    """Returns Platt maps with the prior that undoes what training did, and what labels say of their mean."""
    known = torch.isfinite(loo_logits).all(1)
    own, targets = loo_logits[known].double(), fitted.targets[known]
    used, sampling = _sample(job, known, targets)
    k = job.graph.n_classes
    shares = effective_shares(fitted.targets, fitted.sample_weights, k)
    maps: dict[Target, Calibrator] = {}
    how = {"form_sd": FORM_SD}
    if fitted.folded is None:  # intervals of one network are made under affine maps
        how = {"slope": SINGLE_SLOPE, "slope_sd": SINGLE_SLOPE_SD} if k == 2 else {}
    for target in TARGETS:
        one = PriorPlattCalibrator(target=target, trained_shares=shares, **how)
        maps[target] = one.fit(own[used], targets[used], sampling=sampling)
    told = job.settings.calibration.prevalence
    if told is not None:
        scored = logits[job.user_graph.scored_nodes.to(logits.device)]
        maps["population"] = with_prevalence(_prior_map(maps["population"]), scored.double(), told)
        notes = (f"mean P(rare) is {told:g}, the prevalence that was said", remaining_rare_note(job.graph, told))
        return _doubted(job, Maps(maps, notes))
    check, labelled, at = None, None, sampling.representative
    if k == 2 and bool(at.any()) and len(targets[used]) > 1:
        p = cross_fitted_probabilities(_prior_map(maps["population"]), own[used], targets[used], sampling=sampling)
        rare = targets[used][at] == 1
        check, labelled = population_check(rare.long(), p[at, 1]), Labelled(p[at, 1].cpu().numpy(), rare.cpu().numpy())
    drawn = at.to(own.device)
    nodes = job.nodes.to(own.device)[known][used][drawn]
    doubt = doubt_of(job, fitted, maps["population"], own[used][drawn], nodes) if k == 2 else NO_DOUBT
    check = None if check is None else check._replace(doubt=doubt.sentence, at_best=doubt.verdict)
    return Maps(maps, (sampling.sentence, doubt.sentence), check, labelled, doubt)


def check_prevalence(graph: Graph, prevalence: float | None) -> None:
    """Checks that a prevalence that was said leaves room for the labels of both classes.

    Raises:
        InputError: more nodes have a label of a class than there should be.
    """
    if prevalence is None or graph.y is None:
        return
    labels = graph.y[graph.scored_nodes]
    for k, share in ((1, prevalence), (0, 1 - prevalence)):
        have, most = int((labels == k).sum()), share * len(labels)
        if have > most * (1 + ROUNDED):
            raise InputError(
                f"prevalence must leave room for the labels, but {prevalence:g} of {len(labels):,} scored nodes makes "
                f"{most:,.0f} of class {graph.class_names[k]!r} and {have:,} have its label: give the share among all "
                "scored nodes, or leave it out"
            )


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


def rare_left(graph: Graph, prevalence: float | None) -> Left | None:
    """Returns what is left where many of the rare nodes that a prevalence stands for have a label, else None.

    P(rare) is that of the population, nodes with a label among it. If s_c of class c have one, the odds of a node
    without are (1 - s_1) / (1 - s_0) times those of all nodes with its logits.

    Args:
        graph: the graph, its labels those of a rare class and the rest.
        prevalence: share of the rare class among all scored nodes; None: it was not said.
    """
    if prevalence is None:
        return None
    assert graph.y is not None
    labels = graph.y[graph.scored_nodes]
    n, rare, rest = len(labels), int((labels == 1).sum()), int((labels == 0).sum())
    without, stands_for = n - rare - rest, prevalence * n
    left, others = stands_for - rare, n - stands_for - rest
    if 2 * without < n or others <= 0:  # what is left would be the error of the prevalence that was said
        return None
    odds = left / stands_for / (others / (n - stands_for))
    return None if odds > MOSTLY else Left(rare, stands_for, without, max(odds, 0.0))


def remaining_rare_note(graph: Graph, prevalence: float) -> str:
    """Returns a note on what is left, see `rare_left`, else ""."""
    left = rare_left(graph, prevalence)
    if left is None:
        return ""
    return (
        f"{left.labelled:,} of the {left.stands_for:,.0f} rare nodes that the prevalence stands for have a label: "
        f"P(rare) is that of all nodes, and the odds of those without a label are {left.odds:.2g} times as high: "
        f"expect {left.rare:,.0f} rare ones among these {left.without:,}, by which hits and misses are counted"
    )


def _sample(job: Job, known: Tensor, targets: Tensor) -> tuple[Tensor, Sampling]:
    """Returns which labels calibrate, and how they were drawn."""
    split, graph = job.graph.split, job.graph
    assert split is not None
    in_train = (torch.arange(known.numel(), device=known.device) < split.train.numel())[known]
    on = resolved_calibrate_on(job.settings.calibration.calibrate_on, graph)
    return representative_labels(targets, in_train, graph.n_classes, calibrate_on=on)


def _prior_map(calibrator: Calibrator) -> PriorPlattCalibrator:
    assert isinstance(calibrator, PriorPlattCalibrator)
    return calibrator


def with_known(graph: Graph, settings: Settings) -> Graph:
    """Returns the graph that a detector is trained on, checked; see `with_sampled_negatives`.

    Raises:
        InputError: known rare nodes are too few, or more than the prevalence leaves room for.
    """
    assert graph.split is not None
    n_known, told = graph.split.train.numel(), settings.calibration.prevalence
    if told is None:
        check_known(n_known)
    else:
        unlabelled_share(told, n_known, graph.scored_nodes.numel())
    return with_sampled_negatives(graph, settings.seed)


def unseen_logits(left_out: LeftOutLabels) -> Tensor:
    """Returns each label's logits without itself, [m, 2], by retraining without its fold where there was one.

    The closed form of a network that has learnt its labels by heart leaves some of each label in: of a known rare node
    too high, of a drawn one too low, and the share of rare nodes among those without a label would be too low.
    """
    return left_out.logits if left_out.held_out is None else left_out.held_out


def calibrate_known(job: Job, fitted: Fitted, left_out: LeftOutLabels) -> Maps:
    """Returns the maps of P(rare) for each target; no label can tell whether its mean is right.

    Args:
        job: the job.
        fitted: the detector, trained on known rare nodes and drawn ones.
        left_out: the logits of both without themselves.

    Raises:
        InputError: the share of rare nodes among those without a label cannot be told.
    """
    loo_logits = unseen_logits(left_out)
    made = torch.isfinite(loo_logits).all(1)
    own, known = loo_logits[made].double(), fitted.targets[made]
    scores, told = own[:, 1] - own[:, 0], job.settings.calibration.prevalence
    n_known, n_nodes = int((fitted.targets == 1).sum()), job.graph.scored_nodes.numel()
    if told is None:
        share = rare_among_unlabelled(scores[known == 1], scores[known == 0])
    else:
        number = unlabelled_share(told, n_known, n_nodes)
        share = Prevalence(number, number, number, "as given")
    sentence = assumption(share, n_known, n_nodes)
    shares = effective_shares(fitted.targets, fitted.sample_weights, 2)
    fit = PositiveOnlyCalibrator.fit_known
    maps = {t: fit(own, known, share, target=t, trained_shares=shares, sentence=sentence) for t in TARGETS}
    return _doubted(job, Maps(dict(maps), (sentence,)))


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
        what = f"{share.share:.2%} of the nodes without a label are rare, by the prevalence that was said"
        return f"positive labels alone: {what}, and {SCAR}, which no label can check"
    return (
        f"positive labels alone: {SCAR} (selected completely at random), {taken:.0%} of them ({least:.0%} to "
        f"{most:.0%}), so that {share.share:.2%} ({share.low:.2%} to {share.high:.2%}) of the nodes without a label "
        "are rare, fewer where even the likeliest are of both classes, and more, even many times, where the easiest to "
        "find are known; no label checks this, some drawn at random would"
    )


def out_of_fold_logits(job: Job, fitted: Fitted, logits: Tensor, left_out: LeftOutLabels) -> Tensor:
    """Returns every node's logits [n, k], of drawn nodes those by models that did not learn them as the rest.

    Args:
        job: the job; where every label is known the logits stay as they are.
        fitted: the detector.
        logits: of every node [n, k].
        left_out: the logits of the labels without themselves.
    """
    if not job.settings.positive_only:
        return logits
    own = unseen_logits(left_out)
    drawn = (fitted.targets == 0) & torch.isfinite(own).all(1)
    out = logits.clone()
    out[fitted.nodes[drawn]] = own[drawn].to(logits.dtype)
    return out
