"""The comparison helpers accept the operators and reject every known wrong version of them."""

from __future__ import annotations

import pytest
import torch

from calirare_ext import block_cg, gcn_norm, hessian_product, jackknife_interval, node_gradients, propagate
from tests.helpers import mutants
from tests.helpers.compare import (
    gcn_norm_matches,
    hessian_product_matches,
    interval_matches,
    node_gradients_match,
    propagate_matches,
    solution_matches,
)
from tests.helpers.problems import generator, graph, network, normal, random_matrix, with_spectrum


@pytest.mark.parametrize("size", [1.0, 1e-12])  # a default absolute tolerance would accept zeros of the small one
@pytest.mark.parametrize("name", mutants.PROPAGATE)
def test_propagate_mutants_are_rejected(name, size, dtype):
    a, x = random_matrix(23, 23, 120, seed=2).to(dtype), size * normal(23, 17, seed=3).to(dtype)
    propagate_matches(propagate(a, x), a, x)
    with pytest.raises(AssertionError, match="propagate"):
        propagate_matches(mutants.PROPAGATE[name](a, x), a, x)


@pytest.mark.parametrize("name", mutants.GCN_NORM)
def test_gcn_norm_mutants_are_rejected(name, dtype):
    adjacency = graph(directed=True).to(dtype)
    gcn_norm_matches(gcn_norm(adjacency), adjacency)
    with pytest.raises(AssertionError, match="gcn_norm"):
        gcn_norm_matches(mutants.GCN_NORM[name](adjacency), adjacency)


@pytest.mark.parametrize("name", mutants.NODE_GRADIENTS)
def test_node_gradient_mutants_are_rejected(name, dtype):
    tape = network("every node", dtype).tape
    node_gradients_match(node_gradients(tape).dense(), tape)
    with pytest.raises(AssertionError, match="node_gradients"):
        node_gradients_match(mutants.NODE_GRADIENTS[name](tape), tape)


@pytest.mark.parametrize("name", mutants.HESSIAN_PRODUCT)
def test_hessian_mutants_are_rejected(name, dtype):
    tape = network("every node", dtype).tape
    vectors, damping = normal(2, tape.n_parameters, seed=5).to(dtype), 0.05
    hessian_product_matches(hessian_product(tape, vectors, damping=damping), tape, vectors, "exact", damping)
    wrong = mutants.HESSIAN_PRODUCT[name](tape, vectors, damping)
    with pytest.raises(AssertionError, match="hessian_product"):
        hessian_product_matches(wrong, tape, vectors, "exact", damping)


@pytest.mark.parametrize("name", mutants.SOLVE)
def test_solver_mutants_are_rejected(name):
    matrix, rhs = with_spectrum(torch.logspace(-2, 0, 20), seed=6), normal(3, 20, seed=7)
    solution_matches(block_cg(lambda v: v @ matrix, rhs, tolerance=1e-10), matrix, rhs, 1e-10)
    with pytest.raises(AssertionError, match=r"CONVERGED|residual|MAX"):
        solution_matches(mutants.SOLVE[name](matrix, rhs), matrix, rhs, 1e-10)


@pytest.mark.parametrize("name", mutants.JACKKNIFE_INTERVAL)
def test_interval_mutants_are_rejected(name, dtype):
    scores = torch.randint(1, 9, (11, 36), generator=generator(8)).to(dtype) / 7  # many ties, sums that round
    residuals = torch.randint(1, 4, (36,), generator=generator(9)).to(dtype) / 7
    interval_matches(jackknife_interval(scores, residuals, 0.05, 0.95), scores, residuals, 0.05, 0.95)
    with pytest.raises(AssertionError, match=r"lower|upper"):
        interval_matches(mutants.JACKKNIFE_INTERVAL[name](scores, residuals, 0.05, 0.95), scores, residuals, 0.05, 0.95)
