"""Networks for leave-one-out tests, and slow independent versions of what is tested."""

from __future__ import annotations

import dataclasses
from functools import cache
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from calirare.curvature import GcnLinearisation, linearise
from calirare.graph.graph import Graph
from calirare.leave_one_out import LeaveOneOutMethod, LooResult, Problem
from calirare.models import GCN, GcnFit, GcnTraining, cross_entropy, minimise
from calirare_ext import GcnTape, ReceptiveField
from calirare_ext.reference import flatten, gcn, unflatten
from calirare_lab.leave_one_out import retrain
from tests.helpers.graphs import random_graph
from tests.helpers.problems import Network, network


def close(actual: Tensor, expected: Tensor, share: float = 1e-9) -> bool:
    """Returns whether two tensors differ by at most a share of the largest entry."""
    assert actual.shape == expected.shape
    return float((actual.double() - expected.double()).abs().max()) <= share * float(expected.abs().max())


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


SOME = torch.arange(0, 40, 8)  # labels that are left out by retraining


@cache
def retrained(n_classes: int = 2, n_layers: int = 2) -> LooResult:
    """What `trained` becomes without each label of SOME, at every node; column j is of SOME[j]."""
    fit, graph = trained(n_classes, n_layers)
    return retrain(fit, fit.evaluation_field(graph, None), SOME, max_steps=80)


def retrained_logits(fit: GcnFit, left_out: int, tolerance: float = 1e-6) -> Tensor:
    """Logits of the labelled nodes of the network trained on without one label, from the full fit."""
    weights = fit.sample_weights.clone()
    weights[left_out] = 0.0
    without = fit.copy(sample_weights=weights)
    minimise(without, tolerance=tolerance, max_steps=200, warm=True)
    return without.logits_at_labels()


def agreement(estimate: Tensor, truth: Tensor) -> tuple[float, float]:
    """Correlation and relative error |estimate - truth| / |truth| over all entries."""
    a, b = estimate.flatten().double(), truth.flatten().double()
    correlation = torch.corrcoef(torch.stack([a, b]))[0, 1]
    return float(correlation), float((a - b).norm() / b.norm())


def penalised_loss(
    model: GCN, field: ReceptiveField, targets: Tensor, sample_weights: Tensor, weight_decay: float
) -> Tensor:
    """The objective whose minimum the leave-one-out formulas are about, differentiable: loss + mu / 2 |theta|^2."""
    penalty = torch.stack([parameter.square().sum() for parameter in model.parameters()]).sum()
    return cross_entropy(model(field), targets, sample_weights) + weight_decay / 2 * penalty


class LinearisedNetwork(Network):
    """A network of `tests.helpers.problems` with its linearisation in the place of its tape."""

    @property
    def tape(self) -> GcnLinearisation:
        return linearise(self.field, self.layers, self.targets, self.sample_weights)


def linearised_network(name: str, **options: Any) -> LinearisedNetwork:
    shared = network(name, **options)  # its cached tape, too, is among its vars
    return LinearisedNetwork(**{field.name: getattr(shared, field.name) for field in dataclasses.fields(shared)})


def run(problem: LinearisedNetwork, damping: float, method: LeaveOneOutMethod) -> LooResult:
    """What a method makes of a bare network at its own labels."""
    return method.run(Problem(SimpleNamespace(linearisation=problem.tape), problem.field, damping))  # type: ignore[arg-type]
