"""The Gauss-Newton inverse in the primal is the one in the dual, and is taken where there are fewer parameters."""

from __future__ import annotations

import pytest
import torch

from calirare.curvature import GgnInverse, PrimalGgnInverse, gauss_newton, inverse_ggn
from calirare.models import GcnTraining
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
