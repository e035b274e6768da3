"""A graph with a log of changes is the one that is built from scratch with them, also after a crash."""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import os
import signal
from unittest import mock
from zlib import crc32

import numpy as np
import pandas as pd
import pytest
import torch

from calirare._util.errors import InputError
from calirare.graph import Column, Graph, GraphLog, Relation, fingerprint
from calirare_ext import Csr
from tests.helpers.tasks import rare_task

D = 6


def task(kind: str = "dense") -> Graph:
    """A graph with weights and a self loop at node 5: with names, sparse features or typed columns."""
    graph = rare_task(60, split=None)
    dense = graph.adjacency.to_dense()
    noise = torch.rand(dense.shape, generator=torch.Generator().manual_seed(0))
    dense = dense * (1 + (noise + noise.T) / 2)
    dense[5, 5] = 0.7
    graph = dataclasses.replace(graph, adjacency=Csr.from_dense(dense))
    if kind == "names":
        return dataclasses.replace(graph, node_names=np.array([f"n{i}" for i in range(60)]))
    if kind == "sparse":
        return dataclasses.replace(graph, x=Csr.from_dense(graph.x * (graph.x > 0)))
    if kind == "columns":
        columns = (Column("kind", "categorical", ("a", "b")), *(Column(f"c{i}") for i in range(D - 1)))
        x = graph.x.clone()
        x[:, 0] = (x[:, 0] > 0).float()
        x[3, 2] = float("nan")
        return dataclasses.replace(graph, x=x, columns=columns)
    return graph


KINDS = ("dense", "names", "sparse", "columns")


class Reference:
    """The same changes made to dense matrices."""

    def __init__(self, graph: Graph) -> None:
        self.a = graph.adjacency.to_dense().double().numpy()
        self.x = graph.x.to_dense().numpy() if isinstance(graph.x, Csr) else graph.x.numpy()
        self.y = graph.y.numpy()
        self.alive = np.ones(len(self.a), dtype=bool)

    def add(self, x, ends, weights) -> None:
        n = len(self.a)
        self.a, self.x = np.pad(self.a, (0, 1)), np.vstack([self.x, x])
        self.alive, self.y = np.append(self.alive, True), np.append(self.y, -1)
        self.put(np.array(ends, dtype=int), n, weights)

    def put(self, u, v, weight) -> None:
        self.a[u, v] = self.a[v, u] = weight


def assert_same(got: Graph, want: Reference) -> None:
    for part in ("indptr", "indices", "values"):
        expected = Csr.from_dense(torch.from_numpy(want.a[want.alive][:, want.alive].astype(np.float32)))
        assert torch.equal(getattr(got.adjacency, part), getattr(expected, part))
    x = got.x.to_dense() if isinstance(got.x, Csr) else got.x
    assert np.array_equal(x.numpy(), want.x[want.alive].astype(np.float32), equal_nan=True)
    assert got.y.tolist() == want.y[want.alive].tolist()


def random_row(rng, kind: str):
    x = np.round(rng.standard_normal(D), 3).astype(np.float32)
    if kind == "columns":
        x[0] = rng.integers(2)
        x[1] = np.nan if rng.random() < 0.3 else x[1]
    return x * (x > 0) if kind == "sparse" else x


