"""What a graph refuses, each fault in one sentence that says where and how to mend it, and what it tells of itself."""

import dataclasses
import importlib
import math

import pytest
import torch

from calirare._util.errors import InputError
from calirare.graph import Column, Split, check_trainable, share_split
from calirare.graph.validation import find_class
from calirare_ext import Csr
from tests.helpers.graphs import EDGES, N_NODES, random_graph, small_adjacency, small_features, small_graph


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
        ([0, 1, 2, 0, -1], 7, r"no class 7; the classes are 0, 1, 2 \(command line: --minority\)"),
        ([0, 1, 2, 0, -1], "fraud", "no class 'fraud'"),
        ([0, 1, 2, 0, -1], 1.7, "no class 1.7; the classes are 0, 1, 2"),
        ([0, 1, 2, 0, -1], None, "no class None; the classes are 0, 1, 2"),
        ([-1, -1, -1, -1, -1], 1, "a rare class needs labels, but there are none"),
        ([0, 2, 2, 0, -1], 1, "the rare class '1' must have nodes, it has none"),
        ([0, 0, 0, 0, -1], 0, "needs two classes, but every labelled node is '0'"),
    ],
)
def test_rare_refuses_a_class_that_makes_no_task(y, minority, message):
    graph = small_graph(y=torch.tensor(y), split=None)
    with pytest.raises(InputError, match=message):
        graph.rare(minority)


def test_no_two_classes_have_one_name():
    with pytest.raises(
        InputError,
        match="graph 'small': class names must differ, but 'acct' stands at 0 and at 2, counted from 0: rename one",
    ) as error:
        small_graph(class_names=("acct", "good", "acct"))
    assert one_sentence(error)
    with pytest.raises(InputError, match="class names must differ, but 'b' stands at 1 and at 2"):
        dataclasses.replace(small_graph().rare(1), original_class_names=("a", "b", "b"))


def test_a_rare_class_may_be_called_rest():
    graph = small_graph(class_names=("rest", "fraud", "spam")).rare("rest")
    assert graph.class_names == ("others", "rest")
    assert graph.y.tolist() == [1, 0, 0, 1, -1]


def test_a_way_of_scaling_must_be_known():
    with pytest.raises(InputError, match=r"feature_normalisation must be one of none, row, .*, got 'rows'"):
        small_graph(feature_normalisation="rows")


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
    with pytest.raises(InputError, match="there is no class 0; the classes are 1, 2"):
        find_class(0, ("1", "2"), "g")


def test_no_nodes_is_no_graph():
    with pytest.raises(InputError, match="at least one node"):
        small_graph(
            adjacency=Csr.from_coo(torch.tensor([], dtype=torch.long), torch.tensor([], dtype=torch.long), None, (0, 0))
        )


def test_nodes_without_edges_are_a_graph():
    none = torch.tensor([], dtype=torch.long)
    assert small_graph(adjacency=Csr.from_coo(none, none, None, (5, 5))).n_edges == 0


def adjacency_without(entry: int) -> Csr:
    rows, cols = torch.from_numpy(EDGES).T
    keep = torch.arange(len(EDGES)) != entry
    return Csr.from_coo(rows[keep], cols[keep], None, (N_NODES, N_NODES))


@pytest.mark.parametrize("entry", range(len(EDGES)))
def test_every_missing_opposite_edge_is_found_and_named(entry):
    u, v = EDGES[entry]
    with pytest.raises(
        InputError, match=rf"edge \({v}, {u}\) has no opposite edge \({u}, {v}\): pass symmetrize=True"
    ) as error:
        small_graph(adjacency=adjacency_without(entry))
    assert one_sentence(error)


def test_opposite_edges_must_weigh_the_same():
    weights = [2.0, 2.0, 3.0, 3.5, 1.0, 1.0, 1.0, 1.0]
    with pytest.raises(InputError, match=r"\(1, 2\) has weight 3 and \(2, 1\) has weight 3.5"):
        small_graph(adjacency=small_adjacency(weights))


@pytest.mark.parametrize("weight", [0.0, -1.0])
def test_weights_must_be_positive(weight):
    with pytest.raises(InputError, match=r"edge weights must be > 0, got .* at edge \(0, 1\)"):
        small_graph(adjacency=small_adjacency([weight, weight, 1, 1, 1, 1, 1, 1]))


@pytest.mark.parametrize("weight", [math.nan, math.inf])
def test_weights_must_be_finite(weight):
    with pytest.raises(InputError, match=r"values must be finite, got (nan|inf) in row 0"):
        small_graph(adjacency=small_adjacency([weight, weight, 1, 1, 1, 1, 1, 1]))


def test_a_broken_structure_is_refused():
    a = small_adjacency()
    with pytest.raises(InputError, match="indices must be in"):
        small_graph(adjacency=Csr.unchecked(a.indptr, a.indices + 2, a.values, a.n_cols))
    with pytest.raises(InputError, match="ascending and unique"):
        small_graph(adjacency=Csr(a.indptr, a.indices.flip(0).contiguous(), a.values, a.n_cols))
    with pytest.raises(InputError, match="must be square"):
        small_graph(adjacency=Csr(a.indptr, a.indices, a.values, a.n_cols + 1))
    with pytest.raises(TypeError, match="float32 weights"):
        small_graph(adjacency=a.to(torch.float64))
    with pytest.raises(InputError, match="edge weights must not require a gradient"):
        small_graph(adjacency=Csr(a.indptr, a.indices, torch.ones(a.nnz, requires_grad=True), a.n_cols))


