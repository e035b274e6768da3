"""The Gauss-Newton inverse in the primal is the one in the dual, and is taken where there are fewer parameters."""

from __future__ import annotations

import pytest
import torch

from calirare.curvature import GgnInverse, distinct_columns, gauss_newton
from calirare.models import GcnTraining, MlpTraining
from tests.helpers.tasks import rare_task


def linearised(n_classes: int, hidden: int):
    graph = rare_task(n_classes=n_classes)
    fitted = GcnTraining(hidden=hidden, epochs=10).fit(graph, graph.split.train)
    return fitted.as_dtype(graph, torch.float64).linearisation


@pytest.mark.parametrize(
    ("n_classes", "hidden", "primal"), [(2, 3, True), (2, 16, False), (3, 3, True), (3, 16, False)]
)
def test_the_smaller_side_gives_the_inverse(n_classes, hidden, primal):
    here, mu = linearised(n_classes, hidden), 0.01
    vectors = torch.randn(4, here.n_parameters, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    matrix = gauss_newton(here.jacobian, here.loss_terms[0]) + mu * torch.eye(here.n_parameters, dtype=torch.float64)
    inverse = GgnInverse(here, mu)
    assert inverse.primal is primal
    assert float((inverse(vectors) @ matrix - vectors).norm() / vectors.norm()) < 1e-10
    with pytest.raises(ValueError, match="damping must be positive, got 0"):
        GgnInverse(here, 0)


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
