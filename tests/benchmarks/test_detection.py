"""The detection benchmark: what methods may see, what the tables hold, what is made of the results."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from calirare.datasets import synthetic_rare
from tests.helpers.tolerance import assert_telling, assert_within, sum_bound

PARTS = ("tasks", "columns", "amlsim", "peers", "networks", "cells", "summary")


@pytest.fixture
def bench(bench: Any) -> Any:
    return SimpleNamespace(**{part: bench(f"detection.{part}") for part in PARTS})


def simulated(bench: Any, n: int = 400) -> Any:
    return bench.tasks.Task(synthetic_rare(n, seed=3, n_features=4, share=0.2))


@pytest.mark.parametrize("regime", ["scarce", "shot", "forty"])
def test_a_method_sees_the_labels_drawn_and_no_other(bench: Any, regime: str) -> None:
    task = simulated(bench)
    drawn = bench.tasks.draw(task, regime, 1)
    y, labelled = drawn.y, np.sort(drawn.labelled)
    assert np.array_equal(np.flatnonzero(y >= 0), labelled)
    assert np.array_equal(y[labelled], task.y[labelled])
    assert not np.isin(drawn.test, labelled).any()
    assert np.array_equal(np.union1d(drawn.test, labelled), np.arange(400))
    for graph in (drawn.seen, drawn.scored):
        assert graph.posterior is None
        assert graph.original_y is None
    assert drawn.scored.y is None
    assert drawn.seen.split.test.numel() == 0


def accounts(folder: Path, later_value: float, later_target: int) -> None:
    """Writes ten accounts: 0 a fraud of step 5, 1 of step 120, 2 without a date; transfers at 5, 50, 120 and 140."""
    (folder / "fraud").mkdir(exist_ok=True)
    step = [5, 120, -1, *[-1] * 7]
    table = {"nodeid": range(10), "isFraud": [1] * 3 + [0] * 7, "init_balance": np.arange(10.0), "fraudStep": step}
    pd.DataFrame(table).to_csv(folder / "fraud/amlsim_accounts.csv.gz", index=False)
    rows = [(0, 3, 2.0, 5), (4, 5, 1.0, 50), (1, later_target, later_value, 120), (7, 8, later_value, 140)]
    names = ["sourceNodeId", "targetNodeId", "value", "time"]
    pd.DataFrame(rows, columns=names).to_csv(folder / "fraud/amlsim_transactions.csv.gz", index=False)


def test_nothing_of_the_future_is_in_the_graph_that_trains(bench: Any, tmp_path: Path) -> None:
    tasks = []
    for value, target in ((3.0, 6), (900.0, 9)):
        accounts(tmp_path, value, target)
        tasks.append(bench.amlsim.amlsim(tmp_path))
    one, other = tasks
    assert torch.equal(one.graph.x, other.graph.x)
    assert torch.equal(one.graph.adjacency.indices, other.graph.adjacency.indices)
    assert not torch.equal(one.later.x, other.later.x)
    assert not torch.equal(one.later.adjacency.indices, other.later.adjacency.indices)
    assert one.graph.n_edges == 4
    assert one.later.n_edges == 8


def test_a_fraud_is_known_from_its_step_on_and_without_a_date_never(bench: Any, tmp_path: Path) -> None:
    accounts(tmp_path, 3.0, 6)
    task = bench.amlsim.amlsim(tmp_path)
    assert task.y[:3].tolist() == [1, 1, -1]
    assert 0 in task.known
    assert 1 in task.asked
    assert 2 not in np.concatenate([task.known, task.asked])
    assert not np.isin(task.known, task.asked).any()
    assert (task.y[task.known] == 0).sum() == 3


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["GCN", "SAGE"])
def test_prepared_layers_are_those_of_pytorch_geometric(bench: Any, kind: str) -> None:
    nn = pytest.importorskip("torch_geometric.nn")
    graph = synthetic_rare(60, seed=1, n_features=5)
    torch.manual_seed(0)
    network = bench.networks.Network(kind, 5).eval()
    layers = [nn.GCNConv(5, 64), nn.GCNConv(64, 2)] if kind == "GCN" else [nn.SAGEConv(5, 64), nn.SAGEConv(64, 2)]
    for theirs, ours in zip(layers, (network.first, network.second), strict=True):
        theirs.load_state_dict(ours.state_dict())
        theirs.double()
    edges, x = graph.to_data().edge_index, graph.x.double()
    with torch.no_grad():
        found = network(bench.networks.prepared(kind, graph, graph.x.numpy()))
        expected = layers[1](layers[0](x, edges).relu(), edges)
        for layer in layers:
            for parameter in layer.parameters():
                parameter.abs_()
        magnitude = layers[1](layers[0](x.abs(), edges), edges)
    bound = sum_bound(expected, 5 + 64 + 2 * graph.n_nodes, magnitude, out=torch.float32)
    assert_telling(expected, bound)
    assert_within(found, expected, bound)


@pytest.mark.slow
def test_labels_of_test_nodes_do_not_reach_a_peer(bench: Any) -> None:
    task = simulated(bench)
    drawn = bench.tasks.draw(task, "shot", 0)
    blind = dataclasses.replace(task, graph=bench.tasks.without_labels(task.graph))
    for name in ("boosting", "RFGraph, calibrated", "logistic"):
        both = [bench.peers.score(name, bench.columns.Tables(given), drawn) for given in (task, blind)]
        assert np.array_equal(*both), name
        assert np.corrcoef(both[0], task.y[drawn.test])[0, 1] > 0.2, name


def line(bench: Any, method: str, split: int, auprc: float, brier: float = 0.1) -> dict[str, Any]:
    numbers = dict.fromkeys(bench.summary.NUMBERS, 0.1) | {"auprc": auprc, "brier": brier, "nll": brier}
    return {"set": "cora", "regime": "shot", "split": split, "method": method, "commit": "abc"} | numbers


def test_the_summary_takes_the_later_line_and_names_what_is_lost(bench: Any) -> None:
    rows = [line(bench, "calirare", 0, 0.1), line(bench, "calirare", 0, 0.6), line(bench, "calirare", 1, 0.8)]
    rows += [
        line(bench, "boosting", 0, 0.72),
        line(bench, "GCN", 0, 0.705),
        line(bench, "GCN, calibrated", 0, 0.9, 0.2),
    ]
    found = bench.summary.summary(rows)
    cells = {cell["method"]: cell for cell in found["cells"]}
    assert cells["calirare"]["auprc"] == {"mean": 0.7, "std": pytest.approx(0.14142)}
    assert cells["calirare"]["splits"] == 2
    bars = found["bars"]["calirare"]
    assert [lost["peer"] for lost in bars["lost"]] == ["boosting"]
    assert bars["probabilities"] == [{"set": "cora", "regime": "shot", "brier": True, "nll": True}]
    assert "GCN, calibrated" not in bars["means"]
