"""The rules that turn an edge list into a symmetric adjacency, against dense matrices made entry by entry."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from calirare._util.errors import InputError
from calirare.graph.edges import build_adjacency
from calirare.graph.graph import Graph
from calirare.graph.options import EdgeRules
from tests.helpers.graphs import EDGES, small_features


def dense(edges, weights, n, rules):
    """The same rules by a double loop."""
    a = np.zeros((n, n))
    seen = set()
    for i, (u, v) in enumerate(edges):
        if u == v and rules.self_loops == "drop":
            continue
        weight = 1.0 if weights is None else weights[i]
        if (u, v) in seen:
            a[u, v] += weight if rules.duplicates == "sum" else 0
        else:
            a[u, v] = weight
        seen.add((u, v))
    if rules.symmetrize:
        one, both = np.maximum(a, a.T), (a + a.T) / 2
        a = np.where((a > 0) & (a.T > 0), both, one)
    return a


@pytest.mark.slow
@given(
    edges=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=25),
    weighted=st.booleans(),
    symmetrize=st.booleans(),
    duplicates=st.sampled_from(["drop", "sum"]),
    self_loops=st.sampled_from(["drop", "keep"]),
)
def test_rules_agree_with_a_double_loop(edges, weighted, symmetrize, duplicates, self_loops):
    rules = EdgeRules(symmetrize, duplicates, self_loops)
    # Halves of whole numbers: every sum and mean is exact in float32.
    weights = np.arange(1, len(edges) + 1) / 2 if weighted else None
    table = np.array(edges, dtype=np.int64).reshape(-1, 2)
    got = build_adjacency(table, weights, 6, rules, "here")
    got.check_structure()
    assert np.array_equal(got.to_dense().numpy(), dense(edges, weights, 6, rules))
    assert got.nnz == np.count_nonzero(dense(edges, weights, 6, rules))


@pytest.mark.parametrize(
    ("edges", "message"),
    [
        ([[0, 1], [0, 5]], r"here: edge 1 \(0, 5\) must join nodes from 0 to 4: the graph has 5 nodes"),
        ([[0, 1], [-1, 0]], r"edge 1 \(-1, 0\)"),
        ([[0, 1], [1, 0], [0, 1]], r"edge 0 \(0, 1\) is listed 2 times \(1 repeated\): pass duplicates='drop'"),
        ([[0, 1], [2, 2]], r"edge 1 joins node 2 to itself: pass self_loops='drop' or 'keep'"),
        ([[0.0, 1.0]], "ends of edges must be whole numbers, got float64: take .astype"),
        ([["a", "b"]], "ends of edges must be whole numbers, got <U1: Graph.from_tables reads names"),
        ([0, 1], "table of two columns"),
        (np.eye(5), r"got shape \(5, 5\): scipy.sparse.csr_array makes an adjacency of it"),
        ([[0, 1, 2]], "table of two columns"),
    ],
)
def test_faults_are_named(edges, message):
    with pytest.raises(InputError, match=message):
        build_adjacency(np.array(edges), None, 5, EdgeRules(), "here")


@pytest.mark.parametrize("weight", [0, -1.0, np.nan, np.inf, 1e39])
def test_weights_must_be_finite_and_positive(weight):
    with pytest.raises(InputError, match=r"finite and positive in float32, got .* at edge 1 \(1, 0\)"):
        build_adjacency(np.array([[0, 1], [1, 0]]), np.array([1, weight]), 5, EdgeRules(), "here")


def test_weights_must_be_numbers_one_per_edge():
    with pytest.raises(InputError, match="one number per edge"):
        build_adjacency(EDGES, np.ones(3), 5, EdgeRules(), "here")
    with pytest.raises(InputError, match="must be numbers, got <U1"):
        build_adjacency(EDGES, np.array(["a"] * 8), 5, EdgeRules(), "here")


@pytest.mark.parametrize("rules", [{"duplicates": "keep"}, {"self_loops": "sum"}])
def test_unknown_words_are_refused(rules):
    with pytest.raises(InputError, match="must be one of error"):
        EdgeRules(**rules)


def test_from_edges_takes_arrays_tensors_and_lists():
    graph = Graph.from_edges(EDGES, small_features().numpy(), [0, 1, 2, 0, -1], name="mine")
    again = Graph.from_edges(torch.from_numpy(EDGES), small_features(), torch.tensor([0, 1, 2, 0, -1]))
    assert graph.name == "mine"
    assert torch.equal(graph.adjacency.to_dense(), again.adjacency.to_dense())
    assert graph.y.tolist() == again.y.tolist() == [0, 1, 2, 0, -1]
    assert graph.adjacency.to_dense()[1].tolist() == [1, 0, 1, 1, 0]


def test_from_edges_asks_for_both_directions():
    half = EDGES[::2]
    with pytest.raises(InputError, match=r"pass symmetrize=True \(command line: --symmetrize\)"):
        Graph.from_edges(half, small_features())
    graph = Graph.from_edges(half, small_features(), symmetrize=True, weight=[1.0, 2.0, 3.0, 4.0])
    assert graph.adjacency.to_dense()[1].tolist() == [1, 0, 2, 4, 0]
