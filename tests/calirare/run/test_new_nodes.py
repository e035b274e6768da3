"""A new node is scored as the graph with the node in it would be, and only what lies near it is touched."""

from __future__ import annotations

import dataclasses
import sys
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch

import calirare
from calirare._util.errors import InputError
from calirare.graph import Graph, Relation
from calirare_ext import Csr
from tests.helpers.command import few_candidates, rough_runs
from tests.helpers.tasks import rare_task

LEVEL = 1e-5  # of logits in float32: sums in another order
QUICK = {"epochs": 15, "folds": 0}


def weighted(graph: Graph) -> Graph:
    """The graph with weights from 1 to 2 and a self loop at node 5, and names of its nodes."""
    dense = graph.adjacency.to_dense()
    noise = torch.rand(dense.shape, generator=torch.Generator().manual_seed(0))
    dense = dense * (1 + (noise + noise.T) / 2)
    dense[5, 5] = 0.7
    names = np.array([f"n{i}" for i in range(graph.n_nodes)])
    return dataclasses.replace(graph, adjacency=Csr.from_dense(dense), node_names=names)


def with_nodes(graph: Graph, x, neighbours, weights, among) -> Graph:
    """The graph with new nodes at its end."""
    n, b = graph.n_nodes, len(x)
    dense = torch.zeros(n + b, n + b)
    dense[:n, :n] = graph.adjacency.to_dense()
    for j, (near, of_each) in enumerate(zip(neighbours, weights, strict=True)):
        for u, w in zip(near, of_each, strict=True):
            dense[n + j, u] = dense[u, n + j] = w
    for i, j in among:
        dense[n + i, n + j] = dense[n + j, n + i] = 1
    names = None if graph.node_names is None else np.array([*graph.node_names, *(f"new {j}" for j in range(b))])
    parts = {"node_names": names, "split": None, "y": None, "original_y": None, "class_names": (), "posterior": None}
    return dataclasses.replace(graph, adjacency=Csr.from_dense(dense), x=torch.cat([graph.x, x]), **parts)


@pytest.fixture(scope="module")
def graph():
    return weighted(rare_task())


MODELS = {
    "gcn of three layers and two hops": {"model": "gcn", "n_layers": 3, "hops": 2},
    "hops far": {"model": "hops", "hops": 3},
    "trees": {"model": "trees"},
}


@pytest.mark.slow
@pytest.mark.parametrize("how", MODELS.values(), ids=MODELS)
def test_several_new_nodes_are_scored_as_in_the_whole_graph(graph, how):
    check(calirare.train(graph, **QUICK, **how), graph)


@pytest.mark.slow
def test_auto_scores_them_so_too_and_from_a_folder(graph, tmp_path):
    with rough_runs(), few_candidates():
        outcome = calirare.train(graph)
        outcome.save(tmp_path / "run")
    check(outcome, graph)
    stored = calirare.Scorer.open(tmp_path / "run", graph)
    one = (graph.x[3], ["n3", "n8"])
    assert float((stored.logits(*one) - calirare.Scorer.open(outcome).logits(*one)).abs().max()) < LEVEL


def check(outcome, graph: Graph) -> None:
    """Compares three new nodes: two that share neighbours and an edge, one of them alone in the world."""
    x = graph.x[[0, 40, 99]] + 0.3
    neighbours, weights, among = [[5, 17, 30, 31], [17, 5], []], [[1.0, 0.5, 2.0, 1.0], [1.0, 3.0], []], [[0, 1]]
    scorer = calirare.Scorer.open(outcome)
    named = [[f"n{u}" for u in near] for near in neighbours]
    got = scorer.logits(x, named, weights=weights, among=among)
    want = outcome.fit.logits_of(outcome.features.transform(with_nodes(graph, x, neighbours, weights, among)))
    assert float((got - want[-3:]).abs().max()) < LEVEL
    bare = outcome.fit.logits_of(outcome.features.transform(with_nodes(graph, x, [[], [], []], [[], [], []], [])))
    assert float((got[:2] - bare[-3:-1]).abs().max()) > 100 * LEVEL, "edges must matter, or nothing was shown"
    said = scorer.score(x, named, weights=weights, among=among)
    table = outcome.score(with_nodes(graph, x, neighbours, weights, among), say=lambda note: None).table.iloc[-3:]
    assert np.abs(said.rare.numpy() - table["p_rare"].to_numpy()).max() < LEVEL
    assert said.alert.long().tolist() == table["alert"].tolist()


