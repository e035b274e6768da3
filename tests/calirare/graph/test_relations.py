"""Typed, directed and timed edges of a table: worked examples, storing, and what is refused."""

import pandas as pd
import pytest
import torch

from calirare._util.errors import FaultsError, InputError
from calirare.graph import Graph, Relation, fingerprint
from calirare_ext import Csr
from tests.helpers.graphs import small_graph
from tests.helpers.tables import texts
from tests.helpers.tolerance import assert_identical

NODES = "id,f\na,1\nb,2\nc,3\n"
EDGES = "source,target,kind,amount,when\na,b,pay,2,1\nb,c,pay,3,5\na,b,call,4,2\nc,a,call,1,9\n"


@pytest.fixture
def write(tmp_path):
    return lambda edges=EDGES: texts(tmp_path, NODES, edges)


def read(path, **options) -> Graph:
    return Graph.from_edges(path, None, symmetrize=True, **options)


def test_each_type_has_its_edges_as_they_point(write):
    graph = read(write(), relation="kind", weight="amount")
    call, pay = graph.relations
    assert (call.name, pay.name) == ("call", "pay")
    assert pay.out.to_dense().tolist() == [[0, 2, 0], [0, 0, 3], [0, 0, 0]]
    assert call.out.to_dense().tolist() == [[0, 4, 0], [0, 0, 0], [1, 0, 0]]
    for relation in (call, pay):
        assert_identical(relation.into.to_dense(), relation.out.to_dense().T.contiguous())
    assert graph.adjacency.to_dense().tolist() == [[0, 6, 1], [6, 0, 3], [1, 3, 0]]


def test_directions_alone_are_one_relation(write):
    path = write("source,target\na,b\nb,c\n")
    assert read(path).relations == ()
    (edges,) = read(path, directed=True).relations
    assert edges.name == "edges"
    assert edges.out.to_dense().tolist() == [[0, 1, 0], [0, 0, 1], [0, 0, 0]]


def test_directions_are_advised_where_they_are_not_read(write):
    path, advice = write("source,target\na,b\nb,c\n"), "--directed also uses their directions"
    (plain,), (directed,) = (Graph.from_edges(path, None, directed=on).notes for on in (False, True))
    assert advice in plain
    assert advice not in directed
    assert "directions are used too" in directed


@pytest.mark.parametrize(("as_of", "kept"), [("0.5", 0), ("1", 1), ("4.9", 2), ("5", 3), ("100", 4)])
def test_edges_of_the_future_are_left_out(write, as_of, kept):
    graph = read(write(), relation="kind", time="when", as_of=as_of)
    assert sum(relation.out.nnz for relation in graph.relations) == kept


@pytest.mark.parametrize(("scored", "told"), [(None, "1 of 3"), ("kind=p", "1 of 2"), ("kind=q", "")])
def test_nodes_that_edges_of_the_future_alone_name_are_told_of(tmp_path, scored, told):
    nodes = pd.DataFrame({"id": list("abc"), "f": [1, 2, 3], "kind": list("pqp")})
    edges = pd.DataFrame({"source": list("abc"), "target": list("baa"), "when": [1, 3, 9]})
    graph = Graph.from_tables(edges, nodes, time="when", as_of="5", target_nodes=scored)
    found = [note for note in graph.notes if "only after 5" in note]
    assert len(found) == bool(told)
    for note in found:
        assert note.startswith(f"edges: {told} target nodes have edges only after 5, so they are scored without")
        assert note.endswith("did not exist yet, leave their rows out of the node table")
    assert not any("only after" in note for note in Graph.from_tables(edges, nodes, time="when", as_of="9").notes)
    many = pd.DataFrame({"id": range(400), "f": range(400)})
    ring = pd.DataFrame({"source": range(399), "target": range(1, 400), "when": [0] * 396 + [9] * 3})
    for last, said in ((9, 0), (8, 0), (-1, 1)):  # a few, as accounts at rest, go without a word
        notes = Graph.from_tables(ring, many, time="when", as_of=str(last), id="id").notes
        assert sum("only after" in note for note in notes) == said


