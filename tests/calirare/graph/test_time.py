"""Times of nodes: how they are read and kept, and what is split and folded by them."""

import numpy as np
import pandas as pd
import pytest
import torch
from torch_geometric.data import Data

import calirare
from calirare._util.errors import InputError
from calirare.graph import Graph, Split
from calirare.models.crossfit import time_folds

N = 200


def timed(n=N, seed=0):
    rng = np.random.default_rng(seed)
    y = torch.from_numpy((rng.random(n) < 0.3).astype(np.int64))
    time = torch.from_numpy(rng.permutation(n).astype(np.float64))
    ring = torch.stack([torch.arange(n), (torch.arange(n) + 1) % n], 1)
    graph = Graph.from_edges(ring, torch.from_numpy(rng.standard_normal((n, 3))).float(), y, symmetrize=True)
    return calirare.graph.Graph(graph.adjacency, graph.x, y, time=time, name="timed")


def test_the_newest_labels_test_and_the_newest_of_the_others_calibrate():
    graph = timed()
    split = Split.by_time(graph.y, graph.time)
    train, val, test = (graph.time[part] for part in (split.train, split.val, split.test))
    assert train.max() < val.min() <= val.max() < test.min()
    assert (len(train), len(val), len(test)) == (120, 30, 50)


def test_too_few_rare_labels_test_nothing_and_more_calibrate():
    y = torch.zeros(N, dtype=torch.int64)
    y[::20] = 1
    split = Split.by_time(y, torch.arange(N).double())
    assert (len(split.train), len(split.val), len(split.test)) == (100, 100, 0)
    assert int(y[split.val].sum()) == 5  # half of the labels at most


def test_a_graph_with_times_is_split_by_them_unless_another_split_is_named():
    prepared = calirare.datasets.with_task(timed())
    assert prepared.split.name == "time(test=0.25)"
    assert calirare.datasets.with_task(timed(), split="share").split.name.startswith("share(")
    with pytest.raises(InputError, match="needs a time of each node"):
        calirare.datasets.with_task(Graph(timed().adjacency, timed().x, timed().y), split="time")


def test_folds_are_spans_of_time_and_the_first_one_is_the_newest():
    graph, nodes = timed(), torch.arange(0, N, 2)
    fold = time_folds(graph, nodes, 5, seed=0)
    order = torch.argsort(graph.time[nodes])
    assert bool((fold[order].diff() <= 0).all())
    assert torch.bincount(fold).tolist() == [20] * 5


def test_nodes_of_the_same_time_are_in_no_order():
    y = (torch.arange(N) >= N // 2).long()
    split = Split.by_time(y, torch.zeros(N, dtype=torch.float64))
    assert all(0.3 < y[part].double().mean() < 0.7 for part in (split.train, split.val, split.test))


def test_a_class_of_one_span_is_spread_over_the_folds():
    graph = timed()
    y = (graph.time >= N - 20).long()
    fold = time_folds(Graph(graph.adjacency, graph.x, y, time=graph.time), torch.arange(N), 5, seed=0)
    assert len(torch.unique(fold[y == 1])) == 5


def test_without_times_folds_are_random():
    graph = timed()
    plain, nodes = Graph(graph.adjacency, graph.x, graph.y), torch.arange(N)
    assert torch.equal(time_folds(plain, nodes, 5, 3), calirare.models.fold_of(graph.y, 5, 3))


@pytest.mark.parametrize("kind", ["npz", "folder"])
def test_times_are_stored(tmp_path, kind):
    graph = timed()
    path = tmp_path / ("g.npz" if kind == "npz" else "g")
    (graph.to_npz if kind == "npz" else graph.to_folder)(path)
    assert torch.equal(Graph.read(path)[0].time, graph.time)


def test_a_labelled_node_must_have_a_time():
    graph, time = timed(), timed().time.clone()
    time[7] = torch.nan
    with pytest.raises(InputError, match="labelled node 7 must have a finite time"):
        Graph(graph.adjacency, graph.x, graph.y, time=time)
    y = graph.y.clone()
    y[7] = -1
    assert Graph(graph.adjacency, graph.x, y, time=time).time.isnan().sum() == 1
    with pytest.raises(TypeError, match="time must be float64"):
        Graph(graph.adjacency, graph.x, graph.y, time=graph.time.long())


@pytest.mark.parametrize("name", ["time", "node_time"])
def test_pyg_times_are_read(name):
    data = Data(x=torch.eye(4), edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), y=torch.tensor([0, 1, 0, 1]))
    data[name] = torch.tensor([3, 1, 2, 5])
    assert Graph.from_data(data, symmetrize=True).time.tolist() == [3.0, 1.0, 2.0, 5.0]


@pytest.mark.parametrize("dates", [True, False])
def test_a_node_is_as_old_as_its_first_edge(tmp_path, dates):
    times = np.array([5, 3, 9, 4])
    ends = np.array([[0, 1], [1, 2], [0, 2], [2, 3]])
    when = (pd.Timestamp("2000-01-01") + pd.to_timedelta(times, "D")).strftime("%Y-%m-%d") if dates else times
    pd.DataFrame({"node": list("abcde"), "x": range(5), "label": [0, 1, 0, 1, 0]}).to_csv(
        tmp_path / "n.csv", index=False
    )
    names = np.array(list("abcde"))[ends]
    pd.DataFrame({"source": names[:, 0], "target": names[:, 1], "when": when}).to_csv(tmp_path / "e.csv", index=False)
    graph = Graph.from_edges(tmp_path / "e.csv", tmp_path / "n.csv", "label", time="when")
    assert (graph.time - graph.time.min()).tolist() == [2, 0, 0, 1, 0]  # the last one has no edge
    assert any("first edge" in note for note in graph.notes)
    until = Graph.from_edges(tmp_path / "e.csv", tmp_path / "n.csv", "label", time="when", as_of=str(when[0]))
    assert (until.time - until.time.min()).tolist() == [2, 0, 0, 1, 0]
    data = Data(x=torch.eye(5), edge_index=torch.from_numpy(ends.T), y=torch.tensor([0, 1, 0, 1, 0]))
    data.edge_time = torch.from_numpy(times)
    assert Graph.from_data(data, symmetrize=True).time.tolist() == [5, 3, 3, 4, 3]
    (tmp_path / "e.csv").write_text("source,target,when\na,b,3\nb,c,soon\n")
    with pytest.raises(InputError, match="column 'when' holds 'soon' in line 3"):
        Graph.from_edges(tmp_path / "e.csv", tmp_path / "n.csv", "label", time="when")


@pytest.mark.parametrize("dates", [True, False])
def test_a_column_of_the_node_table_is_the_time_and_no_feature(tmp_path, dates):
    rows = np.arange(40)
    when = pd.date_range("2024-01-01", periods=40).strftime("%Y-%m-%d") if dates else rows
    nodes = pd.DataFrame({"node": [f"a{i}" for i in rows], "amount": rows % 7, "when": when, "label": rows % 3 == 0})
    nodes.to_csv(tmp_path / "nodes.csv", index=False)
    edges = pd.DataFrame({"source": nodes.node[:-1], "target": nodes.node[1:].to_numpy()})
    edges.to_csv(tmp_path / "edges.csv", index=False)
    graph = Graph.from_edges(tmp_path / "edges.csv", tmp_path / "nodes.csv", "label", time="when")
    assert graph.feature_names == ("amount",)
    assert graph.time.diff().tolist() == [1.0] * 39
    with pytest.raises(InputError, match="there is no column 'then'"):
        Graph.from_edges(tmp_path / "edges.csv", tmp_path / "nodes.csv", "label", time="then")
