from __future__ import annotations

import dataclasses
from functools import cache

import pytest
import torch
from torch import Tensor

from calirare.graph.convolution import propagation
from calirare.graph.graph import Graph
from calirare.graph.splits import Split
from calirare.leave_one_out.eice import EiceRegulariser, EiceSettings, joint_field, train_calirare
from calirare.models import GcnTraining, fit
from tests.calirare.leave_one_out.cases import words_graph
from tests.helpers.graphs import random_graph
from tests.helpers.tolerance import assert_alike

SETTINGS = GcnTraining(epochs=120, hidden=6, seed=1)
DIFFERENTIATED = dataclasses.replace(SETTINGS, order="propagated")  # by automatic differentiation, as EICE is trained


@cache
def split_graph(n_classes: int = 2) -> Graph:
    graph = random_graph(150, n_classes, seed=3)
    return graph.with_split(Split(torch.arange(0, 60), torch.arange(60, 110), torch.arange(110, 150)))


def parameters(trained) -> Tensor:
    return torch.cat([p.detach().flatten() for p in trained.model.parameters()])


@pytest.mark.parametrize("n_classes", [2, 3])
def test_gradient_with_respect_to_the_parameters_agrees_with_finite_differences(n_classes: int) -> None:
    graph = split_graph(n_classes)
    assert graph.split is not None
    trained = fit(graph, graph.split.train, SETTINGS).as_dtype(graph, torch.float64)
    both = joint_field(propagation(graph).to(torch.float64), trained.field, graph.split.val)
    regulariser = EiceRegulariser(both, trained, EiceSettings())
    regulariser.refresh()
    values = list(trained.model.parameters())
    gradient = torch.cat([g.flatten() for g in torch.autograd.grad(regulariser(), values)])
    start = torch.nn.utils.parameters_to_vector(values).detach().clone()
    generator = torch.Generator().manual_seed(0)
    for _ in range(5):
        direction = torch.randn(start.numel(), generator=generator, dtype=torch.float64)
        ends = []
        for step in (1e-7, -1e-7):
            torch.nn.utils.vector_to_parameters(start + step * direction, values)
            ends.append(float(regulariser().detach()))
        expected = (ends[0] - ends[1]) / 2e-7
        assert float(gradient @ direction) == pytest.approx(expected, rel=1e-4, abs=1e-7)
    assert float(gradient.norm()) > 1e-3


@pytest.mark.slow
def test_weight_zero_is_plain_training_to_the_last_bit() -> None:
    graph = split_graph()
    assert graph.split is not None
    ours = train_calirare(graph, SETTINGS, EiceSettings(weight=0.0))
    assert_alike(parameters(ours), parameters(fit(graph, graph.split.train, DIFFERENTIATED)))


@pytest.mark.slow
def test_the_term_moves_the_network_and_lowers_eice() -> None:
    graph = words_graph(2)
    graph = graph.with_split(Split(torch.arange(0, 60), torch.arange(60, 110), torch.arange(110, 150)))
    eices = {}
    for weight in (0.0, 0.5):
        options = EiceSettings(weight=weight, start=20, refresh=5)
        trained = train_calirare(graph, SETTINGS, options)
        both = joint_field(propagation(graph), trained.field, graph.split.val)  # type: ignore[union-attr]
        eices[weight] = float(EiceRegulariser(both, trained, options)().detach())
    assert eices[0.5] < 0.95 * eices[0.0]


def test_refresh_and_start_say_when_leave_one_out_models_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    made, seen = list[int](), list[int]()
    plain = EiceRegulariser.refresh

    def counted(self: EiceRegulariser, *known: torch.Tensor) -> None:
        made.append(len(seen) + 1)
        plain(self, *known)

    monkeypatch.setattr(EiceRegulariser, "refresh", counted)
    settings = dataclasses.replace(SETTINGS, epochs=20)
    train_calirare(split_graph(), settings, EiceSettings(start=5, refresh=4), progress=seen.append)
    assert made == [6, 10, 14, 18]


@pytest.mark.parametrize("nodes", ["train", "val", "all"])
def test_nodes_of_the_regulariser(nodes: str) -> None:
    options = EiceSettings(weight=1.0, nodes=nodes, start=0)  # type: ignore[arg-type]
    trained = train_calirare(split_graph(), dataclasses.replace(SETTINGS, epochs=2), options)
    assert 0 < trained.losses[0] < 1


@pytest.mark.slow
def test_validation_labels_are_never_read() -> None:
    graph = split_graph()
    assert graph.y is not None
    turned = graph.y.clone()
    turned[60:] = 1 - turned[60:]
    blind = dataclasses.replace(graph, y=turned)
    assert_alike(parameters(train_calirare(graph, SETTINGS)), parameters(train_calirare(blind, SETTINGS)))
