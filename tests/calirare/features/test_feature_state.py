"""A map as tensors and JSON: what comes back maps as before."""

import datetime
import json

import numpy as np
import pytest
import torch
from safetensors.torch import load, save

from calirare._util.errors import InputError
from calirare.features import FeatureMap
from calirare.graph import Column, Graph, normalize_features
from calirare_ext import Csr
from tests.helpers.raw_columns import graph_of, plain_graph, ring
from tests.helpers.tolerance import assert_identical

RNG = np.random.default_rng(1)
N = 300


def raw(seed: int = 0, **changes) -> Graph:
    """Every kind of column, with gaps."""
    rng = np.random.default_rng(seed)
    start = datetime.datetime(2023, 1, 1)
    columns = {
        "tail": np.exp(2 * rng.standard_normal(N)),
        "zeros": np.where(rng.random(N) < 0.7, 0, rng.random(N) ** -2.0),
        "bell": [None, *rng.standard_normal(N - 1)],
        "flag": rng.integers(0, 2, N),
        "same": np.ones(N),
        "city": [None, *rng.choice(["Bern", "Oslo", "Rome"], N - 1)],
        "shop": [f"s{i}" for i in rng.integers(0, 25, N)],
        "when": [start + datetime.timedelta(hours=int(h)) for h in rng.integers(0, 12000, N)],
    }
    return graph_of(columns, rng.integers(0, 2, N), **changes)


def again(fitted: FeatureMap) -> FeatureMap:
    """Returns a map stored as a run stores it, and read."""
    tensors, facts = fitted.state()
    stored = load(save({name: value.contiguous() for name, value in tensors.items()}))
    return FeatureMap.from_state(stored, json.loads(json.dumps(facts)))


@pytest.mark.parametrize("how", ["auto", "rank", "standardize", "none", "stored"])
def test_a_stored_map_of_columns_maps_as_before(how):
    graph, nodes = raw(), torch.arange(0, N, 2)
    fitted = FeatureMap.fit(graph, how, nodes=nodes)
    read = again(fitted)
    for each in (graph, raw(1)):
        want, got = fitted.transform(each), read.transform(each)
        assert_identical(got.x, want.x)
        assert got.feature_names == want.feature_names
    assert (read.log, read.how, read.columns, read.newest) == (fitted.log, how, graph.columns, fitted.newest)
    assert read.n_features == want.n_features


def test_a_stored_map_finds_named_nodes_again():
    graph = raw(node_names=np.array([f"n{i}" for i in range(N)]))
    fitted = FeatureMap.fit(graph, nodes=torch.arange(0, N, 2))
    assert_identical(again(fitted).transform(graph).x, fitted.transform(graph).x)
    plain = raw()
    assert not torch.equal(again(fitted).transform(plain).x, fitted.transform(graph).x)


@pytest.mark.parametrize("how", ["auto", "row", "tfidf", "svd", "none"])
def test_a_stored_map_of_words_maps_as_before(how):
    words = torch.from_numpy((RNG.random((140, 140)) < 0.1).astype(np.float32))
    graph = plain_graph(Csr.from_dense(words))
    fitted = FeatureMap.fit(graph, how)
    want, got = fitted.transform(graph).x, again(fitted).transform(graph).x
    if isinstance(want, Csr):
        assert_identical(got.values, want.values)
    else:
        assert_identical(got, want)
    assert again(fitted).n_features == got.shape[1]


def test_raw_columns_are_stored_with_a_graph(tmp_path):
    graph = raw()
    graph.to_npz(tmp_path / "g.npz")
    graph.to_folder(tmp_path / "g")
    want = FeatureMap.fit(graph).transform(graph).x
    for path in (tmp_path / "g.npz", tmp_path / "g"):
        read, _ = Graph.read(path)
        assert read.columns == graph.columns
        assert_identical(read.x, graph.x)
        assert_identical(FeatureMap.fit(read).transform(read).x, want)


def test_what_computes_with_raw_columns_says_so():
    graph = raw()
    message = (
        r"the features of graph 'raw' must be finite numbers, but city and shop hold names of categories, when holds "
        r"dates, bell and city lack 2 values \(the first of node 0\): map them with .*FeatureMap"
    )
    for use in (normalize_features, Graph.to_data):
        with pytest.raises(InputError, match=message):
            use(graph)


@pytest.mark.parametrize(
    ("columns", "x", "message"),
    [
        ((Column("a"),), [[1.0, 2.0]], "columns must be one per feature, got 1 for 2 features"),
        ((Column("a"), Column("a")), [[1.0, 2.0]], "feature_names must differ, but 'a' stands at 0 and at 1"),
        ((Column("a"), Column("b", "word")), [[1.0, 2.0]], "column 'b' must be numeric, categorical, date, got 'word'"),
        (
            (Column("a"), Column("b", "categorical", ("x",))),
            [[1.0, 0.5]],
            "of its 1 categories, got 0.5 at node",
        ),
        ((Column("a"), Column("b")), [[1.0, np.inf]], "features must be finite, got inf at node 0, column 1"),
    ],
)
def test_columns_must_fit_the_features(columns, x, message):
    with pytest.raises(InputError, match=message):
        plain_graph(x, adjacency=ring(1), columns=columns)
