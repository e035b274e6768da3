"""Which column holds the names of nodes where edges lead to nodes without a row."""

import numpy as np
import pandas as pd
import pytest

import calirare
from calirare._util.errors import InputError
from calirare.datasets import load_dataset
from calirare.graph import Graph
from calirare.graph.tables.roles import column_of_names
from calirare.graph.tables.sources import TableInMemory

N = 40
NAMES = np.random.default_rng(3).permutation(N)
NODES = pd.DataFrame({"f": NAMES % 7, "label": ["fraud" if i % 3 == 0 else "ok" for i in range(N)]})
UNKNOWN = 8  # of 2 * N ends


def edges_of(names, unknown):
    """A ring of the nodes, and every fifth edge leads to a node without a row instead."""
    ends = [str(name) for name in np.roll(names, 1)]
    ends[::5] = unknown
    return pd.DataFrame({"source": names, "target": ends})


def found(nodes, edges):
    column = column_of_names(TableInMemory("edges", edges), TableInMemory("nodes", nodes), (None, None))
    return None if column is None else (column.name, column.rows)


def others(first):
    return [f"{first + i}" for i in range(UNKNOWN)]


TEXT = [f"acc{i}" for i in NAMES]


@pytest.mark.parametrize(
    ("names", "unknown"),
    [
        (TEXT, [f"elsewhere{i}" for i in range(UNKNOWN)]),
        (TEXT, ["cash"] * UNKNOWN),
        ([str(5000 + i) for i in NAMES], others(9000)),
        ([f"{i:04}" for i in 41 + NAMES], others(9000)),
    ],
    ids=["text", "one-elsewhere", "numbers", "digits"],
)
def test_a_column_with_most_ends_holds_the_names(tmp_path, names, unknown):
    edges, nodes = tmp_path / "edges.csv", tmp_path / "nodes.csv"
    table = edges_of(names, unknown)
    table.to_csv(edges, index=False)
    NODES.assign(account=names).to_csv(nodes, index=False)
    with pytest.raises(
        InputError, match=r"has none, named in line 2 \(7 more\): .*--unknown-ends drop or add\); .*'account'"
    ):
        load_dataset(edges, minority="fraud")
    graph = load_dataset(edges, minority="fraud", unknown_ends="drop")
    want = load_dataset(edges, minority="fraud", unknown_ends="drop", id="account")
    assert "nodes: the edges refer to them by column 'account'" in graph.notes
    assert f"edges: left out, edges of nodes that the node table does not have: {UNKNOWN}" in graph.notes
    assert graph.node_names.tolist() == want.node_names.tolist() == table["source"].tolist()
    assert graph.adjacency.to_dense().tolist() == want.adjacency.to_dense().tolist()
    assert graph.tables.id == "account"
    assert graph.feature_names == ("f",)


def test_a_column_that_counts_the_rows_is_no_feature_but_names_the_nodes(tmp_path):
    edges, nodes = tmp_path / "edges.csv", tmp_path / "nodes.csv"
    pd.DataFrame({"source": np.arange(N), "target": np.roll(np.arange(N), 1)}).to_csv(edges, index=False)
    NODES.assign(account=range(N)).to_csv(nodes, index=False)
    graph = load_dataset(edges, minority="fraud")
    assert graph.feature_names == ("f",)
    assert graph.tables.id == "account"
    assert graph.node_names.tolist() == [str(i) for i in range(N)]
    assert "nodes: the edges refer to them by column 'account'" in graph.notes
    later = NODES.assign(account=range(500, 500 + N)).drop(columns="label")
    ends = pd.DataFrame({"source": 500 + np.arange(N), "target": 500 + np.roll(np.arange(N), 1)})
    outcome = calirare.train(graph, model="hops", epochs=2, folds=0)
    assert len(outcome.score(Graph.from_tables(ends, later, id="account")).table) == N


def test_columns_that_name_fewer_than_half_as_many_ends_do_not_count():
    nodes = NODES.assign(customer=5000 + N - 16 + NAMES, account=5000 + NAMES)
    edges = edges_of(5000 + NAMES, others(9000))
    ends = [
        int(edges.isin([str(c) for c in nodes[name]] + list(nodes[name])).sum().sum())
        for name in ("customer", "account")
    ]
    assert 2 * ends[0] < ends[1] < 2 * N
    assert found(nodes, edges) == ("account", False)


