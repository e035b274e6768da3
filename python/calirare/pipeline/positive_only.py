"""Maps and logits of a run whose only labels are known rare nodes: nodes that were drawn stand for the rest."""

from __future__ import annotations

import torch
from torch import Tensor

from calirare.calibration import (
    SCAR,
    TARGETS,
    PositiveOnlyCalibrator,
    Prevalence,
    check_known,
    effective_shares,
    rare_among_unlabelled,
    unlabelled_share,
)
from calirare.graph import Graph, with_drawn_rest
from calirare.pipeline.job import Job, LeftOutLabels
from calirare.pipeline.maps import Maps
from calirare.run import Settings
from calirare.training import Fitted


def with_known(graph: Graph, settings: Settings) -> Graph:
    """Returns the graph that a detector is trained on, see `with_drawn_rest`; nothing is trained on what cannot work.

    Raises:
        InputError: known rare nodes are too few, or more than the prevalence leaves room for.
    """
    assert graph.split is not None
    n_known, told = graph.split.train.numel(), settings.calibration.prevalence
    if told is None:
        check_known(n_known)
    else:
        unlabelled_share(told, n_known, graph.n_nodes)
    return with_drawn_rest(graph, settings.seed)


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
    n_known = int((fitted.targets == 1).sum())
    if told is None:
        share = rare_among_unlabelled(scores[known == 1], scores[known == 0])
    else:
        number = unlabelled_share(told, n_known, job.graph.n_nodes)
        share = Prevalence(number, number, number, "as given")
    sentence = assumption(share, n_known, job.graph.n_nodes)
    shares = effective_shares(fitted.targets, fitted.sample_weights, 2)
    fit = PositiveOnlyCalibrator.fit_known
    maps = {t: fit(own, known, share, target=t, trained_shares=shares, sentence=sentence) for t in TARGETS}
    return Maps(dict(maps), (sentence,))


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
        "are rare, fewer where even the likeliest are of both classes; no label checks this, some drawn at random would"
    )


def unlearnt(job: Job, fitted: Fitted, logits: Tensor, left_out: LeftOutLabels) -> Tensor:
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
