"""Features as one matrix: rows, tf-idf and singular directions against scikit-learn; other graphs; refusals."""

import numpy as np
import pytest
import torch
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfTransformer

from calirare._util.errors import InputError
from calirare.features import FeatureMap
from calirare.graph import normalize_features
from calirare_ext import Csr
from tests.helpers.raw_columns import graph_of, plain_graph
from tests.helpers.tolerance import assert_identical, assert_within, sum_bound

RNG = np.random.default_rng(0)
BAG = torch.from_numpy((RNG.random((60, 150)) < 0.08) * RNG.integers(1, 4, (60, 150))).float()


def bag(x: torch.Tensor = BAG, **changes):
    return plain_graph(Csr.from_dense(x), **changes)


@pytest.mark.parametrize("how", ["auto", "row"])
def test_rows_of_words_are_divided_by_their_sums(how):
    got = FeatureMap.fit(bag(), how).transform(bag()).x
    assert_identical(got.values, normalize_features(bag(), "row").x.values)
    assert FeatureMap.fit(bag(), how).log == ("150 sparse features: each row divided by its sum",)


def test_signed_sparse_features_stay_as_they_are():
    graph = bag(BAG - 2 * BAG * (BAG == 3))
    assert FeatureMap.fit(graph).transform(graph).x is graph.x


def test_tfidf_is_scikit_learns():
    want = torch.from_numpy(TfidfTransformer().fit_transform(BAG.double().numpy()).toarray())
    fitted = FeatureMap.fit(bag(), "tfidf")
    assert_within(fitted.transform(bag()).x.to_dense(), want, sum_bound(want, 8, want.abs(), out=torch.float32))
    # The run's weights, not those of the graph at hand.
    got = fitted.transform(bag(BAG[:9])).x.to_dense()
    assert_within(got, want[:9], sum_bound(want[:9], 8, want[:9].abs(), out=torch.float32))


def test_directions_are_those_of_scikit_learn(monkeypatch):
    monkeypatch.setattr("calirare.features.matrix_maps.DIRECTIONS", 10)
    words = TfidfTransformer().fit_transform(BAG.double().numpy())
    want = torch.from_numpy(TruncatedSVD(10, random_state=3).fit(words).transform(words))
    fitted = FeatureMap.fit(bag(), "svd", seed=3)
    size = torch.from_numpy(np.abs(words.toarray()).sum(1, keepdims=True)).expand_as(want)
    found = fitted.transform(bag()).x
    assert_within(found[:, :10], want, sum_bound(want, 151, size, out=torch.float32))
    assert torch.equal(found[:, 10], (BAG != 0).sum(1).double().log1p().float())  # as rows of length 1 do not have it
    assert fitted.n_features == found.shape[1]
    assert fitted.feature_names == (*(f"direction {i}" for i in range(1, 11)), "log number of features")
    assert fitted.log[0].startswith("150 sparse features: 10 singular directions, ")


def test_words_are_found_by_name():
    names = tuple(f"w{i}" for i in range(150))
    fitted = FeatureMap.fit(bag(feature_names=names), "tfidf")
    order = torch.from_numpy(RNG.permutation(150))
    turned = bag(BAG[:, order], feature_names=tuple(names[i] for i in order))
    want = fitted.transform(bag(feature_names=names))
    got = fitted.transform(turned)
    assert got.feature_names == want.feature_names == names
    assert_identical(got.x.to_dense(), want.x.to_dense())


@pytest.mark.parametrize(
    ("graph", "how", "message"),
    [
        (bag(), "standardize", "standardize needs dense features, but those of graph 'plain' are sparse"),
        (bag(), "rank", "rank needs dense features"),
        (bag(BAG - 2 * BAG), "tfidf", "tfidf needs features >= 0, but graph 'plain' has -3"),
        (bag(BAG - 2 * BAG), "row", "row needs features >= 0, but graph 'plain' has -3"),
        (plain_graph(BAG[:, :9]), "svd", "svd needs more than 128 features, but graph 'plain' has 9"),
        (graph_of({"c": ["a", "b"]}), "row", "row needs features of one kind, but those of graph 'raw' are columns"),
    ],
)
def test_ways_that_do_not_suit_are_refused(graph, how, message):
    with pytest.raises(InputError, match=message):
        FeatureMap.fit(graph, how)


def test_columns_of_another_kind_that_the_map_does_not_read_are_left_out():
    own, said = {name: RNG.random(60).tolist() for name in "abc"}, []
    plain = plain_graph(torch.tensor(list(own.values())).float().T.contiguous(), feature_names=tuple(own))
    fitted = FeatureMap.fit(plain, "row")
    other = graph_of({"city": ["x", "y"] * 30, "c": own["c"], "a": own["a"], "b": own["b"]})
    assert_identical(fitted.transform(other, said.append).x, fitted.transform(plain).x)
    assert any("city" in note for note in said)
    with pytest.raises(InputError, match="must be finite numbers, but a holds names"):
        fitted.transform(graph_of(own | {"a": ["x", "y"] * 30}))
