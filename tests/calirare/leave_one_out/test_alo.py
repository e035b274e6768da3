from __future__ import annotations

import pytest
import torch
from torch import Tensor

from calirare.curvature import gram
from calirare.leave_one_out import alo_change, loo_coefficients
from calirare_ext.reference import ggn
from tests.calirare.leave_one_out.cases import (
    SOME,
    agreement,
    close,
    dense_jacobian,
    linearised_network,
    retrained,
    trained,
)
from tests.helpers.problems import NETWORKS

SHALLOW = [name for name, spec in NETWORKS.items() if spec.n_layers <= 2]
CLOSE = 1e-10  # of the largest entry: float64 sums of at most a few thousand terms, two systems solved


@pytest.mark.parametrize("name", SHALLOW)
def test_gram_is_the_product_of_the_jacobians(name: str) -> None:
    problem = linearised_network(name)
    tape = problem.tape
    jacobian = dense_jacobian(tape)
    expected = torch.einsum("vap,ibp->vaib", jacobian, jacobian)
    assert close(gram(tape, problem.field), expected, CLOSE)


def test_gram_refuses_three_layers() -> None:
    problem = linearised_network("four layers")
    with pytest.raises(ValueError, match="one or two layers, got 4"):
        gram(problem.tape, problem.field)


def dense_leave_one_out(tape, damping: float, *, leverage: bool = True) -> Tensor:
    """Delta_i = (GGN - GGN_i + damping)^-1 g_i / m, p x p, one system per node: [m, p]."""
    jacobian = dense_jacobian(tape)
    curvature, error = tape.loss_terms
    parts = torch.einsum("iap,iab,ibq->ipq", jacobian, curvature, jacobian)
    total = parts.sum(0) + damping * torch.eye(jacobian.shape[2], dtype=torch.float64)
    gradients = torch.einsum("iap,ia->ip", jacobian, error)
    return torch.stack(
        [torch.linalg.solve(total - (parts[i] if leverage else 0), gradients[i]) for i in range(len(parts))]
    )


@pytest.mark.parametrize("name", list(NETWORKS))
def test_curvature_is_the_references_ggn(name: str) -> None:
    problem = linearised_network(name)
    jacobian = dense_jacobian(problem.tape)
    curvature, _ = problem.tape.loss_terms
    ours = torch.einsum("iap,iab,ibq->pq", jacobian, curvature, jacobian)
    assert close(ours, ggn(problem.field, problem.layers, problem.sample_weights), CLOSE)


@pytest.mark.parametrize("name", list(NETWORKS))
@pytest.mark.parametrize("form", ["auto", "gram", "jacobian", "primal"])
@pytest.mark.parametrize("corrected", [True, False])
def test_every_form_solves_the_same_systems(name: str, form: str, corrected: bool) -> None:
    problem = linearised_network(name)
    if form == "gram" and NETWORKS[name].n_layers > 2:
        pytest.skip("the Gram form stops at two layers")
    tape = problem.tape
    delta = dense_leave_one_out(tape, 0.05, leverage=corrected)
    moved = torch.einsum("vap,ip->vai", dense_jacobian(tape), delta)
    found = alo_change(tape, problem.field, 0.05, form=form, leverage_corrected=corrected)
    assert close(found.change, moved, 1e-8)
    assert close(found.own, moved.diagonal(dim1=0, dim2=2).T, 1e-8)
    assert bool((found.leverage >= 0).all())
    assert bool((found.leverage < 1).all())


def test_bad_arguments() -> None:
    problem = linearised_network("two layers")
    with pytest.raises(ValueError, match="damping must be positive, got 0"):
        alo_change(problem.tape, problem.field, 0.0)
    with pytest.raises(ValueError, match="form must be one of"):
        alo_change(problem.tape, problem.field, 0.1, form="best")


SLOWLY = pytest.mark.slow


@pytest.mark.parametrize(
    ("n_classes", "n_layers"), [(2, 1), (4, 1), pytest.param(2, 2, marks=SLOWLY), pytest.param(3, 2, marks=SLOWLY)]
)
def test_alo_agrees_with_exact_retraining(n_classes: int, n_layers: int) -> None:
    fit, _ = trained(n_classes, n_layers)
    tape = fit.linearisation
    exact = retrained(n_classes, n_layers).own[SOME]
    ours = alo_change(tape, fit.field, fit.weight_decay).own[SOME]
    correlation, error = agreement(ours, exact)
    assert correlation >= 0.99
    assert error <= 0.15
    assert agreement(-ours, exact)[0] < 0  # the paper's printed sign
    plain = alo_change(tape, fit.field, fit.weight_decay, leverage_corrected=False).own[SOME]
    assert agreement(plain, exact)[1] > 0.15  # leverage left out


@pytest.mark.slow
def test_wrong_versions_fail_the_check() -> None:
    fit, _ = trained()
    tape = fit.linearisation
    right = dense_leave_one_out(tape, fit.weight_decay)
    kernel = tape.kernel
    jacobian = dense_jacobian(tape).flatten(0, 1)

    def directions(mu: float) -> Tensor:
        return loo_coefficients(tape, kernel, mu)[0].T @ jacobian

    assert close(directions(fit.weight_decay), right, 1e-8)
    assert not close(-directions(fit.weight_decay), right, 0.5)  # the paper's sign
    assert not close(directions(2 * fit.weight_decay), right, 1e-2)  # another damping
    assert not close(directions(fit.weight_decay) * tape.n_nodes, right, 0.5)  # 1 / m lost
