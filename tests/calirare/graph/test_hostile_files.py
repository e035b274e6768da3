"""Files that are damaged, or made to harm: each is refused in one sentence, before memory or time is spent on it."""

from __future__ import annotations

import gzip
import json
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest

from calirare import InputError
from calirare._util import array_files
from calirare._util.errors import LONGEST
from calirare.graph import Graph
from tests.helpers.tables import texts
from tests.helpers.tasks import rare_task
from tests.helpers.tolerance import assert_identical


@pytest.fixture(scope="module")
def arrays(tmp_path_factory) -> dict[str, np.ndarray]:
    path = tmp_path_factory.mktemp("task") / "g.npz"
    rare_task().to_npz(path)
    return dict(np.load(path))


def written(folder: Path, arrays: dict, **changes: object) -> Path:
    kept = {name: value for name, value in (arrays | changes).items() if value is not None}
    np.savez(folder / "g.npz", **kept)
    return folder / "g.npz"


@pytest.fixture
def folder(tmp_path) -> Path:
    rare_task().to_folder(tmp_path / "graph")
    return tmp_path / "graph"


SPARSE = {"x": None, "x_indptr": np.zeros(261, np.int64), "x_indices": np.zeros(0, np.int32), "x_data": np.zeros(0)}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (SPARSE | {"x_shape": np.array([260, 2**62])}, "shape must be of sizes from 0 to"),
        ({"y": np.full(260, 2**64 - 1, np.uint64)}, "labels must be classes from 0, got 18446744073709551615"),
        ({"train_idx": np.array([2**64 - 1], np.uint64)}, "train_idx must be below 2"),
        (
            {"feature_names": np.array(["a", "b", "a", "c", "d", "e"])},
            "feature_names must differ, but 'a' stands at 0 and",
        ),
        (
            {"class_names": np.array([65, 0x110000], np.uint32).view("<U1")},
            r"the file is damaged \(text holds 0x110000, which is no character\)",
        ),
        ({"node_names": np.array(["n"] * 2 + list("abc") * 86)}, "node_names must differ"),
        (
            {"x": np.full((260, 6), -3.4e38, np.float32)},
            "features must be from -1e.19 to 1e.19, got -3.4e.38 at node 0",
        ),
        ({"x": np.full((260, 6), np.inf, np.float32)}, "features must be finite, got inf at node 0"),
        ({"feature_normalisation": np.array("\x1b[31m" * 10**6)}, r"\\x1b\[31m"),
    ],
)
def test_an_archive_that_does_not_fit_is_one_short_sentence(changes, message, arrays, tmp_path):
    with pytest.raises(InputError, match=message) as error:
        Graph.read(written(tmp_path, arrays, **changes))
    assert str(error.value).isprintable()
    assert len(str(error.value)) <= LONGEST


def test_another_byte_order_is_the_same_graph(arrays, tmp_path):
    turned = {
        name: value.astype(value.dtype.newbyteorder()) for name, value in arrays.items() if value.dtype.kind in "if"
    }
    graph, expected = Graph.read(written(tmp_path, arrays, **turned))[0].rare(1), rare_task()
    assert_identical(graph.x, expected.x)
    assert_identical(graph.adjacency.indices, expected.adjacency.indices)


def test_an_archive_of_zeros_or_larger_than_memory_is_refused_before_it_is_unpacked(arrays, tmp_path, monkeypatch):
    monkeypatch.setattr(array_files, "BOMB_BYTES", 1_000_000)
    np.savez_compressed(tmp_path / "g.npz", **arrays | {"x": np.zeros((260, 10_000), np.float32)})
    with pytest.raises(InputError, match="nearly all of it zeros"):
        Graph.read(tmp_path / "g.npz")
    monkeypatch.setattr(array_files, "free_bytes", lambda device: 1000)
    with pytest.raises(InputError, match=r"the arrays in the file take .* GB and 0\.00 GB may be used"):
        Graph.read(written(tmp_path, arrays))


def header(shape: str, descr: str = "<f4") -> bytes:
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}".encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


HEADERS = [
    header("(1099511627776,)"),
    header("(-1,)"),
    header("(3,"),
    header("(3.5,)"),
    header("(2,2)", "<f99"),
    b"\x93NUM",
]


@pytest.mark.parametrize("content", HEADERS, ids=range(len(HEADERS)))
def test_a_header_that_claims_what_is_not_there_is_refused(content, arrays, folder):
    path = written(folder.parent, {name: value for name, value in arrays.items() if name != "x"})
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("x.npy", content + b"1234")
    with pytest.raises(InputError, match="the file is damaged"):
        Graph.read(path)
    (folder / "x.npy").write_bytes(content + b"1234")
    with pytest.raises(InputError, match=r"x\.npy: the file is damaged"):
        Graph.read(folder)


