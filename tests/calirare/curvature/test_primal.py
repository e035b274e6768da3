"""The Gauss-Newton inverse in the primal is the one in the dual, and is taken where there are fewer parameters."""

from __future__ import annotations

import pytest
import torch

from calirare.curvature import GgnInverse, PrimalGgnInverse, distinct_columns, gauss_newton, inverse_ggn
from calirare.models import GcnTraining, MlpTraining
from tests.helpers.tasks import rare_task


def linearised(n_classes: int, hidden: int):
    graph = rare_task(n_classes=n_classes)
    fitted = GcnTraining(hidden=hidden, epochs=10).fit(graph, graph.split.train)
    return fitted.as_dtype(graph, torch.float64).linearisation


@pytest.mark.parametrize("n_classes", [2, 3])
def test_both_sides_give_the_inverse(n_classes):
    here, mu = linearised(n_classes, 3), 0.01
    vectors = torch.randn(4, here.n_parameters, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    matrix = gauss_newton(here.jacobian, here.loss_terms[0]) + mu * torch.eye(here.n_parameters, dtype=torch.float64)
    for inverse in (PrimalGgnInverse(here, mu), GgnInverse(here, mu)):
        assert float((inverse(vectors) @ matrix - vectors).norm() / vectors.norm()) < 1e-10


def test_the_smaller_side_is_taken():
    assert isinstance(inverse_ggn(linearised(2, 3), 0.01), PrimalGgnInverse)  # 29 parameters, 40 labels
    assert isinstance(inverse_ggn(linearised(2, 16), 0.01), GgnInverse)


def test_a_damping_of_zero_is_refused():
    with pytest.raises(ValueError, match="damping must be positive, got 0"):
        PrimalGgnInverse(linearised(2, 3), 0)


def test_parameters_in_opposite_pairs_cost_a_quarter_and_change_nothing():
    columns = torch.randn(40, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    curvature = torch.linspace(0.01, 0.25, 40, dtype=torch.float64)[:, None, None]
    rows = torch.stack([-columns, columns], 2).flatten(1)  # as of one layer of two classes
    for j in (rows, rows[:, :9], torch.cat([rows, rows[:, :1]], 1), rows.abs()):
        torch.testing.assert_close(gauss_newton(j, curvature), j.T @ (curvature[:, 0] * j))
        torch.testing.assert_close((fewer := distinct_columns(j, curvature)) @ fewer.T, j @ j.T)
    assert distinct_columns(rows, curvature).shape == (40, 5)
    graph = rare_task()
    fitted = MlpTraining(n_layers=1, epochs=3).fit(graph, graph.split.train)
    jacobian = fitted.linearisation.jacobian
    assert torch.equal(jacobian[:, ::2], -jacobian[:, 1::2])
