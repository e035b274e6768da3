"""Networks for leave-one-out tests, and slow independent versions of what is tested."""

from __future__ import annotations

import copy
from functools import cache

import torch
from torch import Tensor

from calirare.graph.graph import Graph
from calirare.models import GcnFit, GcnTraining
from calirare.training import minimise
from calirare_ext import GcnTape
from calirare_ext.reference import flatten, gcn, unflatten
from tests.helpers.graphs import random_graph


def dense_jacobian(tape: GcnTape) -> Tensor:
    """d (z_c - z_0)(i) / d theta [m, k - 1, p], by reverse mode through dense matrices."""

    def differences(theta: Tensor) -> Tensor:
        z = gcn(tape.field, unflatten(theta, tape.layers))
        return z[:, 1:] - z[:, :1]

    return torch.autograd.functional.jacobian(differences, flatten(tape.layers))


def words_graph(n_classes: int) -> Graph:
    """More words than nodes, some of them typical of a class: like a citation graph, easy to fit."""
    generator = torch.Generator().manual_seed(5)

    def draw(*shape: int, share: float) -> Tensor:
        return torch.rand(*shape, generator=generator) < share

    y = random_graph(150, n_classes, seed=3).y
    assert y is not None
    topic = draw(n_classes, 200, share=0.25)
    x = draw(150, 200, share=0.1) | (topic[y] & draw(150, 200, share=0.2))
    return random_graph(150, n_classes, seed=3, x=x.float())


@cache
def trained(n_classes: int = 2, n_layers: int = 2) -> tuple[GcnFit, Graph]:
    """A small network near a stationary point, float64; 40 labels."""
    graph = words_graph(n_classes)
    settings = GcnTraining(hidden=4, weight_decay=5e-3, dropout=0.0, n_layers=n_layers)
    fit, _ = settings.fit_to_convergence(graph, torch.arange(0, 120, 3), tolerance=1e-8, max_steps=200)
    return fit, graph


def retrained_logits(fit: GcnFit, left_out: int, tolerance: float = 1e-6) -> Tensor:
    """Logits of the labelled nodes of the network trained on without one label, from the full fit."""
    model = copy.deepcopy(fit.model)
    weights = fit.sample_weights.clone()
    weights[left_out] = 0.0
    minimise(model, fit.field, fit.targets, weights, fit.weight_decay, tolerance=tolerance, max_steps=200, warm=True)
    with torch.no_grad():
        return model(fit.field)


def agreement(estimate: Tensor, truth: Tensor) -> tuple[float, float]:
    """Correlation and relative error |estimate - truth| / |truth| over all entries."""
    a, b = estimate.flatten().double(), truth.flatten().double()
    correlation = torch.corrcoef(torch.stack([a, b]))[0, 1]
    return float(correlation), float((a - b).norm() / b.norm())
