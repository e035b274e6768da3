"""The audit of a run's labels: the probability of each without it, how likely it is wrong, and why."""

from __future__ import annotations

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
from calirare.explain.audit.class_noise import class_noise
from calirare.explain.audit.confident import confident_joint
from calirare.explain.audit.noise import label_noise
from calirare.explain.audit.posterior import Posterior
from calirare.explain.audit.reasons import company_of
from calirare.explain.audit.result import Audit
from calirare.graph import Graph
from calirare.models import Fitted

EXPLAINED = 1000  # labels, the most doubtful first, that are given a reason
AT_LEAST = 0.5  # P(wrong) from which a label is flagged
FEWEST = 10  # labels of each class


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
        InputError: there are too few labels of one of two classes, or of all of many, or the threshold is out of
            range.
    """
    if not 0 < at_least <= 1:
        raise InputError(f"audit: the P(wrong) from which a label is flagged must be in (0, 1], got {at_least}")
    known = torch.isfinite(logits).all(1)
    given, own = fitted.targets[known], logits[known].double()
    _check(graph, given)
    p, calibrated, offsets, shares = _judged(fitted, graph, own, known, on)
    counted = confident_joint(p, given)
    noise = _noise(calibrated, given, offsets, shares, counted)
    order = np.argsort(-noise.p_wrong, kind="stable")
    places = torch.from_numpy(order[:EXPLAINED].copy())
    company = company_of(fitted, graph, fitted.targets, known.nonzero().flatten().cpu()[places].to(known.device))
    return Audit(
        nodes=fitted.nodes[known].cpu().numpy(),
        node_names=None if graph.node_names is None else np.asarray(graph.node_names),
        class_names=graph.class_names,
        given=given.cpu().numpy(),
        other=p.scatter(1, given[:, None], -1.0).argmax(1).cpu().numpy(),
        p_given=p.gather(1, given[:, None])[:, 0].cpu().numpy(),
        noise=noise,
        counted=counted.cpu().numpy(),
        order=order,
        company=company,
        at_least=at_least,
        evidence=evidence,
    )


def _check(graph: Graph, given: Tensor) -> None:
    counts = torch.bincount(given, minlength=graph.n_classes)
    # Of two classes both are needed; of many a rare one borrows the others' rates.
    few, of = (counts.min(), "each class") if graph.n_classes == 2 else (counts.max(), "a class at least")
    if int(few) < FEWEST:
        name = graph.class_names[int((counts == few).int().argmax())]
        raise InputError(
            f"audit: needs {FEWEST} labels of {of} to tell wrong ones from unusual ones, got {int(few)} of {name!r}: "
            "train with more labels of it"
        )


def _noise(logits: Tensor, given: Tensor, offsets: Tensor, shares: Tensor, counted: Tensor) -> Posterior:
    """Returns how likely each label is wrong: by two classes' own posterior, or that of many."""
    z, labels, drawn, population = (each.cpu().numpy() for each in (logits, given, offsets, shares))
    if len(population) > 2:
        return class_noise(z, labels, drawn, counted.cpu().numpy())
    return label_noise(z[:, 1] - z[:, 0], labels == 1, drawn[:, 1] - drawn[:, 0], float(population[1]))


def _judged(
    fitted: Fitted, graph: Graph, own: Tensor, known: Tensor, on: CalibrateOn
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Returns labels as judged without them, by calibrators of the labels that represent the population."""
    split, given = graph.split, fitted.targets[known]
    assert split is not None
    in_train = torch.isin(fitted.nodes, split.train)[known]
    k = graph.n_classes
    used, sampling = representative_labels(given, in_train, k, calibrate_on=on)
    shares = effective_shares(fitted.targets, fitted.sample_weights, k)
    platt = PriorPlattCalibrator(target="population", trained_shares=shares)
    population = platt.fit(own[used], given[used], sampling=sampling)
    p = population.transform(own)
    p[used] = cross_fitted_probabilities(platt, own[used], given[used], sampling=sampling).to(p)
    logits, share = population.calibrated_logits(own), population.shares_
    return p, logits, _offsets(given, used, sampling, share), share


def _offsets(given: Tensor, used: Tensor, sampling: Sampling, share: Tensor) -> Tensor:
    """Returns what the drawing of labels multiplied P(given as each class) by, its logarithm, [m, k]."""
    k = len(share)
    out = torch.zeros(len(given), k, dtype=torch.float64, device=given.device)
    at_random = torch.zeros(len(given), dtype=torch.bool, device=given.device)
    at_random[used] = sampling.representative.to(given.device)
    drawn = ~at_random
    if bool(drawn.any()):
        number = torch.bincount(given[drawn], minlength=k).double().clamp(min=0.5)
        out[drawn] = number.log() - share.to(out).log()
    return out
