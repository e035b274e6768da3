"""Why labels that are taken for a random sample of the nodes can be none."""

from __future__ import annotations

import torch
from torch import Tensor

from calirare.calibration import Calibrator, Together, exchangeable, unseen
from calirare.graph import Graph, answered
from calirare.pipeline.job import Job
from calirare.training import Fitted, FoldFitted

COMPARED = 2_000  # nodes without a label that labels are compared with
MOST_COLUMNS = 1_000  # that are looked at


def why_no_sample(job: Job, fitted: Fitted, population: Calibrator, own: Tensor, nodes: Tensor) -> str:
    """Returns why labels that are taken for a random sample can be none; empty where nothing speaks against it.

    Nodes without a label are scored as labels are: of detectors with folds each by the models without one fold. Where
    the scores agree it is asked where the labels lie, in the graph and in the columns as they were given.

    Args:
        job: the job.
        fitted: the detector.
        population: its map.
        own: logits of these labels without themselves, [m, 2].
        nodes: that have them, int64 [m].
    """
    if job.settings.calibration.calibrate_on != "auto":
        return ""
    known, others = answered(job.asked), job.asked.scored_nodes.to(own.device)
    if known is not None:
        others = others[~torch.isin(others, known)]
    generator = torch.Generator().manual_seed(job.settings.seed % 2**63)
    order = torch.randperm(others.numel(), generator=generator)[:COMPARED].to(others.device)
    others = others[order].sort().values
    if not others.numel():
        return ""
    if isinstance(fitted, FoldFitted):
        folds = fitted.all_logits_of(job.graph, others)[1]
        drawn = torch.randint(len(folds), (others.numel(),), generator=generator).to(others.device)
        logits = folds[drawn, torch.arange(others.numel(), device=others.device)]
    else:
        logits = fitted.logits_of(job.graph, others)
    p, rest = (population.transform(z.double())[:, 1].cpu().numpy() for z in (own, logits))
    found = exchangeable(p, rest, alike=isinstance(fitted, FoldFitted), seed=job.settings.seed)
    scored = "" if found is None else found.sentence
    return scored or _together(job.asked, nodes, others).sentence or _unseen(job.raw or job.asked, nodes, others)


def _together(graph: Graph, nodes: Tensor, others: Tensor) -> Together:
    """Returns the ends of edges at labelled nodes and at some without a label, edges to other labels left out."""
    known = answered(graph)
    is_labelled, counts = (torch.zeros(graph.n_nodes, dtype=torch.bool, device=graph.device) for _ in range(2))
    is_labelled[nodes], counts[graph.scored_nodes] = True, True
    if known is not None:
        counts[known] = False
    counts[nodes] = True
    found = list[int]()
    for some in (nodes[:: max(1, nodes.numel() // COMPARED)], others):
        near = graph.adjacency.select_rows(some)
        ends = near.indices.long()
        ends = ends[ends != some.to(ends.device)[near.rows()]]
        found += [int(is_labelled[ends].sum()), int(counts[ends].sum())]
    return Together(*found)


def _unseen(graph: Graph, nodes: Tensor, others: Tensor) -> str:
    """Returns which column has values at nodes without a label that hardly any labelled node has; else empty."""
    if not isinstance(graph.x, Tensor) or not 0 < graph.n_features <= MOST_COLUMNS:
        return ""
    own, rest = (graph.x[some.to(graph.x.device)].double().cpu().numpy() for some in (nodes, others))
    found = [
        unseen(own[:, i], rest[:, i], named=bool(graph.columns) and graph.columns[i].kind == "categorical")
        for i in range(graph.n_features)
    ]
    doubtful = [i for i, each in enumerate(found) if each.doubtful(len(found))]
    if not doubtful:
        return ""
    at = max(doubtful, key=lambda i: found[i].beyond_chance)
    return found[at].sentence(graph.feature_names[at] if graph.feature_names else str(at))
