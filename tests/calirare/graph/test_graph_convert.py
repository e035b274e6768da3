"""Graphs of PyTorch Geometric, in and out, and by it of networkx."""

from types import SimpleNamespace

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch

from calirare._util.errors import InputError
from calirare.graph.arrays import as_features
from calirare.graph.graph import Graph
from calirare.graph.splits import PARTS
from calirare_ext import Csr
from tests.helpers.graphs import EDGES, N_NODES, small_adjacency, small_features, small_graph


@pytest.fixture(scope="module")
def data_class():
    return pytest.importorskip("torch_geometric.data").Data


def square(n_rows, n_cols=None):
    """A sparse tensor with one edge in both directions."""
    return torch.sparse_coo_tensor(
        torch.tensor([[0, 1], [1, 0]]), torch.ones(2), (n_rows, n_cols or n_rows), check_invariants=True
    )


def plain(data_class, **changes):
    parts = {"x": small_features(), "edge_index": torch.from_numpy(EDGES).T, "y": torch.tensor([0, 1, 2, 0, -1])}
    return data_class(**(parts | changes))


@pytest.mark.slow
def test_data_in_and_out_is_the_same_graph(data_class):
    weights = [2.0, 2.0, 3.0, 3.0, 0.5, 0.5, 1.0, 1.0]
    graph = small_graph(adjacency=small_adjacency(weights)).rare(1)
    data = graph.to_data()
    assert data.train_mask.tolist() == [True, True, True, False, False]
    assert data.original_y.tolist() == [0, 1, 2, 0, -1]
    back = Graph.from_data(data, name="small")
    assert torch.equal(back.adjacency.to_dense(), graph.adjacency.to_dense())
    assert torch.equal(back.x, graph.x)
    assert torch.equal(back.y, graph.y)
    assert torch.equal(back.split.train, graph.split.train)
    assert back.split.name == "public"
    assert "edge_weight" not in small_graph().to_data()
    assert "y" not in small_graph(y=None, split=None).to_data()


def test_edges_point_from_source_to_target(data_class):
    """A one-way edge list read the wrong way round would name the opposite edge."""
    data = plain(data_class, edge_index=torch.tensor([[0], [1]]))
    with pytest.raises(InputError, match=r"edge \(0, 1\) has no opposite edge \(1, 0\)"):
        Graph.from_data(data)
    one_way = torch.zeros(5, 5)
    one_way[0, 1] = 1
    data = plain(data_class, edge_index=None, adj_t=one_way.T.to_sparse_coo())
    with pytest.raises(InputError, match=r"edge \(0, 1\) has no opposite edge \(1, 0\)"):
        Graph.from_data(data)


@pytest.mark.parametrize("layout", ["coo", "csr"])
def test_an_adjacency_stands_for_a_list_of_edges(data_class, layout):
    a = small_adjacency([2.0, 2.0, 3.0, 3.0, 0.5, 0.5, 1.0, 1.0]).to_dense()
    matrix = a.to_sparse_coo() if layout == "coo" else a.to_sparse_csr()
    features = torch.ones(a.shape[0], 2)
    assert torch.equal(Graph.from_edges(matrix, features).adjacency.to_dense(), a)
    for edges in ({"edge_index": matrix}, {"edge_index": None, "adj_t": matrix}):
        assert torch.equal(Graph.from_data(plain(data_class, **edges)).adjacency.to_dense(), a)


@pytest.mark.parametrize("kind", [sp.csr_matrix, sp.coo_matrix, sp.csc_array])
def test_an_adjacency_of_scipy_stands_for_a_list_of_edges(kind):
    dense = np.array([[0, 2, 0], [2, 0, 1], [0, 1, 0]], dtype=float)
    graph = Graph.from_edges(kind(dense), np.eye(3), [0, 1, 0])
    assert np.array_equal(graph.adjacency.to_dense().numpy(), dense)
    with pytest.raises(TypeError, match=r"adjacency must be a calirare_ext\.Csr, got .*: take Graph\.from_edges"):
        Graph(kind(dense), torch.eye(3))


