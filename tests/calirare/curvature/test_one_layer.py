"""One layer by classes: its Gauss-Newton matrix without a Jacobian, and a preconditioner that is exact for two."""

from __future__ import annotations

import pytest
import torch

from calirare.curvature import GgnInverse, OneLayerHat, OneLayerPreconditioner, is_one_layer
from calirare.leave_one_out import OwnLogits
from calirare.leave_one_out import own_logits as module
from calirare.models import GcnTraining, MlpTraining, minimise
from tests.helpers.tasks import rare_task


def trained(n_classes: int, n_layers: int = 1, epochs: int = 30, n_labels: int | None = None):
    graph = rare_task(n_classes=n_classes)
    nodes = graph.split.train[:n_labels]
    weights = torch.linspace(0.2, 2.0, nodes.numel())
    training = MlpTraining(n_layers=n_layers, epochs=epochs, weight_decay=1e-2)
    return training.fit(graph, nodes, sample_weights=weights).as_dtype(graph, torch.float64)


@pytest.mark.parametrize("n_classes", [2, 5])
@pytest.mark.parametrize("damping", [1e-3, 0.3])
def test_hats_are_those_of_the_jacobian(n_classes, damping):
    here = trained(n_classes).linearisation
    rows = here.jacobian
    m, k = here.n_nodes, n_classes - 1
    bent = torch.block_diag(*here.loss_terms[0])
    inverse = torch.linalg.inv(rows.T @ bent @ rows + damping * torch.eye(rows.shape[1], dtype=torch.float64))
    hats = (rows @ inverse @ rows.T).view(m, k, m, k).diagonal(dim1=0, dim2=2).permute(2, 0, 1)
    torch.testing.assert_close(OneLayerHat(here)(damping), hats, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("n_labels", [None, 6])  # more labels than inputs, and fewer
def test_of_two_classes_the_preconditioner_is_the_inverse(n_labels):
    here = trained(2, n_labels=n_labels).linearisation
    vector = torch.randn(here.n_parameters, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    mine = OneLayerPreconditioner(here, 0.02)
    assert mine.dual == (n_labels == 6)
    with pytest.raises(ValueError, match="damping must be positive, got 0"):
        OneLayerPreconditioner(here, 0)
    torch.testing.assert_close(mine(vector), GgnInverse(here, 0.02)(vector[None])[0], rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("n_labels", [None, 6])
def test_of_more_classes_it_is_the_inverse_where_all_are_as_likely(n_labels):
    """At parameters of 0 every F_i is a multiple of the projection off (1, .., 1)."""
    fitted = trained(4, epochs=1, n_labels=n_labels)
    here = fitted.linearised_at(torch.zeros_like(fitted.theta))
    vector = torch.randn(here.n_parameters, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    want = GgnInverse(here, 0.02)(vector[None])[0]
    torch.testing.assert_close(OneLayerPreconditioner(here, 0.02)(vector), want, rtol=1e-9, atol=1e-10)


def test_only_one_layer_is_one():
    assert is_one_layer(trained(3).linearisation)
    assert not is_one_layer(trained(3, n_layers=2).linearisation)
    graph = rare_task()
    three = GcnTraining(n_layers=3, hidden=4, epochs=1).fit(graph, graph.split.train)
    assert not is_one_layer(three.linearisation)


@pytest.mark.parametrize("n_classes", [2, 4])
def test_training_ends_at_a_minimum(n_classes):
    fitted = trained(n_classes, epochs=1)
    assert minimise(fitted, tolerance=1e-9).converged
    theta = fitted.theta.clone().requires_grad_()
    loss, gradient = fitted.objective(theta.detach())
    assert float(gradient.norm()) < 1e-9
    assert loss < fitted.objective(torch.zeros_like(theta.detach()))[0]


def test_own_logits_of_many_classes_take_it(monkeypatch):
    here = trained(4).linearisation
    own = OwnLogits(here)
    assert own.form == "one layer"
    dense = OwnLogits(here, here.kernel)
    for damping in (1e-2, 0.3):
        torch.testing.assert_close(own(damping), dense(damping), rtol=1e-8, atol=1e-10)
    monkeypatch.setattr(module, "ONE_LAYER", 10)
    assert OwnLogits(here).form == "primal"
    assert OwnLogits(trained(2).linearisation).form == "dual"