def step(log: GraphLog, want: Reference, rng, kind: str) -> None:
    """Makes one random change in both."""
    called = (lambda i: f"n{i}") if kind == "names" else int
    live = np.flatnonzero(want.alive)
    u, v = rng.choice(live, 2, replace=False)
    what = rng.integers(5)
    if what == 0:
        ends = rng.choice(live, rng.integers(4), replace=False)
        weights, x = np.round(rng.random(len(ends)) + 0.1, 3).astype(np.float32), random_row(rng, kind)
        new = len(want.a)
        name = log.add_node(x, map(called, ends), weights=weights, name=called(new) if kind == "names" else None)
        assert name == called(new)
        want.add(x, ends, weights)
    elif what == 1:
        log.remove_node(called(u))
        want.alive[u] = False
    elif what == 2 and not want.a[u, v]:
        weight = np.float32(rng.random() + 0.1)
        log.add_edge(called(u), called(v), weight)
        want.put(u, v, weight)
    elif what == 3:
        pairs = np.argwhere(want.a * np.outer(want.alive, want.alive))
        u, v = pairs[rng.integers(len(pairs))]
        log.remove_edge(called(u), called(v))
        want.put(u, v, 0)
    elif what == 4:
        x = random_row(rng, kind)
        log.set_features(called(u), x)
        want.x = want.x.copy()
        want.x[u] = x


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", KINDS)
def test_random_changes_give_the_graph_built_from_scratch(kind, seed, tmp_path):
    graph, rng = task(kind), np.random.default_rng(seed)
    want = Reference(graph)
    for _ in range(3):  # opened again twice
        with mock.patch("os.fsync"), GraphLog(graph, tmp_path / "log") as log:
            assert log.notes == ()
            for _ in range(20):
                step(log, want, rng, kind)
            changed, numbers = log.graph(), log.numbers()
        assert_same(changed, want)
        assert numbers[want.alive].tolist() == list(range(changed.n_nodes))
        assert set(numbers[~want.alive].tolist()) <= {-1}
        if kind == "names":
            assert changed.node_names.tolist() == [f"n{i}" for i in np.flatnonzero(want.alive)]
    assert fingerprint(graph) == fingerprint(task(kind)), "the graph itself stays as it was"


def test_labels_split_and_rare_class_go_along(tmp_path):
    graph = rare_task()
    with GraphLog(graph, tmp_path / "log") as log:
        gone = int(graph.split.train[0])
        log.remove_node(gone)
        new = log.add_node(np.zeros(D), [int(graph.split.train[1])])
        changed, numbers = log.graph(), torch.from_numpy(log.numbers())
    assert torch.equal(changed.split.train, numbers[graph.split.train[1:]])
    assert torch.equal(changed.split.test, numbers[graph.split.test])
    assert torch.equal(changed.y[:-1], graph.y[torch.arange(graph.n_nodes) != gone])
    assert int(changed.y[numbers[new]]) == int(changed.original_y[-1]) == -1
    assert (changed.minority, changed.class_names) == (graph.minority, graph.class_names)


def test_a_name_may_be_given_again_after_its_node_is_gone(tmp_path):
    graph = task("names")
    for _ in range(2):
        with GraphLog(graph, tmp_path / "log") as log:
            if not log.n_changes:
                log.add_node(np.zeros(D), ["n1"], name="new")
                log.remove_node("new")
                log.remove_node("n2")
                log.add_node(np.ones(D), ["n3"], name="new")
                log.add_node(np.ones(D), ["new"], name="n2")
            changed = log.graph()
        assert changed.node_names.tolist()[-2:] == ["new", "n2"]
        assert changed.adjacency.to_dense()[-2:].count_nonzero(1).tolist() == [2, 1]


NAN, INF = float("nan"), float("inf")
WRONG = {
    "an unknown node": (lambda log: log.remove_node("nobody"), "no node 'nobody'"),
    "a removed node": (lambda log: log.add_edge("n0", "gone"), "no node 'gone'"),
    "few features": (lambda log: log.add_node([0.0] * 5, name="a"), r"must have 6 features, got shape \(5,\)"),
    "features of two": (lambda log: log.add_node([[0.0] * 6] * 2, name="a"), "6 features"),
    "text": (lambda log: log.add_node(["a"] * 6, name="a"), "real numbers"),
    "a feature that is none": (lambda log: log.add_node([0.0] * 5 + [NAN], name="a"), "got nan at place 5"),
    "an infinite feature": (lambda log: log.set_features("n1", [INF] * 6), "finite numbers .* got inf at place 0"),
    "a feature too large": (lambda log: log.set_features("n1", [1e20] * 6), "at most 1e"),
    "no name": (lambda log: log.add_node([0.0] * 6), "must have a name"),
    "a name that is there": (lambda log: log.add_node([0.0] * 6, name="n3"), "a node 'n3' already"),
    "a name that breaks a line": (lambda log: log.add_node([0.0] * 6, name="a\nb"), "can be shown"),
    "a neighbour twice": (lambda log: log.add_node([0.0] * 6, ["n1", "n1"], name="a"), "'n1' is there twice"),
    "a weight too few": (lambda log: log.add_node([0.0] * 6, ["n1"], weights=[], name="a"), "one per neighbour, 1"),
    "an edge to itself": (lambda log: log.add_edge("n1", "n1"), "join two nodes"),
    "an edge twice": (lambda log: log.add_edge("n1", "n0"), "between 'n1' and 'n0' already"),
    "no such edge": (lambda log: log.remove_edge("n0", "n2"), "no edge between 'n0' and 'n2'"),
    "a negative weight": (lambda log: log.add_edge("n0", "n2", -1.0), "above 0 in float32, got -1.0"),
    "a weight that is none": (lambda log: log.add_edge("n0", "n2", NAN), "got nan"),
    "a weight too small": (lambda log: log.add_edge("n0", "n2", 1e-60), "above 0"),
    "a weight of text": (lambda log: log.add_edge("n0", "n2", "much"), "got 'much'"),
}


