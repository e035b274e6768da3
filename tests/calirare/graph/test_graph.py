"""What a graph refuses, each fault in one sentence that says where and how to mend it, and what it tells of itself."""

import dataclasses
import math

import pytest
import torch

from calirare._util.errors import InputError
from calirare.graph import Column, Split, check_trainable
from calirare.graph.validation import find_class
from calirare_ext import Csr
from tests.helpers.graphs import small_adjacency, small_features, small_graph


def one_sentence(error: pytest.ExceptionInfo[BaseException]) -> bool:
    """No line break, and nothing after a full stop but the end or a file's suffix."""
    text = str(error.value)
    return "\n" not in text and ". " not in text


def test_a_graph_tells_its_sizes():
    graph = small_graph()
    assert (graph.n_nodes, graph.n_edges, graph.n_features, graph.n_classes) == (5, 8, 3, 3)
    assert graph.class_names == ("0", "1", "2")
    assert graph.unlabelled.tolist() == [4]
    assert graph.minority_share is None
    assert repr(graph) == "Graph('small': 5 nodes, 8 directed edges, 3 features, 3 classes, split given 3/1/0)"


def test_a_graph_needs_no_labels():
    graph = small_graph(y=None, split=None)
    assert graph.n_classes == 0
    assert graph.unlabelled.tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(InputError, match="a rare class needs labels"):
        graph.rare(0)


def test_rare_merges_all_but_one_class():
    graph = small_graph().rare(2)
    assert graph.y.tolist() == [0, 0, 1, 0, -1]
    assert graph.original_y.tolist() == [0, 1, 2, 0, -1]
    assert graph.class_names == ("rest", "2")
    assert graph.original_class_names == ("0", "1", "2")
    assert graph.minority == 2
    assert graph.minority_share == 0.25
    assert graph.rare(0).y.tolist() == [1, 0, 0, 1, -1]


@pytest.mark.parametrize(
    ("y", "minority", "message"),
    [
        ([0, 1, 2, 0, -1], 7, r"no class 7. The classes are 0, 1, 2 \(--rare-class\)"),
        ([0, 1, 2, 0, -1], "fraud", "no class 'fraud'"),
        ([0, 1, 2, 0, -1], 1.7, "no class 1.7. The classes are 0, 1, 2"),
        ([0, 1, 2, 0, -1], None, "no class None. The classes are 0, 1, 2"),
        ([-1, -1, -1, -1, -1], 1, "a rare class needs labels, but there are none"),
        ([0, 2, 2, 0, -1], 1, "the rare class '1' must have nodes, it has none"),
        ([0, 0, 0, 0, -1], 0, "needs two classes, but every labelled node is '0'"),
    ],
)
def test_rare_refuses_a_class_that_makes_no_task(y, minority, message):
    graph = small_graph(y=torch.tensor(y), split=None)
    with pytest.raises(InputError, match=message):
        graph.rare(minority)


def test_a_rare_class_may_be_called_rest():
    graph = small_graph(class_names=("rest", "fraud", "spam")).rare("rest")
    assert graph.class_names == ("others", "rest")
    assert graph.y.tolist() == [1, 0, 0, 1, -1]


def test_a_class_is_found_by_name_before_number():
    assert find_class("fraud", ("ok", "fraud"), "g") == 1
    assert find_class("1", ("ok", "fraud"), "g") == 1
    assert [find_class(name, ("0", "1"), "g") for name in ("True", "false", True)] == [1, 0, 1]
    with pytest.raises(InputError, match="no class 'true'"):
        find_class("true", ("ok", "fraud"), "g")
    assert [find_class(name, ("0", "1"), "g") for name in ("1.0", "0.0", 1.0)] == [1, 0, 1]
    assert find_class("FRAUD", ("ok", "fraud"), "g") == 1
    assert find_class("Fraud", ("fraud", "Fraud"), "g") == 1
    with pytest.raises(InputError, match="there is no class 'FRAUD'"):
        find_class("FRAUD", ("fraud", "Fraud"), "g")
    assert find_class(1, ("1", "2"), "g") == 0
    assert find_class(2, ("1", "2"), "g") == 1
    with pytest.raises(InputError, match=r"there is no class 0\. The classes are 1, 2"):
        find_class(0, ("1", "2"), "g")


NONE = torch.tensor([], dtype=torch.long)


def weighted(first: float, back: float = 1.0) -> Csr:
    return small_adjacency([first, back, 1, 1, 1, 1, 1, 1])


def with_feature(value: float) -> torch.Tensor:
    x = small_features()
    x[3, 2] = value
    return x