def test_a_stand_in_of_sparse_tensor_stands_for_edges(data_class):
    class Stub:
        def coo(self):
            return torch.from_numpy(EDGES[:, 1].copy()), torch.from_numpy(EDGES[:, 0].copy()), None

        def sparse_sizes(self):
            return N_NODES, N_NODES

    graph = Graph.from_data(plain(data_class, edge_index=None, adj_t=Stub()))
    assert torch.equal(graph.adjacency.to_dense(), small_adjacency().to_dense())


def test_one_column_of_edge_attributes_is_a_weight(data_class):
    graph = Graph.from_data(plain(data_class, edge_attr=torch.full((8, 1), 2.0)))
    assert graph.adjacency.values.tolist() == [2.0] * 8
    graph = Graph.from_data(plain(data_class, edge_attr=torch.ones(8, 3)))
    assert "edge_attr is left out, an edge has one weight and no 3 columns" in graph.notes[0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"edge_index": None}, "edge_index or adj_t, but both are missing"),
        ({"edge_index": torch.zeros(3, 2, dtype=torch.long)}, r"must have shape \[2, m\]"),
        ({"train_mask": torch.ones(5, 2, dtype=torch.bool)}, "choose one of several splits"),
        ({"train_mask": torch.full((5,), 0.5)}, "train_mask must be a bool vector, got float32"),
        ({"train_mask": torch.ones(5).byte() * 2}, r"must be a bool vector, got uint8 of shape \(5,\)"),
        ({"train_mask": torch.ones(3).bool()}, "train_mask must have one entry per node, got 3 for 5 nodes"),
        ({f"{part}_mask": torch.zeros(12).bool() for part in PARTS}, "one entry per node, got 12 for 5 nodes"),
        ({"edge_index": None, "adj_t": square(4)}, r"one row and one column per node, got shape \(4, 4\) for 5 nodes"),
        ({"edge_index": square(5, 50)}, r"one row and one column per node, got shape \(5, 50\) for 5 nodes"),
        ({"edge_index": [[0, 1], [1]]}, "edge_index must be an array, got a list whose rows differ in length"),
        ({"edge_attr": torch.ones(8).to_sparse()}, r"edge_attr must be dense, got a sparse tensor: call to_dense"),
        ({"y": torch.tensor([0, 1, 2, 0, -1]).to_sparse()}, "labels must be dense, got a sparse tensor"),
        ({"y": torch.full((5,), 1e30)}, r"labels must be whole numbers, NaN or -1 where unknown, got 1e\+30 at node 0"),
        ({"x": torch.ones(5).to_sparse()}, "features must be a sparse matrix of single numbers, got 1 sparse and 0"),
        (
            {"x": torch.ones(5, 2).to_sparse(1)},
            "features must be a sparse matrix of single numbers, got 1 sparse and 1",
        ),
        ({"x": torch.ones(5, 2, dtype=torch.complex64).to_sparse()}, "features must be real numbers, got complex64"),
        (
            {"x": torch.full((5, 1), -1e300, dtype=torch.float64)},
            "got -inf at node 0, column 0: .* float32, up to 3.4e38",
        ),
        ({"y": torch.tensor([1, 0.5, 1, 0, 0])}, r"labels must be whole numbers, .* got 0.5 at node 1: number the"),
        ({"edge_weight": torch.zeros(8)}, "finite and positive"),
        ({"x": torch.ones(5)}, r"a row per node, got shape \(5,\): x\[:, None\] makes one column"),
        ({"x": sp.coo_array(np.ones(5))}, r"features must be a sparse matrix, got shape \(5,\)"),
        ({"num_nodes": 7}, "data.num_nodes must be the number of rows of x, 5, got 7"),
        ({"train_mask": torch.tensor([4, 2])}, r"numbers of nodes make one by Split\(train, val, test\)"),
    ],
)
def test_data_that_does_not_fit_is_refused(data_class, changes, message):
    with pytest.raises(InputError, match=message):
        Graph.from_data(plain(data_class, **changes))


