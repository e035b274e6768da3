"""Every method runs, gives probabilities, uses the labels it declares, and never a test label."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from functools import partial

import pytest
import torch

from calirare.graph.graph import Graph
from calirare.models import GcnTraining
from calirare_lab.baselines import early_stopping, node_temperature
from calirare_lab.paper import methods as module
from calirare_lab.paper import ours
from calirare_lab.paper.context import Context
from calirare_lab.paper.methods import METHODS, Method
from calirare_lab.paper.protocol import Place

PLACE = Place("cora", 20, 0)
QUICK = GcnTraining(epochs=6, hidden=4)


@pytest.fixture(scope="module")
def quick() -> Iterator[None]:
    """Short trainings; what is tested does not depend on their length."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "PAPER_TRAINING", QUICK)
        patch.setattr(module, "OFFICIAL_TRAINING", QUICK)
        for name in ("GatTraining", "GinTraining", "OfficialSettings"):
            patch.setattr(module, name, partial(getattr(module, name), epochs=5))
        descend = node_temperature._descend
        patch.setattr(node_temperature, "_descend", lambda model, epochs, *rest: descend(model, 4, *rest))
        patch.setattr(early_stopping, "MAX_EPOCHS", 6)
        patch.setattr(Context, "settings", _quick_settings)
        yield


def _quick_settings(self: Context, base: GcnTraining, network: int = 0) -> GcnTraining:
    return dataclasses.replace(base, seed=self.place.seed + 1000 * network, epochs=6, hidden=4)


def flipped(graph: Graph, nodes: torch.Tensor) -> Graph:
    assert graph.y is not None
    y = graph.y.clone()
    y[nodes] = 1 - y[nodes]
    return dataclasses.replace(graph, y=y)


@pytest.fixture(scope="module")
def contexts(small: Graph, quick: None) -> dict[str, Context]:
    """The graph as it is, and with labels of one part of its split flipped; what one method trains, others find."""
    split = small.split
    assert split is not None
    changed = {"test": split.test, "val": split.val[:60], "train": split.train[:15]}
    graphs = {"": small} | {part: flipped(small, nodes) for part, nodes in changed.items()}
    return {part: Context(PLACE, graph) for part, graph in graphs.items()}


def run(method: Method, context: Context) -> torch.Tensor:
    probabilities, numbers = method.run(context)
    assert all(isinstance(value, float) for value in numbers.values())
    return probabilities


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_uses_exactly_the_labels_it_declares(name: str, contexts: dict[str, Context]) -> None:
    method = METHODS[name]
    p = run(method, contexts[""])
    assert p.dtype == torch.float64
    assert p.shape == (contexts[""].split.test.numel(), 2)
    assert float((p.sum(1) - 1).abs().max()) < 1e-6
    assert torch.equal(run(method, contexts["test"]), p)
    uses_val = not torch.equal(run(method, contexts["val"]), p)
    assert uses_val == method.all_labels
    assert not torch.equal(run(method, contexts["train"]), p)


def test_ensembles_average_logits_and_hold_out_by_leave_one_out(small: Graph, quick: None) -> None:
    context = Context(PLACE, small)
    p, numbers = ours.calibrated(context, ours.Recipe(n_networks=2))
    runs = ours.networks(context, ours.Recipe(n_networks=2))
    assert numbers["hops"] == runs[0].hops == runs[1].hops
    assert [r.seed for r in runs] == [PLACE.seed, PLACE.seed + 1000]
    assert numbers["weight_decay"] == runs[0].weight_decay == runs[1].weight_decay
    z = torch.stack([context.logits("both", r, context.split.test).double() for r in runs]).mean(0)
    margin = numbers["scale"] * (z[:, 1] - z[:, 0]) + numbers["bias"]
    assert float((p[:, 1] - torch.sigmoid(margin)).abs().max()) < 1e-9
    in_sample, _ = ours.calibrated(context, ours.Recipe(n_networks=2, source="in-sample"))
    assert float((in_sample - p).abs().max()) > 1e-3
