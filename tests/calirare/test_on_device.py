"""Whole jobs on a GPU against the CPU: training, both ways to the intervals, Algorithm 2, runs on disk.

Without dropout, whose masks differ between devices. The same steps in float32 and another order of sums: the numbers
part by rounding. Features that are off by as much (3e-7) move the numbers below by 3e-6; the bounds leave room for a
unit on its kink. A wrong job is off by a hundredth and more.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator

import pandas as pd
import pytest
import torch
from torch import Tensor

import calirare
from calirare.calibration import JackknifeCalibrator
from calirare.graph import convolution as propagation_module
from calirare.graph.graph import Graph
from calirare.leave_one_out import ALO, METHODS, JackknifeResult, Streaming, jackknife, leave_one_out
from calirare.leave_one_out.eice import EiceSettings, train_calirare
from calirare.models import GcnFit, GcnTraining, fit, fit_of
from calirare.run import recalibrated
from calirare_ext import Csr
from tests.conftest import why_no_cuda
from tests.helpers.command import few_candidates, rough_runs
from tests.helpers.pretend_gpu import PretendGpu
from tests.helpers.tasks import rare_task

EVALUATED = 2e-4  # of probabilities and logits near 1, of one network on two devices
TRAINED = 3e-3  # of those of two networks, each trained on its device
DRAWN = 0.1  # of those of networks whose dropout drew differently
DAMPING = 0.1
NUMBERS = ("lower", "upper", "uncertainty", "confidence", "ice", "own_loo_logits", "residuals")


@pytest.fixture
def device(request: pytest.FixtureRequest) -> Iterator[torch.device]:
    """The device to compare with the CPU: a GPU, or without one a pretended GPU, which refuses what a GPU refuses."""
    if why_no_cuda() is None or request.config.getoption("--require-cuda"):
        yield request.getfixturevalue("cuda_device")
    else:
        with PretendGpu():
            yield torch.device("cuda", 0)


def apart(there: Tensor, here: Tensor) -> float:
    """Returns the largest difference, of a number of size 1 or more relative to it."""
    assert there.shape == here.shape
    return float(((there.cpu() - here).abs() / here.abs().clamp(min=1.0)).max())


def without_dropout(epochs: int = 20, n_layers: int = 2) -> GcnTraining:
    return GcnTraining(epochs=epochs, dropout=0.0, n_layers=n_layers)


def sparse_task(n_classes: int = 2) -> Graph:
    graph = rare_task(n_classes=n_classes)
    x = torch.where(graph.x > 0.6, graph.x, 0.0)
    return dataclasses.replace(graph, x=Csr.from_dense(x))


def on(device: torch.device, graph: Graph, trained: GcnFit) -> tuple[Graph, GcnFit]:
    """Returns the graph and the network on another device."""
    there = graph.to(device)
    model = copy.deepcopy(trained.model).to(device)
    return there, fit_of(
        model, there, trained.nodes.to(device), class_weight="balanced", weight_decay=trained.weight_decay
    )


def assert_agree(there: JackknifeResult, here: JackknifeResult, device: torch.device) -> None:
    for name in NUMBERS:
        got, wanted = getattr(there, name), getattr(here, name)
        assert got.device.type == device.type, name
        assert apart(got, wanted) < EVALUATED, name
    assert there.eice == pytest.approx(here.eice, abs=EVALUATED)
    assert torch.equal(there.nodes.cpu(), here.nodes)


@pytest.mark.parametrize(("make", "n_layers"), [(rare_task, 1), (sparse_task, 2), (rare_task, 3)])
def test_training(make, n_layers, device):
    graph = make()
    here = fit(graph, graph.split.train, without_dropout(n_layers=n_layers))
    moved = graph.to(device)
    there = fit(moved, moved.split.train, without_dropout(n_layers=n_layers))
    assert apart(torch.tensor(there.losses), torch.tensor(here.losses)) < TRAINED
    assert apart(there.model.logits(moved), here.model.logits(graph)) < TRAINED


@pytest.mark.parametrize("form", ["auto", "primal"])
@pytest.mark.parametrize(("make", "mapped"), [(rare_task, True), (sparse_task, False)])
def test_fused_jackknife(make, mapped, form, device):
    """Two layers, two classes: no leave-one-out logit is kept."""
    graph = make()
    trained = fit(graph, graph.split.train, without_dropout())
    there, moved = on(device, graph, trained)
    results = []
    for g, t in ((there, moved), (graph, trained)):
        tape = t.linearisation
        chosen = JackknifeCalibrator().fit(tape.logits, tape.targets) if mapped else None
        results.append(jackknife(t, g, ALO(form=form, damping=DAMPING), calibrator=chosen))
    assert_agree(*results, device)


@pytest.mark.parametrize("method", ["alo", "grouped"])
@pytest.mark.parametrize(("make", "n_classes"), [(rare_task, 3), (sparse_task, 2)])
def test_unfused_jackknife(make, n_classes, method, device):
    graph = make(n_classes=n_classes)
    trained = fit(graph, graph.split.train, without_dropout(n_layers=3 if n_classes == 2 else 2))
    there, moved = on(device, graph, trained)
    settings = dataclasses.replace(METHODS[method](), damping=DAMPING)
    got, wanted = (
        jackknife(t, g, settings, result=leave_one_out(t, g, settings)) for t, g in ((moved, there), (trained, graph))
    )
    assert_agree(got, wanted, device)


@pytest.mark.slow
def test_jackknife_of_a_large_graph_in_blocks(device, monkeypatch):
    graph = rare_task()
    trained = fit(graph, graph.split.train, without_dropout())
    expected = jackknife(trained, graph, ALO(damping=DAMPING))
    monkeypatch.setattr(propagation_module, "LARGE", 1)
    there, moved = on(device, graph, trained)
    assert_agree(jackknife(moved, there, ALO(damping=DAMPING), evaluator=Streaming(there, block=100)), expected, device)


@pytest.mark.parametrize(("make", "n_classes"), [(rare_task, 2), (sparse_task, 3)])
def test_algorithm_2(make, n_classes, device):
    graph = make(n_classes=n_classes)
    eice = EiceSettings(start=8, refresh=4, damping=DAMPING)
    here = train_calirare(graph, without_dropout(16), eice)
    moved = graph.to(device)
    there = train_calirare(moved, without_dropout(16), eice)
    assert apart(torch.tensor(there.losses), torch.tensor(here.losses)) < TRAINED
    assert apart(there.model.logits(moved), here.model.logits(graph)) < TRAINED


@pytest.mark.parametrize("method", ["jackknife", "calirare"])
def test_the_pipeline(method, device):
    changes = {"method": method, "epochs": 30, "dropout": 0.0, "loo": ALO(damping=0.02), "folds": 2}
    here = calirare.train(rare_task(), preset="paper", **changes, device="cpu")
    there = calirare.train(rare_task(), preset="paper", **changes, device=str(device))
    on_the_cpu = (there.graph, there.fit.nodes, there.logits, there.jackknife.upper)
    assert {part.device.type for part in on_the_cpu} == {"cpu"}, "what comes after training is done there"
    assert apart(there.logits, here.logits) < TRAINED
    for target in here.calibrators:
        assert apart(there.probabilities(target), here.probabilities(target)) < TRAINED
    assert apart(there.jackknife.upper, here.jackknife.upper) < TRAINED
    # Below rounding the order of nodes is anyone's: those that come first are those that were most in doubt.
    few = there.review()[:20].cpu()
    doubt = 1 - here.jackknife.uncertainty
    assert float(doubt[few].min()) > float(doubt[here.review()].sort(descending=True).values[20]) - TRAINED


@pytest.fixture(scope="module")
def auto_on_the_cpu():
    """The same outcome trained on the CPU; made first, as a pretended GPU slows every operation."""
    with rough_runs(), few_candidates():
        return calirare.train(rare_task(), model="auto", device="cpu")


@pytest.mark.release
def test_every_detector_is_trained_saved_and_asked_on_a_device(auto_on_the_cpu, device, tmp_path):
    """The trained outcome and the saved run answer about a graph on the device; both are on the CPU themselves."""
    graph = rare_task().to(device)
    with rough_runs(), few_candidates():
        outcome = calirare.train(graph, model="auto", device=str(device))
        outcome.save(tmp_path / "run")
    assert_near(outcome.to_frame(), auto_on_the_cpu.to_frame(), DRAWN)
    saved, here = calirare.load(tmp_path / "run"), outcome.predict(rare_task())
    for there in (outcome.predict(graph), saved.predict(graph)):
        assert float((there["p_rare"] - here["p_rare"]).abs().max()) < EVALUATED
    assert len(saved.audit(graph).to_frame()) == len(outcome.audit().to_frame())
    assert saved.explain(graph=graph, top=1)[0].node == outcome.explain(top=1)[0].node
    assert recalibrated(saved, graph).labels == int((graph.y >= 0).sum()) - saved.fit.nodes.numel()


def test_many_classes(device):
    changes = {"model": "gcn", "epochs": 30, "folds": 0, "dropout": 0.0}
    here, there = (
        calirare.train(rare_task(n_classes=3), task="classes", **changes, device=name) for name in ("cpu", str(device))
    )
    assert {part.device.type for part in (there.graph, there.fit.nodes, there.logits, there.own_logits)} == {"cpu"}
    assert apart(there.probabilities("population"), here.probabilities("population")) < TRAINED


def assert_near(there: pd.DataFrame, here: pd.DataFrame, bound: float) -> None:
    """Asserts that every number but the predicted class differs by less."""
    assert list(there.columns) == list(here.columns)
    for column in here.select_dtypes("number"):
        difference = (there[column] - here[column]).abs().max()
        assert column == "prediction" or difference < bound, column