GAP = float("nan")
LABELS = [[0, 1, 2, None, True], pd.array([0, 1, 2, None, 1], dtype="Int64")]
LABELS += [torch.tensor([0, 1, 2, GAP, 1], dtype=dtype)[:, None] for dtype in (torch.float64, torch.bfloat16)]


@pytest.mark.parametrize("y", LABELS, ids=["list", "pandas", "float64", "bfloat16"])
def test_labels_may_have_gaps_and_be_numbers_of_any_kind(data_class, y):
    assert Graph.from_data(plain(data_class, y=y)).y.tolist() == [0, 1, 2, -1, 1]


@pytest.mark.parametrize(
    "y",
    [
        pytest.param(["rest", "fraud", "rest", "", None], id="list"),
        pytest.param(np.ma.masked_array(["rest", "fraud", "rest", "fraud", "rest"], [0, 0, 0, 1, 1]), id="masked"),
        pytest.param(pd.Series(["rest", "fraud", "rest", None, pd.NA]), id="column"),
        pytest.param(np.array([["rest"], ["fraud"], ["rest"], [np.nan], [None]], dtype=object), id="n by 1"),
    ],
)
def test_labels_may_be_names(data_class, y):
    graph = Graph.from_data(plain(data_class, y=y))
    assert graph.class_names == ("fraud", "rest")
    assert graph.y.tolist() == [1, 0, 1, -1, -1]
    assert graph.notes == ()


def test_names_of_labels_are_taken_as_a_table_takes_them(data_class):
    assert Graph.from_data(plain(data_class, y=["7", "7", "9", "-1", ""])).class_names == ("7", "9")
    (note,) = Graph.from_data(plain(data_class, y=["ok", "fraud", "unknown", "ok", "ok"])).notes
    assert note.startswith("nodes: 'unknown' (1 node) is read as a class. ")
    with pytest.raises(InputError, match="graph 'data': column 'labels' must name a class in one way, but holds"):
        Graph.from_data(plain(data_class, y=["ok", "fraud", "OK", "ok", "ok"]))
    with pytest.raises(InputError, match=r"labels must be names or whole numbers .* holds 0.5 in row 1: fix"):
        Graph.from_data(plain(data_class, y=["1", "0.5", "1", "0", "0"]))
    with pytest.raises(InputError, match=r"labels must be one name per node, got shape \(5, 2\): keep one"):
        Graph.from_data(plain(data_class, y=[["ok", "fraud"]] * 5))
    with pytest.raises(
        InputError, match=r"labels must be whole numbers, or names of classes as text, got \|S2: number"
    ):
        Graph.from_data(plain(data_class, y=np.array([b"ok"] * 5)))


@pytest.mark.parametrize(
    "features",
    [
        pytest.param(np.ma.masked_equal([[1, 2.5], [9, 1], [1, 1], [0, 1], [1, 1]], 9), id="masked"),
        pytest.param([[1, 2.5], [None, 1], [1, 1], [0, True], [1, 1]], id="None"),
        pytest.param(
            pd.DataFrame({"a": pd.array([1, None, 1, 0, 1], dtype="Int64"), "b": [2.5, 1, 1, 1, 1]}), id="pandas"
        ),
    ],
)
def test_features_that_are_not_known_are_gaps(data_class, features):
    x = Graph.from_data(plain(data_class, x=features)).x
    assert x.isnan().nonzero().tolist() == [[1, 0]]
    assert (x[0].tolist(), x[3].tolist()) == ([1, 2.5], [0, 1])
    for other in ("1.5", pd.Timestamp("2024-01-31")):
        with pytest.raises(InputError, match=r"features must be real numbers, got object: encode what is none"):
            Graph.from_data(plain(data_class, x=np.array([[other, 1]] * 5, dtype=object)))


def test_features_of_a_frame_keep_their_names():
    frame = pd.DataFrame({"amount": [1.0, 2.0, 3.0, 4.0, np.nan], "age": 1})
    graph = Graph.from_edges(EDGES, frame)
    assert graph.feature_names == ("amount", "age")
    assert graph.columns[0].name == "amount"
    assert Graph.from_edges(EDGES, pd.DataFrame(np.ones((5, 2)))).feature_names == ()
    with pytest.raises(InputError, match="'age'"):
        Graph.from_edges(EDGES, frame.set_axis(["age", "age"], axis=1))


