"""The protocols of the calibration record: splits, networks, cells that are run once, summaries."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from calirare._util.errors import InputError
from calirare.graph import Graph
from calirare.graph.convolution import propagation
from calirare.leave_one_out.eice import EiceSettings, train_calirare
from calirare.metrics import confidence_statistics, ece
from calirare.models import GcnTraining, fit
from calirare_lab.baselines import LossAndAccuracy, OfficialSettings, official_probabilities, train_official
from calirare_lab.studies import record
from calirare_lab.studies.record import GATS_PROTOCOL, GETS_PROTOCOL, Cell, Protocol, cells, networks, runner
from calirare_lab.studies.record.measures import debiased_ece
from calirare_lab.studies.record.protocol import random_shares, stratified_folds
from tests.helpers.graphs import random_graph
from tests.helpers.tasks import rare_task
from tests.helpers.tolerance import assert_identical


def test_gets_splits_are_random_shares_of_the_labelled_nodes() -> None:
    y = torch.arange(200) % 3
    y[:10] = -1
    split, other = (random_shares(y, GETS_PROTOCOL.draw(seed)) for seed in (0, 1))
    assert [part.numel() for part in (split.train, split.val, split.test)] == [38, 19, 133]
    every = torch.cat([split.train, split.val, split.test])
    assert torch.equal(every.sort().values, torch.arange(10, 200))
    assert not torch.equal(split.train, other.train)
    assert torch.equal(split.train, random_shares(y, {"split": 0, "start": 5}).train)


def test_gats_splits_are_folds_of_each_class_and_most_of_the_others() -> None:
    y = torch.cat([torch.full((200,), 0), torch.full((400,), 1), torch.full((7,), -1)])
    splits = [stratified_folds(y, {"split": 3, "fold": fold, "start": 0}) for fold in range(3)]
    for split in splits:
        assert [part.numel() for part in (split.train, split.val)] == [60, 30]
        assert torch.bincount(y[split.train]).tolist() == [20, 40]
        assert torch.bincount(y[split.test]).tolist() == [int(0.85 * 170), int(0.85 * 340)]
        every = torch.cat([split.train, split.val, split.test])
        assert every.unique().numel() == every.numel()
        assert torch.equal(split.test, splits[0].test)
    drawn = torch.cat([split.val for split in splits]).sort().values
    assert torch.equal(drawn, torch.cat([splits[0].train, splits[0].val]).sort().values)
    other = stratified_folds(y, {"split": 4, "fold": 0, "start": 0})
    assert not torch.equal(other.test, splits[0].test)


def test_training_is_kept_where_loss_and_accuracy_are_both_best_and_ends_after_neither_is() -> None:
    rule, targets = LossAndAccuracy(), torch.tensor([0, 0])
    good, better = torch.tensor([[1.0, 0.0], [0.0, 0.1]]), torch.tensor([[2.0, 0.0], [0.0, 0.1]])
    surer = torch.tensor([[2.0, 0.0], [0.1, 0.0]])  # both right
    assert rule.improves(1, good, targets)
    assert rule.improves(2, better, targets)
    assert rule.improves(3, surer, targets)
    assert not rule.improves(4, better, targets)
    assert rule.epoch == rule.last == 3
    assert not rule.improves(5, torch.tensor([[9.0, 0.0], [0.0, 0.01]]), targets)  # a lower loss alone
    assert (rule.epoch, rule.last) == (3, 5)
    assert not rule.over(104)
    assert rule.over(105)


def _graph(protocol: Protocol) -> Graph:
    graph = random_graph(220, 3, seed=2)
    assert graph.y is not None
    return graph.with_split(protocol.split(graph.y, protocol.draw(0)))


def _quick(protocol: Protocol) -> Protocol:
    """The same with networks that are trained for ten epochs."""
    gat = dataclasses.replace(protocol.gat, epochs=10, hidden=2)
    return dataclasses.replace(protocol, gcn=dataclasses.replace(protocol.gcn, epochs=10), gat=gat)


MAPS = {"frozen": 8, "left-out": 7, "folds": 10}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("protocol", "network", "track"),
    [
        ("gets", "gcn", "frozen"),
        ("gats", "gcn", "left-out"),
        ("gets", "gat", "folds"),
    ],
)
def test_a_cell_has_a_row_per_map(protocol: str, network: str, track: str, monkeypatch: pytest.MonkeyPatch) -> None:
    how = _quick(record.PROTOCOLS[protocol])
    monkeypatch.setattr(cells, "load", lambda asked, dataset, seed: _graph(asked))
    rows = record.run_cell(how, Cell("cora", network, 0, track))
    assert {row["track"] for row in rows} == {track}
    assert len({row["map"] for row in rows}) == len(rows) == MAPS[track]
    assert ("verdict" in rows[0]) == (track == "left-out")
    for row in rows:
        assert 0 <= row["ece"] <= 1
        assert row["nll"] > 0
    assert len({row["nll"] for row in rows}) > 1
    assert ("neighbours" in {row["map"] for row in rows}) == (track in ("frozen", "folds"))


def test_the_debiased_error_takes_off_what_redrawn_accuracies_add() -> None:
    rng = np.random.default_rng(0)
    p = rng.beta(2, 1, 150)
    labels = (rng.random(150) < p**1.5).astype(int)
    counted = confidence_statistics(labels, p, 15)
    number, accuracy, confidence = (part[0].numpy() for part in (counted.count, counted.accuracy, counted.confidence))
    drawn = rng.normal(accuracy, np.sqrt(accuracy * (1 - accuracy) / np.maximum(number, 1)), (40_000, 15))
    mean = (np.abs(drawn - confidence) @ (number / number.sum())).mean()
    found = debiased_ece(torch.from_numpy(labels), torch.from_numpy(p), 15)
    assert found == pytest.approx(2 * ece(labels, np.stack((1 - p, p), 1), 15) - mean, abs=2e-3)


def test_cells_that_are_there_are_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[Cell]()

    def cell(protocol: Protocol, wanted: Cell) -> list[dict]:
        asked.append(wanted)
        row = dataclasses.asdict(wanted) | {"cpu_seconds": 0.0} | dict.fromkeys(record.MEASURES, float(wanted.seed))
        return [row | {"map": name} for name in ("a", "b")]

    monkeypatch.setattr(runner, "run_cell", cell)
    path, said = tmp_path / "gets.jsonl", list[str]()
    record.run(GETS_PROTOCOL, path, ["cora"], ["gcn"], ["frozen"], 2, said.append)
    record.run(GETS_PROTOCOL, path, ["cora"], ["gcn", "gat"], ["frozen"], 3, said.append)
    record.run(GETS_PROTOCOL, path, ["cora"], ["gat"], ["left-out"], 3, said.append)  # which it does not have
    names = [(each.seed, each.network) for each in asked]
    assert names == [(0, "gcn"), (1, "gcn"), (0, "gat"), (1, "gat"), (2, "gcn"), (2, "gat")]
    assert len(said) == 6
    rows = record.read(GETS_PROTOCOL, path)
    found = record.summary(rows)["cora", "gcn", "frozen", "a"]
    assert found["seeds"] == 3
    assert found["nll"] == (1.0, 1.0)
    assert np.isnan(record.summary(rows[:1])["cora", "gcn", "frozen", "a"]["nll"][1])
    with path.open("a") as file:
        file.write(json.dumps({"dataset": "cora"})[:-3])
    with pytest.raises(InputError, match=r"line 13 of .* is no row of results"):
        record.run(GETS_PROTOCOL, path, ["cora"], ["gcn"], ["frozen"], 1, said.append)


@pytest.mark.parametrize(
    ("datasets", "kinds", "tracks", "seeds"),
    [
        (["cora"], ["gcn"], ["thawed"], 1),
        (["cora"], ["gcn"], ["frozen"], 76),
    ],
)
def test_what_a_protocol_does_not_have_is_refused(
    tmp_path: Path, datasets: list[str], kinds: list[str], tracks: list[str], seeds: int
) -> None:
    with pytest.raises(InputError, match=r"study gats: .* must be"):
        record.run(GATS_PROTOCOL, tmp_path / "x.jsonl", datasets, kinds, tracks, seeds, print)
    assert not (tmp_path / "x.jsonl").exists()


@pytest.mark.slow
def test_a_stopped_network_is_that_of_its_epoch() -> None:
    network, graph = GcnTraining(epochs=30), _graph(GATS_PROTOCOL)
    assert graph.split is not None
    stopped, epoch = networks.fit_stopped(network, graph)
    assert 1 <= epoch <= 30
    again = networks.fit(dataclasses.replace(network, epochs=epoch), graph, graph.split.train)
    assert torch.allclose(stopped.logits_of(graph), again.logits_of(graph), atol=1e-5)


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
