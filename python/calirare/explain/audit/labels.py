"""The audit of a run's labels: what is said of each without it, how likely it is wrong, and why."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from calirare._util.errors import InputError
from calirare.calibration import (
    CalibrateOn,
    PriorPlattCalibrator,
    Sampling,
    cross_fitted_probabilities,
    effective_shares,
    representative_labels,
)
from calirare.explain.audit.confident import confident_joint
from calirare.explain.audit.noise import label_noise
from calirare.explain.audit.reasons import company_of
from calirare.explain.audit.result import Audit
from calirare.graph import Graph
from calirare.training import Fitted

EXPLAINED = 1000  # labels, the most doubtful first, that are given a reason
AT_LEAST = 0.5  # P(wrong) from which a label is flagged
FEWEST = 10  # labels of each class


@dataclass(frozen=True, eq=False)
class Spoken:
    """What is said of labels without them.

    Attributes:
        p: calibrated probability of each given class for the population, by maps that have not seen the label, [m, k].
        scores: the log odds of the rare class before cross-fitting, which order labels as the detector does, [m].
        offsets: what the drawing of each label added to them, [m].
        share: of the population that would be given as rare.
    """

    p: Tensor
    scores: Tensor
    offsets: Tensor
    share: float


def audit_labels(
    fitted: Fitted, graph: Graph, logits: Tensor, evidence: str, on: CalibrateOn, at_least: float
) -> Audit:
    """Returns the audit of the labels that a detector was trained on.

    Args:
        fitted: the detector with its labels.
        graph: the run's own, as its detector takes it, with names of nodes and classes.
        logits: of each label by models without it, [m, k]; NaN where there is none: the label is left out.
        evidence: what these models are, in words.
        on: which labels represent the population.
        at_least: P(wrong) from which a label is flagged, in (0, 1].

    Raises:
        InputError: there are not two classes, too few labels of one, or the threshold is out of range.
    """
    if not 0 < at_least <= 1:
        raise InputError(f"audit: the P(wrong) from which a label is flagged must be in (0, 1], got {at_least}")
    known = torch.isfinite(logits).all(1)
    given, own = fitted.targets[known], logits[known].double()
    _check(graph, given)
    spoken = _spoken(fitted, graph, own, known, on)
    rare = (given == 1).cpu().numpy()
    noise = label_noise(spoken.scores.cpu().numpy(), rare, spoken.offsets.cpu().numpy(), spoken.share)
    order = np.argsort(-noise.p_wrong, kind="stable")
    places = torch.from_numpy(order[:EXPLAINED].copy())
    company = company_of(fitted, graph, fitted.targets, known.nonzero().flatten().cpu()[places].to(known.device))
    return Audit(
        nodes=fitted.nodes[known].cpu().numpy(),
        node_names=None if graph.node_names is None else np.asarray(graph.node_names),
        class_names=graph.class_names,
        given=given.cpu().numpy(),
        p_given=spoken.p.gather(1, given[:, None])[:, 0].cpu().numpy(),
        noise=noise,
        counted=confident_joint(spoken.p, given).cpu().numpy(),
        order=order,
        company=company,
        at_least=at_least,
        evidence=evidence,
    )


def _check(graph: Graph, given: Tensor) -> None:
    if graph.n_classes != 2:
        raise InputError(
            f"audit: needs two classes, got {graph.n_classes}: train again and say which one is rare (--minority)"
        )
    counts = torch.bincount(given, minlength=2)
    if int(counts.min()) < FEWEST:
        name = graph.class_names[int(counts.argmin())]
        raise InputError(
            f"audit: needs {FEWEST} labels of each class to tell wrong ones from unusual ones, got {int(counts.min())} "
            f"of {name!r}: train with more labels of it"
        )


def _spoken(fitted: Fitted, graph: Graph, own: Tensor, known: Tensor, on: CalibrateOn) -> Spoken:
    """Returns probabilities by maps of the population, fitted on the labels that represent it."""
    split, given = graph.split, fitted.targets[known]
    assert split is not None
    in_train = torch.isin(fitted.nodes, split.train)[known]
    used, sampling = representative_labels(given, in_train, 2, calibrate_on=on)
    shares = effective_shares(fitted.targets, fitted.sample_weights, 2)
    platt = PriorPlattCalibrator(target="population", trained_shares=shares)
    population = platt.fit(own[used], given[used], sampling=sampling)
    p = population.transform(own)
    p[used] = cross_fitted_probabilities(platt, own[used], given[used], sampling=sampling).to(p)
    logits, share = population.calibrated_logits(own), population.shares_
    return Spoken(p, logits[:, 1] - logits[:, 0], _offsets(given, used, sampling, share), float(share[1]))


def _offsets(given: Tensor, used: Tensor, sampling: Sampling, share: Tensor) -> Tensor:
    """Returns log odds that labels drawn per class have on top of the population's: their own less the population's."""
    out = torch.zeros(len(given), dtype=torch.float64, device=given.device)
    at_random = torch.zeros(len(given), dtype=torch.bool, device=given.device)
    at_random[used] = sampling.representative.to(given.device)
    out[used] = (sampling.log_rates[:, 1] - sampling.log_rates[:, 0]).to(out)
    drawn = ~at_random
    if bool(drawn.any()):
        number = torch.bincount(given[drawn], minlength=2).double().clamp(min=0.5)
        out[drawn] = (number[1] / number[0]).log() - float((share[1] / share[0]).log())
    return out
