"""The paper's Eq. 7 as a whole: + H^-1 grad L(i) / m is how the parameters move when node i's weight is taken out.

Judged by retraining: the parameters are refitted to a stationary point with node i's weight a little lower and a little
higher. This is what fixes the sign (the paper prints the other one), the 1/m, the damping and the kind of Hessian.

The penalty is decay / 2 |theta - centre|^2, with the centre chosen so that the network's own parameters are stationary:
minimisers found by training sit on kinks of the ReLU as a rule, where no method is right and none could be judged.
"""

from __future__ import annotations

import functools

import pytest
import torch
from torch import Tensor

from calirare_ext import hessian_product, node_gradients, record, reference, solve_inverse_hvp
from tests.helpers import mutants
from tests.helpers.compare import exact_network, influence_matches
from tests.helpers.problems import network

STEP = 4e-3  # of a node's weight
FLAT = 1e-13  # norm of the gradient at which a fit counts as stationary


@functools.cache
def weight_decay(name: str) -> float:
    """Returns a decay just large enough to make the exact Hessian definite."""
    return 0.05 - min(0.0, float(torch.linalg.eigvalsh(exact_network(network(name).tape).hessian)[0]))


def refit(name: str, weights: Tensor) -> Tensor:
    """Returns the parameters that minimise sum_i w_i l_i / m + penalty near the network's own, by Newton's method."""
    net, decay = network(name), weight_decay(name)
    own = reference.flatten(net.layers)
    centre = own + reference.node_gradients(net.field, net.layers, net.targets, net.sample_weights).mean(0) / decay
    theta, identity = own, torch.eye(own.numel(), dtype=torch.float64)
    for _ in range(20):
        layers = reference.unflatten(theta, net.layers)
        losses = reference.node_gradients(net.field, layers, net.targets, weights)
        gradient = losses.mean(0) + decay * (theta - centre)
        if float(gradient.norm()) < FLAT:
            return theta
        hessian = hessian_product(record(net.field, layers, net.targets, weights), identity, damping=decay)
        theta = theta - torch.linalg.solve(hessian, gradient)
    raise AssertionError(f"the fit did not become stationary: gradient {float(gradient.norm())}")


@functools.cache
def retrained(name: str) -> tuple[Tensor, Tensor]:
    """Returns central differences of the refitted parameters [m, p], and how far each row may be off [m]."""
    net, rows, errors = network(name), [], []
    for i in range(net.targets.numel()):
        change = {}
        for step in (STEP, 2 * STEP):
            lighter, heavier = net.sample_weights.clone(), net.sample_weights.clone()
            lighter[i] *= 1 - step
            heavier[i] *= 1 + step
            change[step] = (refit(name, lighter) - refit(name, heavier)) / (2 * step)
        # The error is c step^2, so it is a third of what doubling the step changes, plus the fits' own error.
        rows.append(change[STEP])
        errors.append((change[2 * STEP] - change[STEP]).norm() / 2 + FLAT / 0.05 / STEP)
    return torch.stack(rows), torch.stack(errors)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["one layer", "two layers", "three classes", "sparse inputs", "one labelled node"])
def test_influence_is_what_retraining_finds(name):
    tape, decay = network(name).tape, weight_decay(name)
    result = solve_inverse_hvp(tape, node_gradients(tape).dense(), damping=decay, tolerance=1e-11)
    influence_matches(result.x / tape.n_nodes, *retrained(name))


@pytest.mark.parametrize("mutant", mutants.INFLUENCE)
def test_wrong_influences_are_rejected(mutant):
    tape, decay = network("two layers").tape, weight_decay("two layers")
    with pytest.raises(AssertionError, match="influence: relative errors"):
        influence_matches(mutants.INFLUENCE[mutant](tape, decay), *retrained("two layers"))
