"""The `.npz` format: what is written is read again, and every kind of broken file is refused in one sentence."""

import dataclasses
import os
import pickle
import stat

import numpy as np
import pytest
import torch

from calirare._util.errors import InputError
from calirare.datasets import load_dataset, read_graph
from calirare.graph import Graph
from calirare_ext import Csr
from tests.helpers.graphs import EDGES, small_adjacency, small_features, small_graph
from tests.helpers.tasks import rare_task

WEIGHTS = [2.0, 2.0, 3.0, 3.0, 0.5, 0.5, 1.0, 1.0]


def plain_arrays(**changes):
    """A valid file's arrays; None removes one."""
    a = small_adjacency()
    arrays = {
        "indptr": a.indptr.numpy(),
        "indices": a.indices.numpy(),
        "x": small_features().numpy(),
        "y": np.array([0, 1, 2, 0, -1]),
    }
    return {key: value for key, value in (arrays | changes).items() if value is not None}


@pytest.fixture
def save(tmp_path):
    def write(**changes):
        path = tmp_path / "g.npz"
        np.savez_compressed(path, **plain_arrays(**changes))
        return path

    return write


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("weights", [None, WEIGHTS])
@pytest.mark.parametrize("folder", [False, True])
def test_what_is_written_is_read(tmp_path, sparse, weights, folder):
    x = Csr.from_dense(small_features()) if sparse else small_features()
    graph = small_graph(
        adjacency=small_adjacency(weights),
        x=x,
        class_names=("a", "b", "c"),
        node_names=np.array(["p", "q", "r", "s", "tt"]),
        feature_names=("amount", "age", "x"),
        feature_normalisation="row",
    ).rare("b")
    path = tmp_path / ("small" if folder else "small.npz")
    (graph.to_folder if folder else graph.to_npz)(path)
    read, minority = Graph.read(path)
    back = read.rare(minority)
    for part in ("y", "original_y"):
        assert torch.equal(getattr(back, part), getattr(graph, part))
    for part in ("class_names", "original_class_names", "minority", "name", "feature_names", "feature_normalisation"):
        assert getattr(back, part) == getattr(graph, part)
    for part in ("indptr", "indices", "values"):
        assert torch.equal(getattr(back.adjacency, part), getattr(graph.adjacency, part))
    assert isinstance(back.x, Csr) == sparse
    assert torch.equal(back.x.to_dense() if sparse else back.x, small_features())
    assert [getattr(back.split, part).tolist() for part in ("train", "val", "test")] == [[0, 1, 2], [3], []]
    assert back.split.name == "given"
    assert back.node_names.tolist() == ["p", "q", "r", "s", "tt"]


@pytest.mark.parametrize("how", ["none", "row", "standardize"])
def test_the_scaling_of_the_features_is_kept_unless_another_is_wanted(tmp_path, how):
    path = tmp_path / "g.npz"
    task = rare_task(feature_normalisation=how)
    task.to_npz(path)
    assert load_dataset(path).feature_normalisation == how
    for wanted in ("none", "row", "standardize"):
        assert load_dataset(path, scale=wanted).feature_normalisation == wanted
    with pytest.raises(InputError, match=r"scale must be one of .*none, row, .*, got 'big'"):
        load_dataset(path, scale="big")


def test_self_loops_that_were_kept_are_read_again(tmp_path):
    loops = np.concatenate([EDGES, [[4, 4]]])
    graph = Graph.from_edges(loops, small_features(), self_loops="keep")
    graph.to_npz(tmp_path / "g.npz")
    assert torch.equal(Graph.read(tmp_path / "g.npz")[0].adjacency.indices, graph.adjacency.indices)
    assert Graph.read(tmp_path / "g.npz", self_loops="drop")[0].n_edges == 8
    small_graph().to_npz(tmp_path / "plain.npz")
    assert "self_loops" not in np.load(tmp_path / "plain.npz")


def test_scaling_does_not_belong_to_a_graph_that_is_only_read(save):
    for name in ("digits", save()):
        with pytest.raises(InputError, match="scale must be left out, it is for a graph to train on, and a trained"):
            read_graph(name, scale="row")


def test_an_unlabelled_graph_is_written_and_read(tmp_path):
    small_graph(y=None, split=None).to_npz(tmp_path / "g.npz")
    graph = Graph.read(tmp_path / "g.npz")[0]
    assert (graph.y, graph.split, graph.minority) == (None, None, None)


