"""Which columns hold the names of nodes and the ends of edges where nobody has named them."""

import numpy as np
import pandas as pd
import pytest

from calirare._util.errors import InputError
from calirare.datasets import load_dataset
from calirare.graph import Graph

N = 40
NAMES = np.random.default_rng(3).permutation(N)
NODES = pd.DataFrame({"f": NAMES % 7, "label": ["fraud" if i % 3 == 0 else "ok" for i in range(N)]})
TEXT = [f"acc{i}" for i in NAMES]
DIGITS = [f"{i:04}" for i in 41 + NAMES]


def ring(names, ends=("source", "target")):
    """Edges from every node to the next."""
    return pd.DataFrame({ends[0]: names, ends[1]: np.roll(names, 1)})


@pytest.mark.parametrize("names", [TEXT, 5000 + NAMES, DIGITS], ids=["text", "numbers", "digits"])
def test_the_only_column_with_every_end_holds_the_names(tmp_path, names):
    edges, nodes = tmp_path / "edges.csv", tmp_path / "nodes.csv"
    ring(names).to_csv(edges, index=False)
    NODES.assign(customer=5001 + NAMES, account=names).to_csv(nodes, index=False)
    graph = load_dataset(edges, rare_class="fraud")
    want = load_dataset(edges, rare_class="fraud", id="account")
    assert "nodes: the edges refer to them by column 'account'" in graph.notes
    assert graph.node_names.tolist() == want.node_names.tolist() == [str(name) for name in names]
    assert graph.adjacency.to_dense().tolist() == want.adjacency.to_dense().tolist()
    assert (graph.tables.id, graph.feature_names) == ("account", ("f", "customer"))


def test_a_column_that_counts_the_rows_is_no_feature_but_names_the_nodes(tmp_path):
    edges, nodes = tmp_path / "edges.csv", tmp_path / "nodes.csv"
    ring(np.arange(N)).to_csv(edges, index=False)
    NODES.assign(account=range(N)).to_csv(nodes, index=False)
    graph = load_dataset(edges, rare_class="fraud")
    assert graph.feature_names == ("f",)
    assert graph.tables.id == "account"
    assert graph.node_names.tolist() == [str(i) for i in range(N)]
    assert "nodes: the edges refer to them by column 'account'" in graph.notes


def test_numbers_that_may_be_those_of_the_rows_are_asked_for():
    with pytest.raises(InputError, match=r"by their row numbers or by column 'account', both fit: .*--id COLUMN"):
        Graph.from_tables(ring(NAMES), NODES.assign(account=NAMES), "label")


def test_one_end_without_a_row_does_not_hide_the_names():
    edges, nodes = ring([*TEXT[:-1], "cash"], ("payer", "payee")), NODES.assign(account=TEXT)
    graph = Graph.from_tables(edges, nodes, "label", unknown_ends="drop")
    assert (graph.tables.id, graph.n_edges) == ("account", 2 * (N - 2))
    with pytest.raises(InputError, match=r"node 'cash' has none.*--unknown-ends"):
        Graph.from_tables(edges, nodes, "label")


def test_names_that_several_columns_have_are_asked_for():
    nodes = NODES.assign(account=TEXT, customer=TEXT[::-1])
    with pytest.raises(
        InputError, match=r"column 'account' holds another text .*name it 'node' or 'id' \(command line: --id"
    ):
        Graph.from_tables(ring(TEXT), nodes, "label", unknown_ends="drop")


def paid(names):
    """The same edges in a table that does not say which columns are the ends."""
    return ring(names, ("payer", "payee")).assign(tx=[f"t{i}" for i in range(N)], channel=["web", "pos"] * (N // 2))


@pytest.mark.parametrize(("names", "ids"), [(TEXT, None), (5000 + NAMES, "account"), (DIGITS, "account")])
def test_ends_are_the_only_two_columns_of_names(tmp_path, names, ids):
    paid(names).to_csv(tmp_path / "edges.csv", index=False)
    NODES.assign(account=names).to_csv(tmp_path / "nodes.csv", index=False)
    graph = load_dataset(tmp_path / "edges.csv", rare_class="fraud", id=ids)
    assert (graph.tables.source, graph.tables.target, graph.tables.id) == ("payer", "payee", "account")
    assert graph.notes[0].startswith("edges: from column 'payer' to column 'payee', the two whose cells name nodes")


def test_ends_that_may_be_others_are_asked_for():
    with pytest.raises(
        InputError, match=r"must name two columns, source and target .*--source-column, --target-column"
    ):
        Graph.from_tables(
            paid(TEXT).assign(approver=TEXT[::-1]), NODES.assign(account=TEXT), "label", unknown_ends="drop"
        )
