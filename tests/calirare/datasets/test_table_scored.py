"""Nodes that carry edges alone: ends without a row in the node table, and rows of a kind that cannot be rare."""

import numpy as np
import pandas as pd
import pytest
import torch

from calirare._util.errors import InputError
from calirare.datasets import load_dataset, read_graph
from calirare.graph import Graph

N, DEVICES, ROWS = 40, 12, 100  # of accounts; of devices with edges, and with a row of their own
ACCOUNTS = pd.DataFrame(
    {
        "account": [f"acc{i:02}" for i in range(N)],
        "amount": np.arange(N) * 1.5,
        "label": ["fraud" if i % 4 == 0 else "ok" if i % 4 == 1 else "" for i in range(N)],
    }
)
USES = pd.DataFrame(
    {
        "account": [f"acc{i % N:02}" for i in range(2 * N)],
        "device": [f"dev{i * 7 % DEVICES}" for i in range(2 * N)],
        "amount": np.arange(2 * N),
    }
)
BOTH = pd.concat(
    [
        ACCOUNTS.assign(kind="account"),
        pd.DataFrame({"account": [f"dev{i}" for i in range(ROWS)], "label": "", "kind": "device"}),
    ]
)


def read(nodes=ACCOUNTS, edges=USES, **options):
    options = {"source_column": "account", "target_column": "device", "id": "account"} | options
    return Graph.from_tables(edges, nodes, "label", **options)


def test_ends_without_a_row_join_as_nodes_that_are_not_scored():
    graph = read(unknown_ends="add")
    devices = sorted({f"dev{i}" for i in range(DEVICES)})
    assert graph.node_names.tolist() == [*ACCOUNTS["account"], *devices]
    assert graph.scored.tolist() == [True] * N + [False] * DEVICES
    assert graph.y[N:].tolist() == [-1] * DEVICES
    assert graph.feature_names == ("amount", "listed")
    assert graph.x[:, 1].tolist() == graph.scored.float().tolist()
    assert graph.x[N:, 0].isnan().all()
    assert graph.unlabelled.tolist() == [i for i in range(N) if i % 4 > 1]
    pairs = {(f"acc{i % N:02}", f"dev{i * 7 % DEVICES}") for i in range(2 * N)}
    names = graph.node_names
    rows, columns = graph.adjacency.to_dense().nonzero(as_tuple=True)
    assert {(names[i], names[j]) for i, j in zip(rows, columns, strict=True) if i < j} == pairs
    assert any(f"{DEVICES} nodes of the edges have no row" in note for note in graph.notes)


def test_they_join_unasked_where_every_edge_leads_to_one():
    graph = read()
    assert (graph.n_nodes, graph.tables.unknown_ends) == (N + DEVICES, "add")
    one_known = pd.concat([USES, pd.DataFrame({"account": ["acc00"], "device": ["acc01"], "amount": [1]})])
    with pytest.raises(InputError, match=r"has none.*the node join \(--unknown-ends drop or add"):
        read(edges=one_known)


def test_a_device_that_is_met_later_is_not_there_yet():
    seen = [f"2024-01-{1 + i % 28:02}" for i in range(2 * N)]
    edges = USES.assign(seen=seen)
    graph = read(edges=edges, time="seen", as_of="2024-01-03", source_column="account", target_column="device")
    here = edges[edges["seen"] <= "2024-01-03"]
    joined = sorted(set(graph.node_names) - set(ACCOUNTS["account"]))
    assert joined == sorted(here["device"].unique())
    assert len(joined) < DEVICES
    assert f"edges: left out, edges after the end of 2024-01-03: {len(edges) - len(here)}" in graph.notes


def test_a_column_called_listed_is_refused():
    with pytest.raises(InputError, match="feature 'listed', which is there: rename"):
        read(ACCOUNTS.assign(listed=np.arange(N)))


def test_rows_of_one_kind_are_scored():
    graph = read(BOTH, target_nodes="kind=account")
    assert graph.scored.tolist() == [True] * N + [False] * ROWS
    assert not any("--target-nodes" in note for note in graph.notes)
    assert read(BOTH, target_nodes="kind=device, account").scored.all()


@pytest.mark.parametrize(
    ("scored", "message"),
    [
        ("kind", r"a column and its values, such as kind=account, got 'kind'; there are .*kind"),
        ("sort=account", "such as kind=account, got 'sort=account'"),
        ("kind=acount", r"no row has kind = acount, got .*; there are account and device \(--target-nodes\)"),
        ("kind=device", "every node with a label must be a target node, but node 'acc00' has one"),
    ],
)
def test_rows_that_cannot_be_meant_are_refused(scored, message):
    with pytest.raises(InputError, match=message):
        read(BOTH, target_nodes=scored)


def test_stored_graphs_know_which_nodes_are_scored(tmp_path):
    graph = load_dataset_of(tmp_path)
    graph.to_npz(tmp_path / "g.npz")
    graph.to_folder(tmp_path / "g")
    for path in ("g.npz", "g"):
        assert torch.equal(Graph.read(tmp_path / path)[0].scored, graph.scored)
    np.savez(tmp_path / "odd.npz", **dict(np.load(tmp_path / "g.npz")) | {"scored": np.arange(graph.n_nodes)})
    with pytest.raises(InputError, match="scored must hold True or False for each node, got int64"):
        Graph.read(tmp_path / "odd.npz")


def load_dataset_of(tmp_path):
    ACCOUNTS.to_csv(tmp_path / "nodes.csv", index=False)
    USES.to_csv(tmp_path / "edges.csv", index=False)
    ends = {"source_column": "account", "target_column": "device"}
    return load_dataset(tmp_path / "edges.csv", rare_class="fraud", scale="auto", id="account", **ends)


PARTS = ["train", "train", "test", "", "val", ""]


def tables(folder, labels):
    nodes = pd.DataFrame({"node": range(6), "x": np.arange(6) / 3, "label": labels, "split": PARTS})
    nodes.to_csv(folder / "n.csv", index=False)
    pd.DataFrame({"source": range(5), "target": range(1, 6)}).to_csv(folder / "e.csv", index=False)
    return {"path_or_name": folder / "e.csv", "nodes": folder / "n.csv"}


@pytest.mark.parametrize("labels", [[""] * 6, ["0.5", "1", "0", "", "1", "0"], ["-3", "1", "0", "", "1", "0"]])
def test_a_table_to_score_is_read_without_them(tmp_path, labels):
    given = tables(tmp_path, labels)
    path = given.pop("path_or_name")
    graph, _ = read_graph(path, **given, need_label=False)
    assert graph.y is None
    assert any(note.startswith("nodes: no label is read, nor needed here: ") for note in graph.notes)
    with pytest.raises(InputError, match=r"must have a label|labels must be names or whole numbers"):
        load_dataset(path, **given)


def test_labels_that_can_be_read_are(tmp_path):
    given = tables(tmp_path, ["1", "0", "0", "", "1", ""])
    graph, _ = read_graph(given.pop("path_or_name"), **given, need_label=False)
    assert graph.y.tolist() == [1, 0, 0, -1, 1, -1]
    assert graph.split.train.tolist() == [0, 1]