def test_a_stored_rare_class_is_a_number_and_unlabelled_nodes_have_no_label(save):
    numbers = load_dataset(
        save(y=np.array([0, 1, 2, 0, 1]), class_names=np.array(["2", "0", "1"]), minority=np.array(1))
    )
    assert numbers.class_names == ("rest", "0"), "a stored number is no name"
    unlabelled = save(y=np.array([0, 1, 2, 0, 0]), unlabelled_idx=np.array([3, 4]))
    assert Graph.read(unlabelled)[0].y.tolist() == [0, 1, 2, -1, -1]


def test_unsorted_columns_are_sorted(save):
    indices = small_adjacency().indices.numpy().copy()
    indices[1:4] = indices[1:4][::-1]
    graph = Graph.read(save(indices=indices))[0]
    assert torch.equal(graph.adjacency.to_dense(), small_adjacency().to_dense())


def edges_as_csr(edges):
    order = np.lexsort((edges[:, 1], edges[:, 0]))
    indptr = np.concatenate([[0], np.cumsum(np.bincount(edges[:, 0], minlength=5))])
    return {"indptr": indptr, "indices": edges[order, 1]}


ONE_WAY = edges_as_csr(EDGES[1:])
TWICE = edges_as_csr(np.concatenate([EDGES, EDGES[:2]]))
LOOP = edges_as_csr(np.concatenate([EDGES, [[4, 4]]]))
SPARSE = {
    "x": None,
    "x_indptr": np.array([0, 1, 2, 3, 4, 4]),
    "x_indices": np.array([0, 1, 2, 0]),
    "x_data": np.ones(4, dtype=np.float32),
    "x_shape": np.array([5, 3]),
}


@pytest.mark.parametrize(
    ("changes", "options", "n_edges"),
    [(ONE_WAY, {"symmetrize": True}, 8), (TWICE, {"duplicates": "sum"}, 8), (LOOP, {"self_loops": "keep"}, 9)],
)
def test_edge_rules_apply_to_files(save, changes, options, n_edges):
    path = save(**changes)
    with pytest.raises(InputError, match=next(iter(options))) as error:
        Graph.read(path)
    assert str(path) in str(error.value)
    assert Graph.read(path, **options)[0].n_edges == n_edges


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"indptr": None}, "must hold indptr, indices, but indptr is missing"),
        ({"x": None}, "x_indptr, x_indices, x_data, x_shape is missing"),
        ({"indptr": np.array([0, 1, 4, 6, 9, 9])}, "indptr must rise from 0 to the number of entries, 8, got 0 to 9"),
        ({"indptr": np.array([0.0, 1, 4, 6, 8, 8])}, "indptr must be a vector of whole numbers, got float64"),
        ({"indices": np.array([1, 0, 2, 3, 1, 3, 1, 9])}, r"edge 7 \(3, 9\) must join nodes from 0 to 4"),
        ({"x": np.ones((4, 2))}, "one row per node, got 4 rows for 5 nodes"),
        ({"x": np.array([["a"]] * 5)}, "features must be real numbers, got <U1"),
        ({"minority": np.array(3)}, "minority must be one class from 0 to 2, got 3"),
        ({"train_idx": np.array([0])}, "val_idx, test_idx is missing"),
        (
            {f"{part}_idx": np.arange(5) == i for i, part in enumerate(("train", "val", "test"))},
            "train_idx must hold whole numbers, got a mask .*: write its indices, np.flatnonzero",
        ),
        ({"unlabelled_idx": np.array([9])}, "unlabelled_idx must be nodes from 0 to 4, got 9"),
        ({"class_names": np.array("acct")}, "class_names must be a list of names"),
        ({"feature_names": np.array("a")}, "feature_names must be a list of names"),
        ({"feature_normalisation": np.array("rows")}, "must be one of none, row, standardize, .*, got 'rows'"),
        ({"self_loops": np.array("yes")}, "self_loops must be 'keep' or left out, got 'yes'"),
        (
            {"indptr": np.array([0]), "indices": np.array([], dtype=int), "x": np.ones((0, 1)), "y": None},
            "at least one node",
        ),
        (SPARSE | {"x_indices": np.array([0, 1, 2, 9])}, "features do not fit together"),
        (SPARSE | {"x_data": np.array([1, np.nan, 1, 1])}, "features: values must be finite, got nan in row 1"),
        (SPARSE | {"x_shape": np.array([4, 3])}, "x_shape must be the rows and columns"),
        (SPARSE | {"x_indptr": np.array([0, 1, 2, 3])}, "x_indptr must rise"),
    ],
)
def test_a_file_that_does_not_fit_is_refused(save, changes, message):
    path = save(**changes)
    with pytest.raises(InputError, match=message) as error:
        Graph.read(path)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_a_missing_file_and_one_cut_off_anywhere_are_refused(tmp_path, save):
    with pytest.raises(InputError, match="there is no such file"):
        Graph.read(tmp_path / "none.npz")
    path = save()
    whole = path.read_bytes()
    for content in (b"node,label\n", *(whole[:length] for length in range(0, len(whole), 37))):
        path.write_bytes(content)
        with pytest.raises(InputError, match=r"damaged, cut off or not an .npz archive.*get it again"):
            Graph.read(path)


