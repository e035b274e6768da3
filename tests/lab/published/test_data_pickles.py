"""The restricted unpickler: plain data of Python 2 and 3 comes out, nothing ever runs."""

import collections
import os
import pickle

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from calirare._util.errors import InputError
from calirare.datasets import load_dataset
from calirare_ext import Csr
from calirare_lab.published.pickles import open_pickled_arrays, read_pickle, unpickle
from calirare_lab.published.raw import PLANETOID_PARTS, read_npz, read_planetoid
from tests.helpers.graphs import EDGES, small_adjacency, small_features

MATRIX = sp.csr_matrix(np.array([[0, 1.5, 0], [2, 0, 0], [0, 0, 0]], dtype=np.float32))


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_plain_data_comes_out(tmp_path, protocol):
    lists = collections.defaultdict(list, {0: [1, 2], 5: []})
    for thing in (np.arange(6).reshape(2, 3), np.asfortranarray(np.arange(6.0).reshape(2, 3)), MATRIX, lists):
        if protocol == 5 and not isinstance(thing, dict):
            continue
        got = unpickle(pickle.dumps(thing, protocol), tmp_path)
        if sp.issparse(thing):
            assert (got != thing).nnz == 0
        elif isinstance(thing, dict):
            assert got == dict(thing)
            assert type(got) is dict
        else:
            assert np.array_equal(got, thing)