@pytest.mark.slow
def test_threads_that_share_a_scorer_get_their_own_answers(graph):
    scorer = calirare.Scorer.open(calirare.train(graph, model="hops", **QUICK))
    alone = [scorer.logits(graph.x[i], [f"n{i}", "n99"]) for i in range(8)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as threads:
            asked = list(range(8)) * 10
            got = list(threads.map(lambda i: scorer.logits(graph.x[i], [f"n{i}", "n99"]), asked))
    finally:
        sys.setswitchinterval(before)
    assert all(torch.equal(each, alone[i]) for i, each in zip(asked, got, strict=True))


def test_degrees_of_known_neighbours_change_and_that_matters(graph, monkeypatch):
    outcome = calirare.train(graph, model="gcn", **QUICK)
    scorer = calirare.Scorer.open(outcome)
    exact = scorer.logits(graph.x[0], ["n5", "n17"])
    monkeypatch.setattr("calirare.models.graph_delta.GraphDelta.added", lambda self, nodes: np.zeros(len(nodes)))
    assert float((scorer.logits(graph.x[0], ["n5", "n17"]) - exact).abs().max()) > 100 * LEVEL


@pytest.fixture(scope="module")
def shop() -> calirare.Scorer:
    """A run on a table of numbers, names, numbers that are names, and dates."""
    rng = np.random.default_rng(0)
    n = 200
    nodes = pd.DataFrame(
        {
            "id": [f"a{i}" for i in range(n)],
            "amount": np.where(rng.random(n) < 0.1, np.nan, rng.gamma(1, 50, n)),
            "kind": rng.choice(["card", "cash"], n),
            "branch": rng.choice(["7", "8", "north", "south"], n),
            "since": pd.to_datetime("2024-01-01") + pd.to_timedelta(rng.integers(0, 500, n), "D"),
            "vip": rng.random(n) < 0.5,
            "label": np.where(rng.random(n) < 0.3, "fraud", "fine"),
        }
    )
    edges = pd.DataFrame({"source": nodes["id"], "target": nodes["id"].to_numpy()[(7 * np.arange(n) + 1) % n]})
    graph = Graph.from_tables(edges, nodes, "label", one_hot=("branch",))
    return calirare.Scorer.open(calirare.train(graph, model="hops", **QUICK))


def test_features_may_come_by_name_as_records_and_tables(shop):
    day = (pd.Timestamp("2024-03-05") - pd.Timestamp("2000-01-01")).days
    known = ["a1", "a5"]
    record = {"kind": "cash", "amount": 12.5, "vip": True, "branch": 8, "since": "2024-03-05", "note": "not read"}
    want = shop.logits([12.5, 1, 1, day, 1], known)
    assert torch.equal(shop.logits(record, known), want)
    assert torch.equal(shop.logits(pd.Series(record), known), want)
    assert torch.equal(shop.logits(record | {"since": pd.Timestamp("2024-03-05")}, known), want)
    assert torch.equal(shop.logits(record | {"branch": "8", "vip": "true"}, known), want)
    other = {"kind": None, "amount": float("nan"), "vip": None, "branch": "", "since": pd.NaT}
    both = shop.logits([[12.5, 1, 1, day, 1], [np.nan] * 5], [known, []])
    arrow = pa.Table.from_pylist([record | {"branch": "8"}, dict.fromkeys(record)])
    polars = SimpleNamespace(__arrow_c_stream__=arrow.__arrow_c_stream__)  # as its frames
    for rows in ([record, other], pd.DataFrame([record, other]), arrow, polars):
        assert torch.equal(shop.logits(rows, [known, []]), both)
    gaps = {"kind": pd.NA, "amount": np.float32("nan"), "vip": pd.NA, "branch": None, "since": np.datetime64("NaT")}
    assert torch.equal(shop.logits([record, gaps], [known, []]), both)
    new = shop.logits(record | {"kind": "crypto"}, known)  # as a table with a category that the run does not know
    assert bool(new.isfinite().all())
    assert not torch.equal(new, want)


def test_named_features_that_do_not_fit_are_refused(shop, small):
    record = {"kind": "cash", "amount": 12.5, "vip": True, "branch": 8, "since": "2024-03-05"}
    for change, message in (
        ({"amount": "much"}, "new nodes: column 'amount' holds 'much' where the run has numbers, in row 0"),
        ({"amount": float("inf")}, "features must be from -1e\\+19 to 1e\\+19, but column .amount. holds inf in row 0"),
        ({"since": "05/03/24"}, "new nodes: column 'since' holds '05/03/24' where the run has dates, in row 0"),
    ):
        with pytest.raises(InputError, match=message):
            shop.score(record | change, ["a1"])
    del record["vip"]
    with pytest.raises(
        InputError, match="a value or None for each of amount, kind, branch, since and vip, but has no 'vip'"
    ):
        shop.score(record, ["a1"])
    with pytest.raises(InputError, match="must be numbers in the order of the features of graph 'task', which have no"):
        small[1].score({"amount": 1.0}, ["n7"])
    frame = pd.DataFrame([[0.5, 1.0, 1.5, 2.0]])  # whose features have no names, in their order
    assert torch.equal(small[1].logits(frame, [["n7"]]), small[1].logits(frame.to_numpy(), [["n7"]]))


WRONG = {
    "an unknown name": (([0.0] * 4, ["n7", "nobody"]), {}, "no node 'nobody'"),
    "a name given twice": (([0.0] * 4, ["n7", "n7"]), {}, "named once"),
    "too few features": (([0.0] * 3, ["n7"]), {}, r"must have 4 features .* got shape \(1, 3\)"),
    "text": ((["a", "b", "c", "d"], ["n7"]), {}, "real numbers"),
    "a number that is none": (([float("nan")] * 4, ["n7"]), {}, "finite"),
    "one sequence for two": (([[0.0] * 4] * 2, [["n7"]]), {}, "one sequence per node, 2, got 1"),
    "no sequence": (([0.0] * 4, 1), {}, "neighbours must be one sequence per node, got"),
    "a word": (([0.0] * 4, "ab"), {}, "neighbours must be one sequence per node, got"),
    "a weight too few": (([0.0] * 4, ["n7", "n8"]), {"weights": [1.0]}, "one number per neighbour"),
    "a weight of zero": (([0.0] * 4, ["n7"]), {"weights": [0.0]}, "above 0"),
    "an edge to itself": (([[0.0] * 4] * 2, [[], []]), {"among": [[1, 1]]}, "two new nodes"),
    "an edge to nobody": (([[0.0] * 4] * 2, [[], []]), {"among": [[0, 2]]}, "from 0 to 1"),
    "an edge twice": (([[0.0] * 4] * 2, [[], []]), {"among": [[0, 1], [1, 0]]}, "each pair once"),
}


@pytest.fixture(scope="module")
def small():
    """A graph with four features, and a scorer of it."""
    x = rare_task().x[:, :4].contiguous()
    graph = weighted(dataclasses.replace(rare_task(), x=x))
    return graph, calirare.Scorer.open(calirare.train(graph, model="gcn", **QUICK))


@pytest.mark.parametrize(("given", "more", "message"), WRONG.values(), ids=WRONG)
def test_what_cannot_be_a_new_node_is_refused(small, given, more, message):
    with pytest.raises(InputError, match=message) as refused:
        small[1].score(*given, **more)
    assert ". " not in str(refused.value)


def test_numbers_out_of_range_and_other_graphs_are_refused(small):
    graph, _ = small
    bare = dataclasses.replace(graph, node_names=None)
    outcome = calirare.train(bare, model="gcn", **QUICK)
    scorer = calirare.Scorer.open(outcome)
    for wrong in ([-1], [graph.n_nodes], [1.5]):
        with pytest.raises(InputError, match="numbers"):
            scorer.score([0.0] * 4, wrong)
    pays = Relation.of("pays", Csr.from_coo(torch.tensor([0]), torch.tensor([1]), None, (graph.n_nodes,) * 2))
    typed = dataclasses.replace(bare, relations=(pays,))
    with pytest.raises(InputError, match="typed or directed relations"):
        calirare.Scorer.open(calirare.train(typed, model="hops", **QUICK), typed)
    same = calirare.Scorer.open(outcome, typed).logits([0.0] * 4, [1])  # types that the run does not know of
    assert torch.equal(same, scorer.logits([0.0] * 4, [1]))
