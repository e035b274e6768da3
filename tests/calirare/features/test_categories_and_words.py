"""Categories and words: a column each, or mean labels out of fold; tf-idf and directions of scikit-learn."""

import numpy as np
import pytest
import torch
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.model_selection import StratifiedKFold

from calirare._util.errors import InputError
from calirare.features import FeatureMap
from calirare.graph import normalize_features
from calirare_ext import Csr
from tests.helpers.raw_columns import graph_of, plain_graph
from tests.helpers.tolerance import assert_identical, assert_within, sum_bound

CITIES = ["Bern"] * 6 + ["Oslo"] * 5 + ["Rome"] * 4 + ["Lima"]


def rows(fitted: FeatureMap, graph) -> dict[str, list[float]]:
    out = fitted.transform(graph)
    return {name: out.x[:, i].tolist() for i, name in enumerate(out.feature_names)}


def test_common_categories_get_a_column_and_rare_ones_share_one():
    graph = graph_of({"city": CITIES})
    fitted = FeatureMap.fit(graph)
    want = {
        "city=Bern": [1] * 6 + [0] * 10,
        "city=Oslo": [0] * 6 + [1] * 5 + [0] * 5,
        "city=Rome": [0] * 11 + [1] * 4 + [0],
        "city=other": [0] * 15 + [1],
    }
    assert rows(fitted, graph) == want
    assert fitted.log == ("city: a column per category",)


def test_a_category_the_run_never_saw_is_other():
    fitted = FeatureMap.fit(graph_of({"city": CITIES}))
    new = graph_of({"city": ["Kyiv", "Rome", None, "Lima"]})  # numbered otherwise than in the run
    assert rows(fitted, new) == {
        "city=Bern": [0, 0, 0, 0],
        "city=Oslo": [0, 0, 0, 0],
        "city=Rome": [0, 1, 0, 0],
        "city=other": [1, 0, 0, 1],
    }


def test_missing_is_a_category_where_it_is_common():
    fitted = FeatureMap.fit(graph_of({"city": [*CITIES[:12], None, None, None, None]}))
    assert fitted.feature_names == ("city=Bern", "city=Oslo", "city=missing", "city=other")
    assert rows(fitted, graph_of({"city": ["Rome", None]}))["city=missing"] == [0, 1]


@pytest.mark.parametrize(
    ("cells", "names"),
    [
        (["no", "yes", "no", "yes"], ("c=yes",)),
        (["a", "a", "a", "b"], ("c=a",)),
        (["a", "a", None, None], ("c=missing",)),
    ],
)
def test_two_columns_that_say_the_same_are_one(cells, names):
    graph = graph_of({"c": cells, "v": [1, 2, 3, 4]})
    fitted = FeatureMap.fit(graph)
    assert fitted.feature_names == ("v", *names)
    first = names[0].removeprefix("c=")
    assert rows(fitted, graph)[names[0]] == [float((cell or "missing") == first) for cell in cells]


def test_numbers_may_be_names():
    x = torch.tensor([[1.0], [1], [2], [2], [7], [7]])
    graph = plain_graph(x, feature_names=("region",))
    fitted = FeatureMap.fit(graph, one_hot=["region"])
    assert fitted.feature_names == ("region=1", "region=2", "region=7")
    assert rows(fitted, plain_graph([[7.0], [3], [1]], feature_names=("region",)))["region=7"] == [1, 0, 0]
    with pytest.raises(InputError, match="graph 'plain', area is not among region"):
        FeatureMap.fit(graph, one_hot=["area"])


def many(n: int = 600) -> tuple[dict[str, list], torch.Tensor, torch.Tensor]:
    """Thirty shops whose share of fraud differs, all nodes labelled but every fifth."""
    rng = np.random.default_rng(5)
    shop = rng.integers(0, 30, n)
    y = torch.from_numpy((rng.random(n) < 0.05 + 0.6 * (shop < 6)).astype(np.int64))
    y[::5] = -1
    return {"shop": [f"shop {i}" for i in shop]}, y, (y >= 0).nonzero().flatten()


def drawn_mean(here: np.ndarray, y: np.ndarray) -> float:
    """The mean label of a category under a normal prior around that of all (Micci-Barreca 2001, empirical Bayes)."""
    shares = here.sum() * y.var() / (here.sum() * y.var() + y[here].var())
    return shares * y[here].mean() + (1 - shares) * y.mean()


def test_many_categories_get_mean_labels_out_of_fold():
    columns, y, nodes = many()
    graph = graph_of(columns, y)
    fitted = FeatureMap.fit(graph, nodes=nodes)
    assert (fitted.feature_names, fitted.log) == (("shop rate",), ("shop: mean label of the category, out of fold",))
    names, labels = np.array(columns["shop"]), y[nodes].numpy()
    want = np.array([drawn_mean(names[nodes] == name, labels) for name in names])
    for others, these in StratifiedKFold(5, shuffle=True, random_state=0).split(labels, labels):
        seen = names[nodes[others]]
        want[nodes[these]] = [drawn_mean(seen == name, labels[others]) for name in names[nodes[these]]]
    want = torch.from_numpy((want - want.mean()) / want.std())[:, None]
    got = fitted.transform(graph).x
    assert_within(got, want, sum_bound(want, 64, want.abs() + 4, out=torch.float32, accumulate=torch.float64))
    other = fitted.elsewhere().transform(graph_of({"shop": columns["shop"]})).x
    assert not torch.equal(other[nodes], got[nodes])
    assert_identical(other[::5], got[::5])