@pytest.fixture
def named(tmp_path):
    """A log on a graph with names, of two changes: nodes n0 and n1 have an edge, n0 and n2 have none, gone is gone."""
    graph = task("names")
    dense = graph.adjacency.to_dense()
    dense[0, 1] = dense[1, 0] = 1
    dense[0, 2] = dense[2, 0] = 0
    graph = dataclasses.replace(graph, adjacency=Csr.from_dense(dense))
    with GraphLog(graph, tmp_path / "log") as log:
        log.add_node(np.zeros(D), name="gone")
        log.remove_node("gone")
        yield log


@pytest.mark.parametrize(("change", "message"), WRONG.values(), ids=WRONG)
def test_a_bad_change_is_refused_and_leaves_no_trace(change, message, named):
    before = named.path.read_bytes()
    with pytest.raises(InputError, match=message) as refused:
        change(named)
    assert ". " not in str(refused.value)
    assert named.path.read_bytes() == before
    assert named.n_changes == 2


def test_what_does_not_suit_other_graphs_is_refused(tmp_path):
    with GraphLog(task(), tmp_path / "log") as log:
        for wrong, message in ((-1, "from 0 to 59"), (60, "no node 60"), ("n1", "by numbers"), (1.0, "by numbers")):
            with pytest.raises(InputError, match=message):
                log.remove_node(wrong)
        with pytest.raises(InputError, match="has no name"):
            log.add_node(np.zeros(D), name="a")
        log.remove_node(7)
        with pytest.raises(InputError, match="no node 7 any more"):
            log.add_edge(7, 8)
    with GraphLog(task("columns"), tmp_path / "columns") as log:
        with pytest.raises(InputError, match=r"a new node: column 'kind' must hold numbers of its 2 .*, got 3.0$"):
            log.add_node([3.0] * D)
        assert log.add_node([NAN] * D) == 60
    pair = Csr.from_dense(1 - torch.eye(2))
    with GraphLog(Graph(pair, torch.ones(2, 1)), tmp_path / "pair") as log:
        log.remove_node(0)
        with pytest.raises(InputError, match="the last one"):
            log.remove_node(1)
    pays = Relation.of("pays", pair)
    with pytest.raises(InputError, match="typed or directed"):
        GraphLog(Graph(pair, torch.ones(2, 1), relations=(pays,)), tmp_path / "typed")
    with pytest.raises(InputError, match="path must be given"):
        GraphLog(Graph(pair, torch.ones(2, 1)))