def test_arrays_without_features_have_the_number_of_neighbours():
    edges, labels = np.array([[0, 1], [0, 2]]), np.array([1, 0, -1])
    for features in (None, np.zeros((3, 0))):
        graph = Graph.from_edges(edges, features, labels, symmetrize=True)
        assert graph.x.tolist() == [[2.0], [1.0], [1.0]]
        assert graph.feature_names == ("neighbours",)
        assert "the number of neighbours is one" in graph.notes[0]
    with pytest.raises(InputError, match="nothing says how many nodes there are: give features or labels"):
        Graph.from_edges(edges, None, symmetrize=True)


def test_data_without_features_have_the_number_of_neighbours(data_class):
    graph = Graph.from_data(plain(data_class, x=None), name="bare")
    assert graph.x[:, 0].tolist() == graph.adjacency.indptr.diff().tolist()
    assert graph.feature_names == ("neighbours",)
    assert graph.notes == ("nodes: they have no features, the number of neighbours is one: 'neighbours'",)
    known = Graph.from_data(data_class(edge_index=torch.from_numpy(EDGES).T, num_nodes=7))
    assert known.x[:, 0].tolist() == [*graph.x[:, 0].tolist(), 0, 0]
    with pytest.raises(
        InputError, match=r"nothing says how many nodes there are: set data.x, data.y or data.num_nodes"
    ):
        Graph.from_data(SimpleNamespace(edge_index=EDGES.T))


@pytest.mark.parametrize("of", [np.asarray, pd.Series])
def test_what_must_not_be_written_to_is_copied(of):
    y, x = np.array([0, 1, 2, 0, -1]), np.ones((5, 2), dtype=np.float32)
    for part in (y, x):
        part.flags.writeable = False
    assert Graph.from_edges(EDGES, x, of(y)).y.tolist() == y.tolist()


@pytest.mark.parametrize("kind", ["dense", "coo", "csr", "Csr"])
def test_what_wants_a_gradient_becomes_a_constant(tmp_path, kind):
    x, weight = small_features().requires_grad_(), torch.ones(8, requires_grad=True)
    made = {"dense": x, "coo": x.detach().to_sparse().requires_grad_(), "Csr": Csr.from_dense(x)}
    made["csr"] = x.detach().to_sparse_csr().requires_grad_()
    Graph.from_edges(EDGES, made[kind], weight=weight).to_npz(tmp_path / "graph.npz")
    with pytest.raises(InputError, match="features must not require a gradient, got a tensor that does: call detach"):
        small_graph(x=Csr.from_dense(x) if kind == "Csr" else x)


def test_an_adjacency_in_coordinates_keeps_its_repeated_entries():
    matrix = torch.sparse_coo_tensor(
        torch.tensor([[0, 1, 0, 1], [1, 0, 1, 0]]), torch.ones(4), (2, 2), check_invariants=True
    )
    with pytest.raises(InputError, match=r"edges must be listed once, but edge 0 \(0, 1\) is listed 2 times"):
        Graph.from_edges(matrix, torch.ones(2, 1))
    assert Graph.from_edges(matrix, torch.ones(2, 1), duplicates="sum").adjacency.values.tolist() == [2, 2]
    with pytest.raises(InputError, match=r"one row and one column per node, got shape \(2, 2\) for 4 nodes"):
        Graph.from_edges(matrix, torch.ones(4, 1))


def test_sparse_features_of_every_kind_are_the_same(data_class):
    x = small_features()
    for kind in (
        Csr.from_dense(x),
        x.to_sparse_coo(),
        x.to_sparse_csr(),
        sp.coo_matrix(x.numpy()),
        sp.csc_matrix(x.numpy()),
    ):
        got = as_features(kind, "here")
        assert isinstance(got, Csr)
        assert torch.equal(got.to_dense(), x)
    assert torch.equal(small_graph(x=Csr.from_dense(x)).to_data().x, x)
    twice = sp.coo_matrix((np.ones(3), ([0, 0, 1], [1, 1, 0])), shape=(2, 2))
    assert as_features(twice, "here").to_dense().tolist() == [[0, 2], [1, 0]]