@pytest.mark.parametrize("name", ["graph.json", "x.npy", "indices.npy", "train_idx.npy"])
def test_a_pipe_is_not_waited_for(name, folder):
    (folder / name).unlink()
    os.mkfifo(folder / name)
    with pytest.raises(InputError, match="must be a plain file, got a pipe or a device"):
        Graph.read(folder)


@pytest.mark.parametrize("facts", ["[" * 100_000, '{"format": ' * 50_000, "[1]", '{"n": ' + "1" * 5000 + "}"])
def test_facts_that_are_none_are_one_sentence(facts, folder):
    (folder / "graph.json").write_text(facts)
    with pytest.raises(InputError, match=r"graph\.json (is not JSON|must have format)"):
        Graph.read(folder)


def changed(folder: Path, **arrays: np.ndarray) -> None:
    """Exchanges arrays of a folder, which says as before, and as folders of 0.2 did, that all was checked."""
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    facts = json.loads((folder / "graph.json").read_text())
    (folder / "graph.json").write_text(json.dumps(facts | {"checked": True}))


def test_a_folder_is_believed_to_be_checked_by_its_checksums_alone(folder):
    indptr, indices = np.load(folder / "indptr.npy"), np.load(folder / "indices.npy")
    assert_identical(Graph.read(folder)[0].adjacency.indices, rare_task().adjacency.indices)
    turned = indices.copy()
    row = int(np.argmax(np.diff(indptr) > 1))
    turned[indptr[row] : indptr[row + 1]] = turned[indptr[row] : indptr[row + 1]][::-1]
    x = np.load(folder / "x.npy")
    x[7, 3] = np.inf
    weights = np.ones(len(indices), np.float32)
    asymmetric, negative = weights.copy(), -weights
    asymmetric[0] = 2
    for arrays, message in (
        ({"indices": turned}, f"indices must ascend in each row, those of row {row} do not"),
        ({"indices": indices, "x": x}, "features must be finite, got inf at node 7, column 3"),
        ({"x": np.ones_like(x), "weights": asymmetric}, "adjacency must be symmetric"),
        ({"weights": negative}, "edge weights must be > 0"),
    ):
        changed(folder, **arrays)
        with pytest.raises(InputError, match=message):
            Graph.read(folder)
    facts = json.loads((folder / "graph.json").read_text())
    del facts["checksums"]
    (folder / "graph.json").write_text(json.dumps(facts))
    with pytest.raises(InputError, match=message):
        Graph.read(folder)


def test_a_folder_in_another_byte_order_is_refused(folder):
    changed(folder, indptr=np.load(folder / "indptr.npy").astype(">i8"))
    with pytest.raises(InputError, match=r"indptr\.npy: the file is damaged.*it holds >i8"):
        Graph.read(folder)


def test_labels_that_floats_cannot_tell_apart_are_refused(tmp_path):
    with pytest.raises(InputError, match="labels must be names or whole numbers"):
        Graph.from_edges(texts(tmp_path, f"x,y\n1,{2**53}\n2,{2**53 + 1}\n"), None)
    graph = Graph.from_edges(texts(tmp_path, f"x,y\n1,{2**53 - 1}\n2,{2**53 - 2}\n"), None)
    assert graph.class_names == (str(2**53 - 2), str(2**53 - 1))


@pytest.mark.parametrize("nodes", ["x,y\n1,0\n2,1\n", "node,x,y\na,1,0\nb,2,1\n"])
def test_an_edge_table_of_a_header_alone_is_a_graph_without_edges(tmp_path, nodes):
    graph = Graph.from_edges(texts(tmp_path, nodes, "source,target\n"), None)
    assert graph.n_edges == 0
    assert "edges: the table has no rows: no node has a neighbour" in graph.notes
    typed = Graph.from_edges(texts(tmp_path, nodes, "source,target,kind\n"), None, relation="kind")
    assert typed.n_edges == 0
    assert typed.relations == ()


def test_a_damaged_gzip_is_one_sentence(tmp_path):
    texts(tmp_path, "x,y\n1,0\n2,1\n")
    packed = bytearray(gzip.compress(b"source,target\n" + b"".join(b"%d,%d\n" % (i, i + 1) for i in range(5000))))
    for place in range(12, len(packed), 997):
        damaged = packed.copy()
        damaged[place] ^= 255
        (tmp_path / "edges.csv.gz").write_bytes(damaged)
        with pytest.raises(InputError, match=r"edges\.csv\.gz"):
            Graph.from_edges(tmp_path / "edges.csv.gz", tmp_path / "nodes.csv")