class TestFile:
    @pytest.fixture
    def path(self, tmp_path):
        with GraphLog(task(), tmp_path / "log") as log:
            log.remove_node(3)
            log.add_node(np.zeros(D), [1, 2])
            log.remove_edge(1, 60)
        return log.path

    def test_wherever_a_crash_cuts_it_off_the_whole_records_stay(self, path):
        whole = path.read_bytes()
        ends = [i + 1 for i, byte in enumerate(whole) if byte == ord("\n")]
        for cut in [0, 5, *range(ends[0] - 2, len(whole) + 1, 19)]:
            path.write_bytes(whole[:cut])
            with GraphLog(task(), path) as log:
                n = max(sum(end <= cut for end in ends) - 1, 0)
                assert log.n_changes == n
                assert len(log.notes) == (cut > ends[0] and cut not in ends)
                log.remove_node(9)
            with GraphLog(task(), path) as log:
                assert (log.n_changes, log.notes) == (n + 1, ())

    def test_damage_before_the_end_is_refused_and_left_as_it_is(self, path):
        whole = path.read_bytes()
        at = whole.index(b"remove node") + 3
        path.write_bytes(whole[:at] + b"?" + whole[at + 1 :])
        before = path.read_bytes()
        with pytest.raises(InputError, match="line 2 is damaged, and others follow"):
            GraphLog(task(), path)
        assert path.read_bytes() == before

    def test_a_log_of_another_graph_or_no_log_is_refused_and_left_as_it_is(self, path, tmp_path):
        with pytest.raises(InputError, match="belongs to another graph"):
            GraphLog(task("names"), path)
        for content in (b"source,target\n1,2\n", b"x", b"\n"):
            (tmp_path / "edges.csv").write_bytes(content)
            with pytest.raises(InputError, match="is no calirare graph log 1"):
                GraphLog(task(), tmp_path / "edges.csv")
            assert (tmp_path / "edges.csv").read_bytes() == content
        with pytest.raises(InputError, match="cannot be written"):
            GraphLog(task(), tmp_path / "none" / "log")
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(InputError, match="plain file"):
            GraphLog(task(), tmp_path / "pipe")

    def test_two_cannot_hold_it_and_a_closed_one_is_not_written(self, path):
        with GraphLog(task(), path) as log:
            with pytest.raises(InputError, match="another process is writing there"):
                GraphLog(task(), path)
            log.remove_node(4)
        with pytest.raises(InputError, match="closed"):
            log.remove_node(5)
        with GraphLog(task(), path) as log:
            assert log.n_changes == 4

    @pytest.mark.parametrize("fails", ["os.pwrite", "os.fsync"])
    def test_a_change_that_cannot_be_written_is_not_made(self, fails, path):
        with GraphLog(task(), path) as log:
            before = path.read_bytes()
            full = mock.patch(fails, side_effect=[OSError(28, "No space left on device"), None])
            with full, pytest.raises(InputError, match="No space left"):
                log.remove_node(4)
            assert path.read_bytes() == before
            assert log.n_changes == 3
            log.remove_node(5)
        with GraphLog(task(), path) as log:
            assert (log.n_changes, log.notes) == (4, ())

    @pytest.mark.parametrize(
        "fails", ["os.fsync", "calirare.graph.changes.Changes._make", "calirare.graph.changes.Changes._take_node"]
    )
    def test_after_an_interrupted_change_no_other_is_made_until_it_is_opened_again(self, fails, path):
        with GraphLog(task(), path) as log:
            with mock.patch(fails, side_effect=[KeyboardInterrupt, None]), pytest.raises(KeyboardInterrupt):
                log.remove_node(4)
            with pytest.raises(InputError, match="open the log again"):
                log.add_edge(4, 9)
        with GraphLog(task(), path) as log:
            assert log.n_changes == (3 if fails == "os.fsync" else 4)
            log.remove_node(5)

    HOSTILE = (
        *(7, [], {}, {"do": "add node"}, {"do": [], "node": 1}, {"do": "remove node", "node": True}),
        *({"do": "remove node", "node": 10**30}, {"do": "remove node", "node": [1]}, {"do": "make", "node": 1}),
        *({"do": "add edge", "edge": 3, "weight": 1}, {"do": "add edge", "edge": [1, 2, 3], "weight": 1}),
        *({"do": "add edge", "edge": [1, 9], "weight": w} for w in (True, [], 10**400, "1", None)),
        *({"do": "set features", "node": 1, "x": x} for x in (None, {}, [None] * D, [[]] * D, [10**400] * D, "abcdef")),
        *({"do": "add node", "x": [0.0] * D, "edges": e, "name": None} for e in (None, 3, [3], [[1]], [[{}, 1.0]])),
        {"do": "add node", "x": [0.0] * D, "edges": [], "name": 3},
    )

    @pytest.mark.parametrize("record", HOSTILE, ids=str)
    def test_a_record_that_no_log_writes_is_one_sentence(self, record, path):
        text = json.dumps(record).encode()
        with path.open("ab") as file:
            file.write(b"%08x %s\n" % (crc32(text), text))
        with pytest.raises(InputError, match="line 5 cannot be followed"):
            GraphLog(task(), path)

    @pytest.mark.parametrize(
        "x",
        [
            *([0.0] * D, {}, {"columns": [0], "values": []}, {"columns": [1, 0], "values": [1.0, 2.0]}),
            *({"columns": [c], "values": [v]} for c, v in ((D, 1.0), (True, 1.0), (0, None))),
        ],
        ids=str,
    )
    def test_a_sparse_row_that_no_log_writes_is_one_sentence(self, x, tmp_path):
        GraphLog(task("sparse"), tmp_path / "log").close()
        text = json.dumps({"do": "set features", "node": 1, "x": x}).encode()
        with (tmp_path / "log").open("ab") as file:
            file.write(b"%08x %s\n" % (crc32(text), text))
        with pytest.raises(InputError, match="line 2 cannot be followed"):
            GraphLog(task("sparse"), tmp_path / "log")