@pytest.mark.parametrize("made_of", ["data", "tensors", "arrays"])
def test_later_changes_of_what_it_was_made_of_change_nothing(data_class, made_of):
    x, y, edges = torch.randn(6, 3), torch.tensor([1, 0, 0, 1, 0, -1]), torch.tensor([[0, 1, 2], [1, 2, 3]])
    if made_of == "data":
        graph = Graph.from_data(data_class(x=x, y=y, edge_index=edges), symmetrize=True)
    else:
        given = (edges.T, x, y) if made_of == "tensors" else (edges.T.numpy(), x.numpy(), y.numpy())
        graph = Graph.from_edges(*given, symmetrize=True)
    want = graph.x.clone()
    x.zero_()
    y.fill_(1)
    assert torch.equal(graph.x, want)
    assert graph.y.tolist() == [1, 0, 0, 1, 0, -1]


def test_numbers_of_nodes_are_a_split(data_class):
    edges = torch.tensor([[0, 1, 2], [1, 2, 3]])
    data = data_class(
        x=torch.randn(6, 3), y=torch.tensor([1, 0, 0, 1, 0, 1]), edge_index=edges, train_idx=[3, 0], val_idx=[4]
    )
    split = Graph.from_data(data, symmetrize=True).split
    assert [part.tolist() for part in (split.train, split.val, split.test)] == [[0, 3], [4], []]
    data.val_idx = [3]
    with pytest.raises(InputError, match="node 3 stands in train and val"):
        Graph.from_data(data, symmetrize=True)
    data.val_idx = torch.tensor([6])
    with pytest.raises(InputError, match="val nodes must be from 0 to 5, got 6"):
        Graph.from_data(data, symmetrize=True)


def test_what_is_not_read_is_noted(data_class):
    ends = torch.tensor([[0, 1], [1, 0]])
    data = data_class(x=torch.ones(3, 2), edge_index=ends, y=torch.tensor([0, 1, -1]))
    assert Graph.from_data(data).notes == ()
    data.edge_type = torch.tensor([0, 1])
    assert any("attributes not read: edge_type" in note for note in Graph.from_data(data).notes)
    temporal = pytest.importorskip("torch_geometric.data").TemporalData
    notes = Graph.from_data(temporal(src=ends[0], dst=ends[1], t=torch.tensor([5, 6]), msg=torch.randn(2, 3))).notes
    assert "a TemporalData has no labels; its times t and messages msg are left out" in notes


@pytest.mark.parametrize("mask", [[0, 1, 0], [0.0, 1.0, 0.0], [[False], [True], [False]]])
def test_masks_may_be_floats_or_a_column(data_class, mask):
    data = data_class(x=torch.randn(3, 2), y=torch.tensor([1, 0, 1]), edge_index=torch.tensor([[0], [1]]))
    data.train_mask = torch.tensor(mask)
    assert Graph.from_data(data, symmetrize=True).split.train.tolist() == [1]


def test_networkx_graphs_come_by_pytorch_geometric():
    convert = pytest.importorskip("torch_geometric.utils").from_networkx
    graph = nx.Graph()
    for node in range(5):
        graph.add_node(f"n{node}", size=float(node), place=[1.0, node], y=[0, 1, 2, 0, -1][node])
    for u, v in EDGES[::2]:
        graph.add_edge(f"n{u}", f"n{v}", w=float(1 + min(u, v)))
    made = Graph.from_data(convert(graph, group_node_attrs=["size", "place"], group_edge_attrs=["w"]))
    assert made.x.tolist() == [[i, 1.0, i] for i in range(5)]
    assert made.y.tolist() == [0, 1, 2, 0, -1]
    assert made.adjacency.to_dense()[1].tolist() == [1, 0, 2, 2, 0]
