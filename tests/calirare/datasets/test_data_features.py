"""Scaling of features: what each way gives, and that signed features are never divided by their sum."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from calirare._util.errors import InputError
from calirare.graph import Graph, normalize_features
from calirare.graph.features import weights_note
from calirare_ext import Csr
from tests.helpers.graphs import small_graph

WORDS = torch.tensor([[1.0, 0, 1], [0, 0, 0], [2, 1, 1], [0, 0, 4], [1, 1, 1]])
SHARES = [[0.5, 0, 0.5], [0, 0, 0], [0.5, 0.25, 0.25], [0, 0, 1]]


@pytest.mark.parametrize("sparse", [False, True])
def test_rows_sum_to_one_and_empty_rows_stay(sparse):
    graph = small_graph(x=Csr.from_dense(WORDS) if sparse else WORDS, feature_normalisation="row")
    scaled = normalize_features(graph)
    x = scaled.x.to_dense() if sparse else scaled.x
    assert x[:4].tolist() == SHARES
    assert np.array_equal(x[4].numpy(), np.full(3, 1 / 3, dtype=np.float32))
    assert isinstance(scaled.x, Csr) == sparse
    assert x.dtype == torch.float32
    assert torch.equal(graph.x.to_dense() if sparse else graph.x, WORDS)
    assert scaled.feature_normalisation == "none"
    assert normalize_features(scaled).x is scaled.x


def test_columns_are_standardised_as_by_scikit_learn():
    from sklearn.preprocessing import StandardScaler

    x = torch.cat([WORDS * 3 - 1, torch.full((5, 1), 0.1)], 1)
    got = normalize_features(small_graph(x=x), "standardize").x
    want = StandardScaler().fit_transform(x[:, :3].double().numpy()).astype(np.float32)
    assert np.array_equal(got[:, :3].numpy(), want)
    assert got[:, 3].tolist() == [0] * 5


def test_ways_that_do_not_suit_are_refused():
    signed = small_graph(x=WORDS - 1)
    with pytest.raises(InputError, match="row needs features >= 0, but graph 'small' has -1: take how='standardize'"):
        normalize_features(signed, "row")
    assert torch.equal(normalize_features(signed, "none").x, signed.x)
    with pytest.raises(InputError, match="standardize needs dense features"):
        normalize_features(small_graph(x=Csr.from_dense(WORDS)), "standardize")
    with pytest.raises(InputError, match="how must be row, standardize or none, got 'rows'"):
        normalize_features(signed, "rows")


@pytest.mark.parametrize(
    ("spread", "n", "words"), [(6.0, 300, "1e-06"), (6.0, 20_001, "1e-06"), (1.0, 300, ""), (0, 300, "")]
)
def test_weights_that_hide_all_neighbours_but_one_are_noted(spread, n, words):
    rng = np.random.default_rng(0)
    ends = np.unique(np.sort(rng.integers(n, size=(4 * n, 2)), axis=1), axis=0)
    ends = ends[ends[:, 0] < ends[:, 1]]
    weights = 10 ** rng.uniform(-spread, spread, len(ends))
    weights[:: len(ends) - 1] = 10**-spread, 10**spread
    adjacency = sp.coo_array((weights, ends.T), (n, n))
    graph = Graph.from_edges(adjacency + adjacency.T, torch.ones(n, 1))
    note = weights_note(graph)
    assert bool(note) == bool(words)
    assert words in note
    assert ("one edge has 80% of the weight" in note) == ("hides the others" in note) == bool(words)
    alone = sp.coo_array(([1e9, 1e9], ([0, 1], [1, 0])), (n, n))  # who has one neighbour sees it
    assert weights_note(Graph.from_edges(alone, torch.ones(n, 1))) == ""
