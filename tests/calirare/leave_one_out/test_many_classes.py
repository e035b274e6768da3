"""Many classes: the symmetric dual system, and the kernel a hidden unit at a time, beside the plain formulas."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor

from calirare.curvature import dual_system, gram, gram_form, linearise
from calirare.leave_one_out import loo_coefficients
from tests.calirare.leave_one_out.cases import linearised_network
from tests.helpers.problems import NETWORKS
from tests.helpers.tolerance import assert_within, sum_bound


def by_general_inverse(linearised, kernel: Tensor, damping: float, corrected: bool) -> tuple[Tensor, Tensor]:
    """alpha and leverages from (damping I + D K)^-1, as it stands in `formula`'s first lines."""
    curvature, error = linearised.loss_terms
    m, k = error.shape
    inverse = torch.linalg.inv(dual_system(curvature, kernel, damping)).view(m, k, m, k)
    columns, leverages = [], []
    for i in range(m):
        block = damping * inverse[i, :, i]
        scaled = torch.linalg.solve(block, error[i]) if corrected else error[i]
        columns.append(inverse.view(m * k, m, k)[:, i] @ scaled)
        leverages.append(1 - block.diagonal().mean())
    return torch.stack(columns, 1), torch.stack(leverages)


def condition(linearised, kernel: Tensor, damping: float) -> float:
    curvature, _ = linearised.loss_terms
    return float(torch.linalg.cond(dual_system(curvature, kernel, damping)))


@pytest.mark.parametrize("name", list(NETWORKS))
@pytest.mark.parametrize("damping", [1e-4, 0.05, 3.0])
@pytest.mark.parametrize("corrected", [True, False])
def test_coefficients_are_those_of_the_general_inverse(name: str, damping: float, corrected: bool) -> None:
    tape = linearised_network(name).tape
    want, leverage = by_general_inverse(tape, tape.kernel, damping, corrected)
    found, got = loo_coefficients(tape, tape.kernel, damping, leverage_corrected=corrected)
    n = tape.kernel.shape[0]
    scale = condition(tape, tape.kernel, damping) ** 2 * want.abs().max().expand_as(want)
    assert_within(found, want, sum_bound(want, 4 * n, scale, out=torch.float64), "coefficients")
    one = condition(tape, tape.kernel, damping) * torch.ones_like(leverage)
    assert_within(got, leverage, sum_bound(leverage, 4 * n, one, out=torch.float64), "leverage")


@pytest.mark.parametrize("logit", [0.0, 3.0, 30.0, 500.0])
@pytest.mark.parametrize("name", ["two layers", "three layers, four classes", "sparse inputs"])
def test_roots_of_the_loss_are_roots(name: str, logit: float) -> None:
    """Also of labels the network is sure of, rightly and wrongly."""
    tape = linearised_network(name).tape
    sure = torch.zeros_like(tape.logits)
    sure[torch.arange(tape.n_nodes), torch.arange(tape.n_nodes).flip(0) % tape.n_classes] = logit
    moved = dataclasses.replace(tape, logits=tape.logits + sure)
    curvature, error = moved.loss_terms
    roots, whitened = moved.loss_roots
    assert bool(torch.isfinite(whitened).all())
    k = tape.n_classes
    weight = (tape.sample_weights / tape.n_nodes)[:, None]
    square = sum_bound(curvature, 8 * k, weight[:, :, None].expand_as(curvature).clone(), out=torch.float64)
    assert_within(roots @ roots.mT, curvature, square, "C C^T")
    product = (roots @ whitened[:, :, None]).squeeze(2)
    assert_within(product, error, sum_bound(error, 8 * k, weight.expand_as(error).clone(), out=torch.float64), "C c")
    assert bool((roots.triu(1) == 0).all())


def test_a_wrong_root_is_noticed() -> None:
    tape = linearised_network("three classes").tape
    roots, error = tape.loss_roots
    want, _ = by_general_inverse(tape, tape.kernel, 0.05, True)
    for wrong in ((roots.mT, error), (roots, -error), (2 * roots, error)):
        spoilt = dataclasses.replace(tape)
        spoilt.__dict__["loss_roots"] = wrong
        found, _ = loo_coefficients(spoilt, tape.kernel, 0.05)
        assert float((found - want).norm()) > 0.01 * float(want.norm())


@pytest.mark.parametrize("kept", [0, 300, 128_000_000])
@pytest.mark.parametrize("name", [name for name, spec in NETWORKS.items() if spec.n_layers == 2 and spec.n_classes > 2])
def test_the_kernel_by_hidden_units_is_j_jt(name: str, kept: int, monkeypatch) -> None:
    """However many units are taken together, whether or not the products of the inputs are kept."""
    monkeypatch.setattr(gram_form, "KEPT_BYTES", kept)
    monkeypatch.setattr(gram_form, "BLOCK_NUMBERS", 40)
    problem = linearised_network(name)
    field = dataclasses.replace(problem.field)
    tape = linearise(field, problem.layers, problem.targets, problem.sample_weights)
    rows = tape.jacobian
    for _ in range(2):  # the second time from what is kept
        found = gram(tape, tape.field).reshape(rows.shape[0], rows.shape[0])
        want, size = rows @ rows.T, rows.abs() @ rows.abs().T
        assert_within(found, want, sum_bound(want, 20 * rows.shape[1], size, out=torch.float64), "kernel")
    assert ("products" in field._cache) == (8 * field.rows[0].numel() ** 2 <= kept)