@pytest.mark.parametrize(
    "others_of",
    [
        {"customer": 5000 + NAMES[::-1]},  # the same numbers, of other nodes
        {"customer": 5001 + NAMES},  # all but one of them
        {"customer": 5000 + N // 2 - 4 + NAMES},  # more than half of them
    ],
)
def test_two_columns_that_fit_about_as_well_are_asked_for(tmp_path, others_of):
    nodes, edges = NODES.assign(account=5000 + NAMES, **others_of), edges_of(5000 + NAMES, others(9000))
    assert found(nodes, edges) is None
    nodes.to_csv(tmp_path / "nodes.csv", index=False)
    edges.to_csv(tmp_path / "edges.csv", index=False)
    with pytest.raises(InputError, match=r"no column 'node' or 'id', got .*say which it is: --id"):
        load_dataset(tmp_path / "edges.csv", minority="fraud")


@pytest.mark.parametrize("first", [0, 1, N // 2 - 4])
def test_numbers_that_may_be_those_of_the_rows_are_asked_for(first):
    edges = edges_of(first + NAMES, others(9000))
    named = found(NODES.assign(account=first + NAMES), edges)
    assert named is None
    rows = np.arange(N)
    assert found(NODES.assign(account=rows), edges_of(rows, others(9000))) == ("account", True)  # both mean the same


def test_row_numbers_of_which_some_are_too_large_are_no_numbers_of_a_column():
    edges = edges_of(np.arange(N), others(9000))
    assert found(NODES.assign(size=7 * NAMES + 30), edges) is None


def test_a_column_with_every_end_goes_before_one_with_all_but_one():
    nodes = NODES.assign(account=5000 + NAMES, customer=5001 + NAMES)
    assert found(nodes, pd.DataFrame({"source": 5000 + NAMES, "target": 5000 + NAMES[::-1]})) == ("account", False)


def test_of_few_ends_that_are_named_no_column_is_made():
    edges = pd.DataFrame({"source": [*TEXT[:4], "x"], "target": [f"elsewhere{i}" for i in range(5)]})
    assert found(NODES.assign(account=TEXT), edges) is None
    edges.loc[4, "source"] = TEXT[4]
    assert found(NODES.assign(account=TEXT), edges) == ("account", False)


def test_edges_that_leave_the_table_once_each_are_half_known():
    edges = pd.DataFrame({"source": np.repeat(TEXT, 3), "target": [f"elsewhere{i}" for i in range(3 * N)]})
    assert found(NODES.assign(account=TEXT), edges) == ("account", False)


@pytest.mark.parametrize("kind", [str, int, float])
def test_names_of_other_types_in_tables_in_memory_are_the_same(kind):
    nodes = NODES.assign(account=(5000 + NAMES).astype(kind))
    edges = pd.DataFrame({"source": 5000 + NAMES, "target": np.r_[9000, 5000 + NAMES[1:]]})
    graph = Graph.from_tables(edges, nodes, "label", unknown_ends="drop")
    assert "edges: left out, edges of nodes that the node table does not have: 1" in graph.notes
    assert graph.node_names.tolist() == [str(5000 + i) for i in NAMES]


def paid(names, unknown):
    """The same edges in a table that does not say which columns are the ends."""
    edges = edges_of(names, unknown).set_axis(["payer", "payee"], axis=1)
    return edges.assign(tx=[f"t{i}" for i in range(N)], channel=["web", "pos"] * (N // 2))[
        ["tx", "payer", "payee", "channel"]
    ]


def test_ends_of_any_name_are_found_where_edges_lead_to_unknown_nodes(tmp_path):
    paid(TEXT, others(9000)).to_csv(tmp_path / "edges.csv", index=False)
    NODES.assign(account=TEXT).to_csv(tmp_path / "nodes.csv", index=False)
    with pytest.raises(InputError, match=r"node '9000' has none, named in line 2 \(7 more\): .*--unknown-ends drop"):
        load_dataset(tmp_path / "edges.csv", minority="fraud")
    graph = load_dataset(tmp_path / "edges.csv", minority="fraud", unknown_ends="drop")
    assert (graph.tables.source, graph.tables.target, graph.tables.id) == ("payer", "payee", "account")
    assert f"edges: left out, edges of nodes that the node table does not have: {UNKNOWN}" in graph.notes


@pytest.mark.parametrize(
    ("names", "more"),
    [
        (TEXT, {"approver": TEXT[::-1][: N // 2] + ["nobody"] * (N // 2)}),  # a third column of nodes
        (
            TEXT,
            {"payee": [*TEXT[: N // 2 - 1], *["cash"] * (N // 2 + 1)], "agent": ([f"ag{i}" for i in range(9)] * 5)[:N]},
        ),
        (TEXT, {"payee": ["cash"] * N}),  # which is no name of a node: too few different ones
        ([str(5000 + i) for i in NAMES], {}),  # numbers may be amounts
    ],
)
def test_ends_that_may_be_others_are_asked_for(tmp_path, names, more):
    paid(names, others(9000)).assign(**more).to_csv(tmp_path / "edges.csv", index=False)
    NODES.assign(account=names).to_csv(tmp_path / "nodes.csv", index=False)
    with pytest.raises(
        InputError, match=r"must name two columns, source and target .*--source-column, --target-column"
    ):
        load_dataset(tmp_path / "edges.csv", minority="fraud", unknown_ends="drop")