def changed_csr(**changes) -> Csr:
    a = small_adjacency()
    return Csr.unchecked(**({name: getattr(a, name) for name in ("indptr", "indices", "values", "n_cols")} | changes))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: {"class_names": ("acct", "good", "acct")},
            "graph 'small': class names must differ, but 'acct' stands at 0 and at 2, counted from 0: rename one",
        ),
        (lambda: {"adjacency": weighted(3, 3.5)}, r"\(0, 1\) has weight 3 and \(1, 0\) has weight 3.5"),
        (lambda: {"adjacency": weighted(0, 0)}, r"edge weights must be > 0, got .* at edge \(0, 1\)"),
        (lambda: {"adjacency": weighted(-1, -1)}, r"edge weights must be > 0, got .* at edge \(0, 1\)"),
        (lambda: {"adjacency": weighted(math.nan)}, "values must be finite, got nan in row 0"),
        (lambda: {"adjacency": weighted(math.inf)}, "values must be finite, got inf in row 0"),
        (lambda: {"adjacency": changed_csr(indices=small_adjacency().indices + 2)}, "indices must be in"),
        (
            lambda: {"adjacency": changed_csr(indices=small_adjacency().indices.flip(0).contiguous())},
            "ascending and unique",
        ),
        (lambda: {"adjacency": changed_csr(n_cols=6)}, "must be square"),
        (lambda: {"adjacency": small_adjacency().to(torch.float64)}, "float32 weights"),
        (
            lambda: {"adjacency": changed_csr(values=torch.ones(8, requires_grad=True))},
            "edge weights must not require a gradient",
        ),
        (lambda: {"x": with_feature(-math.inf)}, "features must be finite, got -inf at node 3, column 2"),
        (lambda: {"x": Csr.from_dense(with_feature(math.nan))}, "features: values must be finite, got nan in row 3"),
        (lambda: {"x": with_feature(-1e20)}, r"features must be from .* got -1e.20 at node 3, column 2"),
        (
            lambda: {"x": Csr.from_dense(with_feature(-1e20))},
            r"features must be from .* got -1e.20 at node 3, column 2",
        ),
        (lambda: {"x": small_features()[:4]}, "one row per node, got 4 rows for 5 nodes"),
        (lambda: {"x": torch.ones(5)}, r"features must be a table with at least one column, got shape \(5,\)"),
        (lambda: {"x": small_features()[:, :0]}, "at least one column"),
        (lambda: {"x": small_features().double()}, "x must be float32, got float64"),
        (lambda: {"y": torch.tensor([0, -2, 2, 0, -1])}, "from 0 to 4, or -1 for unknown, got -2 at node 1"),
        (lambda: {"y": torch.tensor([0, 1, 2, 5, -1])}, "from 0 to 4, or -1 for unknown, got 5 at node 3"),
        (lambda: {"y": torch.tensor([0, 1, 3, 0, 1]), "class_names": ("a", "b", "c")}, "classes from 0 to 2"),
        (lambda: {"y": torch.zeros(5)}, "labels must be int64, got float32"),
        (lambda: {"y": torch.zeros(4, dtype=torch.long)}, "one label per node"),
        (lambda: {"split": Split(NONE, NONE, torch.tensor([5]))}, "test nodes must be from 0 to 4, got 5"),
        (lambda: {"split": Split(NONE, torch.tensor([4]), NONE)}, "val nodes must have a label, node 4 has none"),
        (lambda: {"posterior": torch.zeros(4)}, "posterior must have one entry per node"),
    ],
)
def test_parts_that_do_not_fit_are_refused_in_one_sentence(make, message):
    with pytest.raises((InputError, TypeError), match=message) as error:
        small_graph(**make())
    assert one_sentence(error)


def test_nan_among_dense_features_is_a_gap():
    x = small_features()
    assert small_graph(x=x).columns == ()
    x[3, 2] = math.nan
    gaps = small_graph(x=x)
    assert gaps.columns == tuple(Column(f"feature {i}") for i in range(3))
    with pytest.raises(InputError, match=r"but feature 2 lacks 1 value .the first of node 3"):
        gaps.check_mapped("fit")
    assert small_graph(x=x, feature_names=("a", "b", "c")).columns[2] == Column("c")
    named = dataclasses.replace(gaps, feature_names=("a", "b", "c"))
    assert (named.columns[2], named.feature_names) == (Column("c"), ("a", "b", "c"))


def trainable(train, y, n_classes=2):
    names = tuple(str(k) for k in range(n_classes))
    split = Split(torch.tensor(train, dtype=torch.long), NONE, NONE)
    return small_graph(y=torch.tensor(y), class_names=names, split=split)


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (lambda: small_graph(y=None, split=None), "training needs labels"),
        (lambda: small_graph(y=torch.full((5,), -1), split=None), "training needs labels"),
        (lambda: small_graph(split=None), r"needs a split, .*: draw one with .*Split.share\(graph\.y\)\)$"),
        (lambda: small_graph(split=None).rare(1), r"calirare\.Split\.share\(graph\.original_y\)\)$"),
        (lambda: trainable([0, 1], [0, 0, 0, 0, 0], 1), "needs two classes, but every labelled node is '0'"),
        (lambda: trainable([0, 1], [1, 1, 1, 1, 1]), r"every labelled node is '1' .*Label .* positive_only=True"),
        (
            lambda: trainable([0, 1], [1, 2, 1, 2, 1], 3),
            "'0' has none, nor any other labelled node: number the classes",
        ),
        (lambda: trainable([], [0, 1, 0, 0, 0]), "at least two labelled nodes, got 0"),
        (lambda: trainable([1], [0, 1, 0, 0, 0]), "at least two labelled nodes, got 1"),
        (
            lambda: trainable([0, 2], [0, 1, 0, 0, 0]),
            "the rare class '1' has none among the 2: put a labelled node of it there",
        ),
        (lambda: trainable([1, 4], [0, 1, 0, 0, 1]), "the class '0' has none among the 2"),
        (lambda: trainable([0, 1], [0, 1, 2, 0, 0], 3), "the class '2' has none"),
    ],
)
def test_what_cannot_be_trained_on_is_refused(graph, message):
    with pytest.raises(InputError, match=message):
        check_trainable(graph())


def test_the_posterior_follows_the_rare_class():
    p = torch.tensor([0.1, 0.2, 0.3, 0.4, 0.5], dtype=torch.float64)
    two = small_graph(y=torch.tensor([0, 1, 1, 0, -1]), posterior=p)
    assert two.rare(1).posterior.tolist() == p.tolist()
    assert two.rare(0).posterior.tolist() == (1 - p).tolist()
    assert two.rare(0).rare(1).posterior.tolist() == (1 - (1 - p)).tolist()
    assert small_graph(posterior=p).rare(2).posterior is None