# What Python 2 wrote: bytes as str, module names of old.
PYTHON_2 = (
    b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntS'b'\ntR(I1\n(I3\ntcnumpy\ndtype\n(S'i2'\nI0\nI1\ntR"
    b"(I3\nS'<'\nNNNI-1\nI-1\nI0\ntbI00\nS'\\x01\\x00\\xff\\xff\\x00\\x01'\ntb."
)


def test_python_2_arrays_come_out(tmp_path):
    assert unpickle(PYTHON_2, tmp_path).tolist() == [1, -1, 256]


class Call:
    """Pickles as a call of anything."""

    def __init__(self, function, *arguments):
        self.parts = (function, arguments)

    def __reduce__(self):
        return self.parts


def attacks(proof):
    yield Call(os.mkdir, str(proof))
    yield Call(eval, f"__import__('os').mkdir({str(proof)!r})")
    yield Call(exec, f"import os; os.mkdir({str(proof)!r})")
    yield [1, {"a": Call(os.mkdir, str(proof))}]
    yield Call(getattr, "text", "upper")
    yield np.array([Call(os.mkdir, str(proof))], dtype=object)


@pytest.mark.parametrize("protocol", [0, 2, 4])
@pytest.mark.parametrize("number", range(6))
def test_a_malicious_pickle_does_not_run(tmp_path, protocol, number):
    proof = tmp_path / "executed"
    attack = pickle.dumps(list(attacks(proof))[number], protocol)
    path = tmp_path / "ind.cora.x"
    path.write_bytes(attack)
    with pytest.raises(InputError, match=r"which data does not need and which can run code; nothing was run"):
        read_pickle(path)
    assert not proof.exists()
    if number != 4:
        pickle.loads(attack)
        assert proof.exists(), "the pickle of this test must be one that would have run"


@pytest.mark.parametrize(
    "name",
    [
        b"numpy\nload",
        b"numpy\nndarray.tofile",
        b"builtins\ngetattr",
        b"builtins\nopen",
        b"collections\nOrderedDict",
        b"os\nsystem",
    ],
)
def test_only_the_few_names_are_known(tmp_path, name):
    module, attribute = name.decode().split("\n")
    with pytest.raises(InputError, match=f"asks Python for {module}.{attribute}, which data does not need"):
        unpickle(b"c" + name + b"\n.", tmp_path)
    by_stack = b"\x80\x04\x8c" + bytes([len(module)]) + module.encode() + b"\x8c" + bytes([len(attribute)])
    with pytest.raises(InputError, match="which data does not need"):
        unpickle(by_stack + attribute.encode() + b"\x93.", tmp_path)


def test_damaged_pickles_are_refused(tmp_path):
    whole = pickle.dumps(MATRIX, 2)
    for length in range(0, len(whole), 11):
        with pytest.raises(InputError, match="damaged or cut off"):
            unpickle(whole[:length], tmp_path)
    with pytest.raises(InputError, match=r"an array of the type O8 is not a plain one|an array of objects"):
        unpickle(pickle.dumps(np.array([1, "a"], dtype=object), 2), tmp_path)
    with pytest.raises(InputError, match="damaged"):
        unpickle(PYTHON_2.replace(b"(I3\ntcnumpy", b"(I4\ntcnumpy"), tmp_path)
    with pytest.raises(InputError, match=r"cannot be read \(No such file or directory\)"):
        read_pickle(tmp_path / "none")


def test_a_sparse_matrix_that_points_outside_is_refused(tmp_path):
    broken = MATRIX.copy()
    broken.indices = np.array([1, 99], dtype=np.int32)
    with pytest.raises(InputError, match="damaged"):
        unpickle(pickle.dumps(broken, 2), tmp_path)


def test_archives_with_pickled_matrices_are_read_without_pickle(tmp_path):
    path = tmp_path / "g.npz"
    np.savez(path, matrix=np.array(MATRIX, dtype=object), labels=np.arange(3))
    arrays = open_pickled_arrays(path)
    assert (arrays["matrix"] != MATRIX).nnz == 0
    assert arrays["labels"].tolist() == [0, 1, 2]
    proof = tmp_path / "executed"
    np.savez(path, matrix=np.array(Call(os.mkdir, str(proof)), dtype=object))
    with pytest.raises(InputError, match="nothing was run"):
        open_pickled_arrays(path)
    assert not proof.exists()
    path.write_bytes(b"nothing")
    with pytest.raises(InputError, match="missing, damaged or cut off"):
        open_pickled_arrays(path)


def write_planetoid(folder, prefix="cora", n_train=20, n_known=560, n_test=40, gap=2):
    """A made-up graph in Planetoid's files; `gap` test nodes are left out, as in CiteSeer. Returns x, y, test."""
    rng = np.random.default_rng(0)
    n = n_known + n_test + gap
    x = (rng.random((n, 7)) < 0.3).astype(np.float32)
    y = rng.integers(0, 2, n)
    test = n_known + rng.permutation(n - n_known)
    left_out, test = test[:gap], test[gap:]
    # The last node must be listed, as the files give the number of nodes by it.
    if n - 1 in left_out:
        test[0], left_out[left_out == n - 1] = n - 1, test[0]
    x[left_out] = 0
    one_hot = np.eye(2, dtype=np.int32)[y]
    graph = collections.defaultdict(list)
    for u in range(n - 1):
        graph[u] += [u + 1, u + 1] if u % 5 == 0 else [u + 1]
    graph[3].append(3)
    parts = {
        "x": sp.csr_matrix(x[:n_train]),
        "y": one_hot[:n_train],
        "allx": sp.csr_matrix(x[:n_known]),
        "ally": one_hot[:n_known],
        "tx": sp.csr_matrix(x[test]),
        "ty": one_hot[test],
        "graph": graph,
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, part in parts.items():
        (folder / f"ind.{prefix}.{name}").write_bytes(pickle.dumps(part, 2))
    (folder / f"ind.{prefix}.test.index").write_text("\n".join(map(str, test)) + "\n")
    y[left_out] = -1
    return x, y, test


def test_planetoid_files_become_a_graph(tmp_path):
    x, y, test = write_planetoid(tmp_path)
    graph = read_planetoid(tmp_path, "cora")
    assert np.array_equal(graph.x.to_dense().numpy(), x)
    assert graph.y.tolist() == y.tolist()
    assert graph.split.train.tolist() == list(range(20))
    assert graph.split.val.tolist() == list(range(20, 520))
    assert graph.split.test.tolist() == sorted(test)
    path = np.eye(len(y), k=1) + np.eye(len(y), k=-1)
    assert np.array_equal(graph.adjacency.to_dense().numpy(), path)


def test_pubmed_loads_from_complete_raw_files_and_names_a_missing_one(tmp_path):
    folder = tmp_path / "planetoid" / "PubMed" / "raw"
    write_planetoid(folder, "pubmed", gap=0)
    graph = load_dataset("pubmed", tmp_path)
    assert (graph.name, graph.minority, graph.split.name) == ("pubmed", 0, "public")
    (folder / "ind.pubmed.allx").unlink()
    message = r"is incomplete: put planetoid/PubMed/raw/ind.pubmed.allx into "
    with pytest.raises(InputError, match=message):
        load_dataset("pubmed", tmp_path)


@pytest.mark.parametrize("part", PLANETOID_PARTS)
def test_planetoid_files_missing_or_damaged_are_named(tmp_path, part):
    write_planetoid(tmp_path)
    path = tmp_path / f"ind.cora.{part}"
    path.write_bytes(path.read_bytes()[:-9] if part != "test.index" else b"560\nabc\n")
    with pytest.raises(InputError, match=f"ind.cora.{part}: the file .*get it again"):
        read_planetoid(tmp_path, "cora")
    path.unlink()
    with pytest.raises(InputError, match=rf"ind.cora.{part} is missing \(1 of 8\): put it there"):
        read_planetoid(tmp_path, "cora")


def test_raw_archives_of_pytorch_geometric_are_read(tmp_path):
    a, x = small_adjacency(), Csr.from_dense(small_features() * 0.5)
    np.savez(
        tmp_path / "dblp.npz",
        adj_indptr=a.indptr.numpy().astype(np.int32),
        adj_indices=a.indices.numpy(),
        attr_indptr=x.indptr.numpy(),
        attr_indices=x.indices.numpy(),
        attr_data=x.values.numpy(),
        attr_shape=np.array(x.shape),
        labels=np.array([0, 1, 2, 0, 1]),
    )
    graph = read_npz(tmp_path / "dblp.npz")
    assert torch.equal(graph.x.to_dense(), (small_features() > 0).float())
    assert torch.equal(graph.adjacency.to_dense(), a.to_dense())
    np.savez(
        tmp_path / "pages.npz",
        edges=EDGES.astype(np.int32),
        features=small_features(),
        target=np.array([0, 1, 2, 0, 1]),
    )
    graph = read_npz(tmp_path / "pages.npz")
    assert torch.equal(graph.adjacency.to_dense(), a.to_dense())
    assert graph.y.tolist() == [0, 1, 2, 0, 1]
