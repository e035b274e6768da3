"""The judge of explanations: what it says of a graph without some edges, its curves, and which edges are planted."""

from __future__ import annotations

import dataclasses

import numpy as np
import torch

import calirare
from calirare.explain import difference
from calirare.graph import Graph
from tests.helpers.tasks import rare_task

# Sums of at most a few hundred numbers.
FLOAT32, FLOAT64 = (300 * torch.finfo(dtype).eps for dtype in (torch.float32, torch.float64))


def without(graph: Graph, edges: torch.Tensor) -> Graph:
    """Returns a graph without some undirected edges, [b, 2]."""
    a, n = graph.adjacency, graph.n_nodes
    rows, columns = a.rows(), a.indices.long()
    gone = torch.cat([edges[:, 0] * n + edges[:, 1], edges[:, 1] * n + edges[:, 0]])
    kept = ~torch.isin(rows * n + columns, gone)
    smaller = type(a).from_coo(rows[kept], columns[kept], a.values[kept], (n, n))
    return dataclasses.replace(graph, adjacency=smaller)


def test_the_judge_says_what_the_run_says_of_the_graph_without_these_edges(bench):
    graph = rare_task()
    outcome = calirare.train(graph, model="gcn", seed=0)
    taken, judge = outcome.mapped, bench("explaining.judge").Judge(outcome)
    field = judge.field(node := 20)
    kept = torch.from_numpy(np.random.default_rng(0).random((4, len(field.ends))) < 0.6)
    kept[0] = True
    truth = torch.cat(
        [difference(outcome.fit.logits_of(without(taken, field.edges[~some]), torch.tensor([node]))) for some in kept]
    )
    assert (judge.log_odds(field, kept) - truth).abs().max() <= FLOAT32 * (1 + truth.abs().max())
    assert truth[1:].sub(truth[0]).abs().min() > 100 * FLOAT32, "no edge counts: nothing is tested"
    model, single = outcome.explainer.model, ~torch.eye(len(field.ends), dtype=torch.bool)
    ours = difference(model.without_edges(node, field.edges)) - difference(model.logits(torch.tensor([node])))
    judged = judge.log_odds(field, single) - judge.log_odds(field, kept[:1])
    assert (judged - ours).abs().max() <= FLOAT64 * (1 + truth.abs().max())