def _write_until_killed(folder, pipe) -> None:
    log = GraphLog(folder)
    while True:
        pipe.send(log.add_node(np.zeros(D), [0]))


def test_what_was_acknowledged_survives_a_kill(tmp_path):
    task().to_folder(tmp_path / "g")
    ours, theirs = multiprocessing.get_context("fork").Pipe(duplex=False)
    writer = multiprocessing.get_context("fork").Process(target=_write_until_killed, args=(tmp_path / "g", theirs))
    writer.start()
    last = [ours.recv() for _ in range(20)][-1]
    os.kill(writer.pid, signal.SIGKILL)
    writer.join()
    while ours.poll():
        last = ours.recv()
    with GraphLog(tmp_path / "g") as log:
        assert log.path == tmp_path / "g.log"
        assert log.graph().n_nodes >= last + 1


class TestCompact:
    @pytest.mark.parametrize("kind", KINDS)
    def test_the_folder_holds_the_changed_graph(self, kind, tmp_path):
        graph, rng = task(kind), np.random.default_rng(5)
        graph.to_folder(tmp_path / "g")
        want = Reference(graph)
        with mock.patch("os.fsync"), GraphLog(tmp_path / "g") as log:
            for _ in range(30):
                step(log, want, rng, kind)
            log.compact(tmp_path / "deep" / "g2")
            numbers = log.numbers()
        read, minority = Graph.read(tmp_path / "deep" / "g2")
        assert_same(read, want)
        assert minority == graph.minority == 1
        assert read.columns == graph.columns
        assert fingerprint(Graph.read(tmp_path / "g")[0]) == fingerprint(graph), "the old one stays"
        if kind == "names":
            assert not (tmp_path / "deep" / "g2" / "numbers.csv").exists()
        else:
            table = pd.read_csv(tmp_path / "deep" / "g2" / "numbers.csv")
            assert table["old"].tolist() == list(range(len(numbers)))
            assert table["new"].fillna(-1).tolist() == numbers.tolist()
        with pytest.raises(InputError, match="belongs to another graph"):
            GraphLog(tmp_path / "deep" / "g2", tmp_path / "g.log")

    def test_it_is_there_whole_or_not_at_all(self, tmp_path):
        with GraphLog(task(), tmp_path / "log") as log:
            log.remove_node(3)
            log.compact(tmp_path / "out")
            with pytest.raises(InputError, match="exists already"):
                log.compact(tmp_path / "out")
            before = sorted(each.name for each in tmp_path.iterdir())
            for fault, message in (
                (mock.patch("os.rename", side_effect=OSError(28, "No space left on device")), "No space left"),
                (
                    mock.patch("calirare.graph.log.fingerprint", side_effect=["a", "b"]),
                    "does not hold what was written",
                ),
            ):
                with fault, pytest.raises(InputError, match=message):
                    log.compact(tmp_path / "other")
            assert sorted(each.name for each in tmp_path.iterdir()) == before
