"""K times columns without K: equal to K = J J^T, whichever form a hidden unit is kept in; planted mistakes are not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from calirare.curvature import GcnLinearisation, UnitProducts, gcn
from calirare.curvature.linearisation import KernelProducts
from tests.calirare.leave_one_out.cases import linearised_network
from tests.helpers.problems import NETWORKS, normal
from tests.helpers.tolerance import assert_within, sum_bound

TWO_LAYERS = [name for name, spec in NETWORKS.items() if spec.n_layers == 2]


def products_are_right(found: Callable[[Tensor], Tensor], tape: GcnLinearisation) -> None:
    m, k = tape.n_nodes, tape.n_classes - 1
    columns, rows = normal(m, k, 5, seed=3), tape.jacobian
    want = (rows @ (rows.T @ columns.view(m * k, 5))).view(m, k, 5)
    size = (rows.abs() @ (rows.abs().T @ columns.abs().view(m * k, 5))).view(m, k, 5)
    assert_within(found(columns), want, sum_bound(want, 40 * rows.shape[1], size, out=columns.dtype), "products")


@pytest.mark.parametrize("name", list(NETWORKS))
def test_products_are_those_of_the_jacobian(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tape = linearised_network(name).tape
    products_are_right(tape.kernel_products(), tape)
    monkeypatch.setattr(gcn, "MOST_BYTES", 0)
    without = tape.kernel_products()
    assert isinstance(without, KernelProducts)
    products_are_right(without, tape)


@pytest.mark.parametrize("name", TWO_LAYERS)
@pytest.mark.parametrize("more_labels", [False, True])
def test_both_forms_of_a_unit(name: str, more_labels: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """V_h V_h^T itself, and its factor where labels are more than inputs."""
    tape = linearised_network(name).tape
    monkeypatch.setattr(UnitProducts, "is_whole", staticmethod(lambda m, d: not more_labels))
    found = UnitProducts(tape)
    assert found.factors.shape[2] == (tape.layers[0][0].shape[0] + 1 if more_labels else tape.n_nodes)
    products_are_right(found, tape)


@pytest.mark.parametrize("mistake", ["a unit lost", "against no class", "bias lost", "second layer lost"])
def test_planted_mistakes_are_seen(mistake: str) -> None:
    tape = linearised_network("three classes").tape
    found = UnitProducts(tape)
    if mistake == "a unit lost":
        found.factors[0] = 0
    elif mistake == "against no class":
        found.difference = tape.layers[1][0][:, 1:].contiguous()
    elif mistake == "bias lost":
        found.factors = found.factors - 1
    else:
        found.last = torch.zeros_like(found.last)
    with pytest.raises(AssertionError):
        products_are_right(found, tape)