def test_a_named_node_is_found_again_in_other_graphs():
    """Rows in another order, no labels, new nodes: a training node keeps its own label out; others are as any node."""
    columns, y, nodes = many()
    names = np.array([f"\ud800 {i}" for i in range(len(y))])  # half a character is a name too
    fitted = FeatureMap.fit(graph_of(columns, y, node_names=names), nodes=nodes)
    want = fitted.transform(graph_of(columns, y, node_names=names)).x
    assert_identical(want, FeatureMap.fit(graph_of(columns, y), nodes=nodes).transform(graph_of(columns, y)).x)
    order = np.random.default_rng(0).permutation(len(y))
    shops = np.array(columns["shop"])
    later = {"shop": [*shops[order], *shops]}
    met = graph_of(later, node_names=np.array([*names[order], *(f"new and longer {i}" for i in range(len(y)))]))
    got = fitted.transform(met).x
    assert_identical(got[: len(y)], want[order])
    anyone = fitted.transform(graph_of(columns)).x
    assert_identical(got[len(y) :], anyone)
    assert not torch.equal(want[nodes], anyone[nodes])


def test_a_named_node_of_another_category_by_now_is_as_any_node():
    columns, y, nodes = many()
    names = np.array([f"client {i}" for i in range(len(y))])
    fitted = FeatureMap.fit(graph_of(columns, y, node_names=names), nodes=nodes)
    moved = {"shop": np.roll(columns["shop"], 1).tolist()}
    got, anyone = fitted.transform(graph_of(moved, node_names=names)).x, fitted.transform(graph_of(moved)).x
    here = np.array(moved["shop"]) != np.array(columns["shop"])
    assert_identical(got[here], anyone[here])
    assert not torch.equal(got[~here], anyone[~here])


@pytest.mark.parametrize("labels", ["none", "others"])
def test_without_names_the_own_graph_is_known_whatever_labels_it_has(labels):
    """Own tables without labels were another graph, and P was off by up to .4."""
    columns, y, nodes = many()
    fitted = FeatureMap.fit(graph_of(columns, y), nodes=nodes)
    again = graph_of(columns) if labels == "none" else graph_of(columns, 1 - y)
    assert_identical(fitted.transform(again).x, fitted.transform(graph_of(columns, y)).x)


def test_a_label_is_not_in_its_own_feature():
    """Where each category has one label, that label is all there is to its mean, and must not reach its own node."""
    shops = np.repeat(np.arange(40), 6)
    y = torch.full((240,), -1)
    y[::6] = torch.arange(40) % 4 == 0
    nodes = torch.arange(0, 240, 6)
    graph = graph_of({"shop": [f"s{i}" for i in shops]}, y)
    got = FeatureMap.fit(graph, nodes=nodes).transform(graph).x[:, 0]
    rare = y[nodes] == 1
    assert got[nodes + 1][rare].min() > got[nodes + 1][~rare].max()  # neighbours in the shop have its label
    assert set(got[nodes][rare].tolist()) == set(got[nodes][~rare].tolist())  # the node itself has its fold's mean


def test_without_labels_the_commonest_get_a_column():
    columns, y, nodes = many()
    fitted = FeatureMap.fit(graph_of(columns, y))
    assert len(fitted.feature_names) == 21
    assert fitted.log == ("shop: a column for each of the 20 commonest categories",)
    assert len(FeatureMap.fit(graph_of(columns, y), one_hot=["shop"], nodes=nodes).feature_names) == 30


def test_nodes_need_labels():
    columns, y, _ = many()
    with pytest.raises(InputError, match="nodes must have labels, but graph 'raw' lacks some"):
        FeatureMap.fit(graph_of(columns, y), nodes=torch.tensor([0, 1]))


def test_a_column_must_hold_what_the_runs_holds_all_faults_in_one_message():
    import datetime

    fitted = FeatureMap.fit(graph_of({"city": CITIES, "v": range(16), "w": range(16)}))
    empty = rows(fitted, graph_of({"city": [None, None], "v": [3, None], "w": [1, 2]}))
    assert empty["city=Bern"] == [0, 0], "a column without any value fits every kind"
    other = graph_of({"city": [datetime.datetime(2024, 1, 1), None], "v": ["a", "b"], "w": [1, 2]})
    with pytest.raises(InputError, match=r"'city' is date .* categorical, 'v' is categorical \(a cell is 'a'\) where"):
        fitted.transform(other)


def test_names_that_differ_in_every_row_are_not_called_constant():
    log = FeatureMap.fit(
        graph_of({"mail": [f"{i}@x.example" for i in range(16)], "unit": ["EUR"] * 16, "city": CITIES})
    ).log
    assert log == (
        "mail: dropped, no category is common",
        "unit: dropped, constant",
        "city: a column per category",
    )


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