@pytest.mark.parametrize("value", [math.inf, -math.inf])
def test_features_must_be_finite(value):
    x = small_features()
    x[3, 2] = value
    with pytest.raises(InputError, match=r"features must be finite, got -?inf at node 3, column 2") as error:
        small_graph(x=x)
    assert one_sentence(error)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_sparse_features_must_be_finite(value):
    x = small_features()
    x[3, 2] = value
    with pytest.raises(InputError, match=r"features: values must be finite, got (nan|-?inf) in row 3"):
        small_graph(x=Csr.from_dense(x))


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


def test_features_must_fit_the_nodes():
    with pytest.raises(InputError, match="one row per node, got 4 rows for 5 nodes"):
        small_graph(x=small_features()[:4])
    with pytest.raises(InputError, match=r"features must be a table with at least one column, got shape \(5,\)"):
        small_graph(x=torch.ones(5))
    with pytest.raises(InputError, match="at least one column"):
        small_graph(x=small_features()[:, :0])
    with pytest.raises(TypeError, match="x must be float32, got float64"):
        small_graph(x=small_features().double())


@pytest.mark.parametrize(("label", "node"), [(-2, 1), (5, 3), (10**9, 0)])
def test_labels_must_be_in_range(label, node):
    y = torch.tensor([0, 1, 2, 0, -1])
    y[node] = label
    with pytest.raises(InputError, match=rf"classes from 0 to 4, or -1 for unknown, got {label} at node {node}"):
        small_graph(y=y)
    with pytest.raises(InputError, match="classes from 0 to 2"):
        small_graph(y=torch.tensor([0, 1, 3, 0, 1]), class_names=("a", "b", "c"))


def test_labels_must_be_one_integer_per_node():
    with pytest.raises(TypeError, match="labels must be int64, got float32"):
        small_graph(y=torch.zeros(5))
    with pytest.raises(InputError, match="one label per node"):
        small_graph(y=torch.zeros(4, dtype=torch.long))


def test_a_split_must_name_labelled_nodes_of_the_graph():
    none = torch.tensor([], dtype=torch.long)
    with pytest.raises(InputError, match="test nodes must be from 0 to 4, got 5"):
        small_graph(split=Split(torch.tensor([0]), torch.tensor([1]), torch.tensor([5])))
    with pytest.raises(InputError, match="val nodes must have a label, node 4 has none"):
        small_graph(split=Split(torch.tensor([0]), torch.tensor([4]), none))


def test_a_posterior_must_fit_the_nodes():
    with pytest.raises(InputError, match="posterior must have one entry per node"):
        small_graph(posterior=torch.zeros(4))


def test_a_changed_graph_is_checked_again():
    graph = small_graph().rare(1)
    with pytest.raises(InputError, match="no opposite edge"):
        dataclasses.replace(graph, adjacency=adjacency_without(0))
    with pytest.raises(InputError, match="must be finite"):
        dataclasses.replace(graph, x=torch.full((5, 3), math.inf))


def trainable(train, y, n_classes=2):
    names = tuple(str(k) for k in range(n_classes))
    none = torch.tensor([], dtype=torch.long)
    return small_graph(
        y=torch.tensor(y), class_names=names, split=Split(torch.tensor(train, dtype=torch.long), none, none)
    )


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (lambda: small_graph(y=None, split=None), "training needs labels"),
        (lambda: small_graph(y=torch.full((5,), -1), split=None), "training needs labels"),
        (lambda: small_graph(split=None), r"needs a split, .*: draw one with .*share_split\(graph\.y\)\)$"),
        (lambda: small_graph(split=None).rare(1), r"calirare\.graph\.share_split\(graph\.original_y\)\)$"),
        (lambda: trainable([0, 1], [0, 0, 0, 0, 0], 1), "needs two classes, but every labelled node is '0'"),
        (lambda: trainable([0, 1], [1, 1, 1, 1, 1]), r"every labelled node is '1': label .* labels='positive-only'"),
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
    with pytest.raises(InputError, match=message) as error:
        check_trainable(graph())
    assert one_sentence(error)


def test_the_split_that_the_sentence_names_can_be_trained_on():
    """What the sentence says is Python that works."""
    graph = random_graph().rare(1)
    with pytest.raises(InputError) as error:
        check_trainable(graph)
    call = str(error.value).partition("draw one with ")[2].replace("graph.original_y", "graph.original_y, 5")  # a seed
    names = {"graph": graph, "calirare": importlib.import_module("calirare")}
    check_trainable(eval(call, names))
    assert torch.equal(eval(call, names).split.train, share_split(graph.original_y, 5).train)


def test_what_can_be_trained_on_passes():
    check_trainable(small_graph())
    check_trainable(small_graph().rare(1))
    check_trainable(random_graph(split=Split(torch.arange(30), torch.arange(30, 40), torch.arange(40, 60))))


def test_the_posterior_follows_the_rare_class():
    p = torch.tensor([0.1, 0.2, 0.3, 0.4, 0.5], dtype=torch.float64)
    two = small_graph(y=torch.tensor([0, 1, 1, 0, -1]), posterior=p)
    assert two.rare(1).posterior.tolist() == p.tolist()
    assert two.rare(0).posterior.tolist() == (1 - p).tolist()
    assert two.rare(0).rare(1).posterior.tolist() == (1 - (1 - p)).tolist()
    assert small_graph(posterior=p).rare(2).posterior is None


def test_moving_keeps_everything():
    graph = small_graph(posterior=torch.linspace(0, 1, 5, dtype=torch.float64)).rare(1)
    moved = graph.to("cpu")
    assert moved.device == torch.device("cpu")
    for part in ("y", "original_y", "x", "posterior"):
        assert torch.equal(getattr(moved, part), getattr(graph, part))
    assert (moved.minority, moved.class_names, moved.name) == (graph.minority, graph.class_names, graph.name)
    assert torch.equal(moved.split.train, graph.split.train)