def test_a_file_with_flipped_bytes_never_gives_another_graph(save):
    """Flipped bytes are refused, or fall where the archive does not look and change nothing."""
    path = save()
    whole, graph = path.read_bytes(), Graph.read(save())[0]
    for at in range(0, len(whole), 29):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        try:
            other = Graph.read(path)[0]
        except InputError:
            continue
        assert torch.equal(other.x, graph.x)
        assert torch.equal(other.adjacency.to_dense(), graph.adjacency.to_dense())


class Evil:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (os.mkdir, (str(self.path),))


def test_pickled_objects_in_an_archive_are_never_opened(tmp_path, save):
    proof = tmp_path / "executed"
    path = save(y=np.array([Evil(proof)] * 5, dtype=object))
    with pytest.raises(InputError, match="pickled Python objects, which are never opened because they can run code"):
        Graph.read(path)
    path.write_bytes(pickle.dumps(Evil(proof)))
    with pytest.raises(InputError, match=r"not an .npz archive"):
        Graph.read(path)
    assert not proof.exists()
    pickle.loads(pickle.dumps(Evil(proof)))
    assert proof.exists(), "the pickle of this test must be one that would have run"


def test_a_failed_write_leaves_nothing(tmp_path, monkeypatch):
    with pytest.raises(InputError, match=r"cannot be written \(No such file or directory\)"):
        small_graph().to_npz(tmp_path / "none" / "g.npz")

    def full(file, **_):
        file.write(b"half")
        raise OSError(28, "No space left on device")

    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"cannot be written \(Not a directory\): make room or choose another folder"):
        small_graph().to_npz(tmp_path / "file" / "g.npz")
    (tmp_path / "file").unlink()
    monkeypatch.setattr(np, "savez_compressed", full)
    with pytest.raises(InputError, match=r"cannot be written \(No space left on device\): make room"):
        small_graph().to_npz(tmp_path / "g.npz")
    assert list(tmp_path.iterdir()) == []


def test_a_written_file_may_be_read_by_others_as_usual(tmp_path):
    small_graph().to_npz(tmp_path / "g.npz")
    (tmp_path / "plain").touch()
    assert stat.S_IMODE((tmp_path / "g.npz").stat().st_mode) == stat.S_IMODE((tmp_path / "plain").stat().st_mode)


def test_the_rare_class_of_several_must_be_named(save):
    with pytest.raises(InputError, match=r"the rare class must be named, the classes are 0 \(2 nodes\), 1 \(1 nodes\)"):
        load_dataset(save(), label_rate=1)
    with pytest.raises(InputError, match=r"nodes must be left out for an .npz file, it is for edge tables"):
        load_dataset(save(), nodes="x.csv", rare_class=2)


@pytest.mark.parametrize(("names", "rare"), [(("rest", "fraud"), "fraud"), (("fraud", "rest"), "fraud")])
def test_names_in_an_order_of_their_own_say_that_class_1_is_rare(tmp_path, names, rare):
    """However many labels it has; else the smaller class is."""
    y = torch.tensor([0, 1, 1, 1, 0, 1])
    edges = np.array([[i, i + 1] for i in range(5)])
    graph = Graph.from_edges(edges, np.ones((6, 1)), y, symmetrize=True)
    dataclasses.replace(graph, class_names=names).to_npz(tmp_path / "g.npz")
    assert load_dataset(tmp_path / "g.npz").class_names[1] == rare
