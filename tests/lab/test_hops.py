"""A network that propagates features twice is the plain one on features propagated once, wherever it is trained."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from calirare.graph.convolution import propagation
from calirare.graph.graph import Graph
from calirare.leave_one_out.eice import EiceSettings, train_calirare
from calirare.models import GcnTraining, fit
from calirare_lab.baselines import OfficialSettings, official_probabilities, train_official
from tests.helpers.tasks import rare_task
from tests.helpers.tolerance import assert_identical

Work = Callable[[Graph, GcnTraining], Tensor]


def _fit(graph: Graph, settings: GcnTraining) -> Tensor:
    return fit(graph, graph.split.train, settings).model.logits(graph)


def _algorithm_2(graph: Graph, settings: GcnTraining) -> Tensor:
    return train_calirare(graph, settings, EiceSettings(start=2)).model.logits(graph)


def _official(graph: Graph, settings: GcnTraining) -> Tensor:
    how = OfficialSettings(epochs=3)
    model = train_official(graph, graph.split.train, settings, how)
    return official_probabilities(model, graph, graph.split.val, settings, how)


WORKS = {
    "fit": _fit,
    "algorithm 2": _algorithm_2,
    "official": _official,
}


@pytest.mark.parametrize("work", WORKS.values(), ids=list(WORKS))
def test_two_hops_are_one_on_features_propagated_once(work: Work) -> None:
    graph, settings = rare_task(), GcnTraining(epochs=8, hidden=4)
    further = dataclasses.replace(graph, x=propagation(graph).inputs)
    two = work(graph, dataclasses.replace(settings, hops=2))
    assert_identical(two, work(further, settings))
    assert not torch.equal(two, work(graph, settings))