def test_nanoseconds_are_told_apart(write):
    last = 1_700_000_000_000_000_001
    path = write(f"source,target,when\na,b,{last}\nb,c,{last + 1}\nc,a,{last - 1}\n")
    assert read(path, time="when", as_of=str(last)).n_edges == 4
    assert read(path, time="when", as_of=str(last - 1)).n_edges == 2


@pytest.mark.parametrize(
    ("as_of", "kept", "said"),
    [
        ("2024-01-31", 2, "the end of 2024-01-31"),
        ("20240201", 4, "20240201"),
        ("2024-01", 2, "the end of 2024-01"),
        ("2024-02-01 00:00", 2, "2024-02-01 00:00"),
        ("2024-02-01T22:00:00-02:00", 6, None),
    ],
)
def test_a_date_counts_to_its_end_and_a_time_to_that_moment(write, as_of, kept, said):
    path = write("source,target,on\na,b,2024-01-01\nb,c,2024-02-01 23:59\nc,a,2024-02-02\n")
    graph = read(path, time="on", as_of=as_of)
    assert graph.n_edges == kept
    assert (said is None) == (kept == 6)
    assert said is None or f"edges: left out, edges after {said}: {3 - kept // 2}" in graph.notes


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"relation": "type"}, "there is no column 'type'; .* name another"),
        ({"time": "on", "as_of": "3"}, "there is no column 'on'"),
        ({"as_of": "3"}, "as_of needs the column of times: pass time"),
        ({"time": "when", "as_of": "2024-01-31"}, "times must be all numbers or all dates .* as_of is '2024-01-31'"),
        ({"time": "kind", "as_of": "3"}, "and column 'kind' holds 'pay' in line 2"),
    ],
)
def test_what_does_not_fit_is_named(write, options, message):
    with pytest.raises(FaultsError, match=message):
        read(write(), **({"duplicates": "sum"} | options))


def test_an_edge_is_there_once_in_each_type(write):
    with pytest.raises(InputError, match=r"once in each type, but line 6 \(a, b\) is there before"):
        read(write(EDGES + "a,b,pay,7,1\n"), relation="kind", duplicates="error")
    note, unread = read(write(EDGES + "a,b,pay,7,1\n"), relation="kind").notes
    assert "not read of the table: 'amount' and 'when'" in unread
    assert note.startswith("edges: repetitions among them: 1, each edge counts once")
    graph = read(write(EDGES + "a,b,pay,7,1\n"), relation="kind", weight="amount", duplicates="sum")
    assert graph.relations[1].out.to_dense()[0, 1] == 9
    assert graph.adjacency.to_dense()[0, 1] == 13
    graph = read(write(EDGES + "a,b,pay,7,1\n"), relation="kind", weight="amount", duplicates="drop")
    assert graph.relations[1].out.to_dense()[0, 1] == 2
    assert graph.adjacency.to_dense()[0, 1] == 6


def test_relations_are_stored_and_moved(write, tmp_path):
    graph = read(write(), relation="kind", weight="amount")
    graph.to_npz(tmp_path / "g.npz")
    graph.to_folder(tmp_path / "g")
    for again in (Graph.read(tmp_path / "g.npz")[0], Graph.read(tmp_path / "g")[0], graph.to("cpu")):
        assert [relation.name for relation in again.relations] == ["call", "pay"]
        for one, other in zip(again.relations, graph.relations, strict=True):
            assert_identical(one.out.to_dense(), other.out.to_dense())
            assert_identical(one.into.to_dense(), other.into.to_dense())
        assert fingerprint(again) == fingerprint(graph)
    assert fingerprint(graph) != fingerprint(read(write(), weight="amount", duplicates="sum"))


def test_relations_must_fit_the_graph():
    far = Relation.of("far", Csr.from_dense(torch.eye(3)))
    with pytest.raises(InputError, match=r"relation 'far' must join the 5 nodes of the graph, got shape \(3, 3\)"):
        small_graph(relations=(far,))
    near = Relation.of("near", Csr.from_dense(torch.eye(5)))
    with pytest.raises(InputError, match="every relation must have its own name, got near, near"):
        small_graph(relations=(near, near))


def test_a_type_has_one_spelling(write):
    graph = read(write("source,target,kind\na,b,1.0\nb,c, 1 \nc,a,2.0\na,c,True\n"), relation="kind")
    assert [each.name for each in graph.relations] == ["1", "2", "true"]
