"""Logits by models without each fold: the folds of a detector, and one step away from a network."""

from __future__ import annotations

import torch

from calirare.leave_one_out import logits_by_fold
from calirare.models import GcnTraining, fit, fold_network, fold_of
from tests.helpers.graphs import random_graph


def test_one_step_is_near_networks_trained_without_the_fold() -> None:
    graph = random_graph(120, 2, seed=1, x=torch.randn(120, 5, generator=torch.Generator().manual_seed(2)))
    nodes = torch.arange(60)
    detector = GcnTraining(hidden=4, n_layers=1, epochs=400, weight_decay=0.1)
    network = fit(graph, nodes, detector)
    logits, by_step = logits_by_fold(network, graph)
    assert by_step.shape == (5, 120, 2)
    assert torch.equal(logits, network.logits_of(graph))
    chosen = torch.tensor([3, 70])
    assert torch.allclose(logits_by_fold(network, graph, chosen)[1], by_step[:, chosen], atol=1e-5)
    assert int(fold_of(network.targets, 5, 0).max()) == 4

    folded = fold_network(detector, graph, network, 5)
    _, trained = logits_by_fold(folded, graph)
    own = logits[:, 1] - logits[:, 0]
    moved, expected = (z[:, :, 1] - z[:, :, 0] - own for z in (by_step, trained))
    spread = [float(each.var(0, correction=0).mean()) for each in (moved, expected)]
    assert 0.5 < spread[0] / spread[1] < 2
