"""as_csr: every form of a sparse matrix is one matrix to every operator, and what is none is refused."""

from __future__ import annotations

import pytest
import torch

from calirare_ext import (
    Csr,
    as_csr,
    field_of_propagated,
    gcn_norm,
    message_interval,
    neighbour_means,
    propagate,
    receptive_field,
    row_sums,
)
from tests.helpers.problems import N_NODES, graph, normal
from tests.helpers.tolerance import assert_identical

pytestmark = pytest.mark.filterwarnings("ignore:Sparse:UserWarning")
A = graph(directed=True)
EDGE_INDEX, EDGE_WEIGHT = torch.stack([A.indices.long(), A.rows()]), A.values
WATCHED = EDGE_WEIGHT.clone().requires_grad_()
SHUFFLED = torch.randperm(A.nnz, generator=torch.Generator().manual_seed(0))


class DuckTyped:
    """What `as_csr` asks of a torch_sparse.SparseTensor."""

    def csr(self):
        return A.indptr, A.indices.long(), A.values

    def sparse_sizes(self):
        return A.shape


FORMS = {
    "torch.sparse_csr": lambda: torch.sparse_csr_tensor(A.indptr, A.indices.long(), A.values, A.shape),
    "torch.sparse_coo": lambda: torch.sparse_coo_tensor(EDGE_INDEX.flip(0)[:, SHUFFLED], A.values[SHUFFLED], A.shape),
    "SparseTensor": DuckTyped,
    "edge_index": lambda: EDGE_INDEX[:, SHUFFLED],
}
X = normal(N_NODES, 3, seed=1)
OPERATORS = {
    "propagate": lambda a, **edges: propagate(a, X, **edges),
    "neighbour_means": lambda a, **edges: neighbour_means(a, X, **edges),
    "gcn_norm": lambda a, **edges: gcn_norm(a, **edges, num_nodes=N_NODES).to_dense(),
    "receptive_field": lambda a, **edges: receptive_field(a, X, torch.arange(4), 2, **edges).inputs,
    "row_sums": lambda a, **edges: row_sums(as_csr(a, **edges, num_nodes=N_NODES) if edges else a),
    "message_interval": lambda a, **edges: message_interval(
        as_csr(a, **edges, num_nodes=N_NODES) if edges else a, X, X[:, 0], X[0], X[1].abs(), 0.1, 0.9
    )[0],
}


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("form", FORMS)
def test_every_operator_takes_every_form(form, operator):
    edges = {"edge_weight": EDGE_WEIGHT[SHUFFLED]} if form == "edge_index" else {}
    assert_identical(OPERATORS[operator](FORMS[form](), **edges), OPERATORS[operator](A), form)


def test_an_edge_index_is_read_as_pyg_reads_it():
    layers, norm = pytest.importorskip("torch_geometric.nn"), pytest.importorskip("torch_geometric.nn.conv.gcn_conv")
    sums = layers.SimpleConv(aggr="sum")
    torch.testing.assert_close(propagate(EDGE_INDEX, X), sums(X, EDGE_INDEX))
    torch.testing.assert_close(propagate(EDGE_INDEX, X, EDGE_WEIGHT), sums(X, EDGE_INDEX, EDGE_WEIGHT))
    index, weight = norm.gcn_norm(EDGE_INDEX, EDGE_WEIGHT, N_NODES)
    torch.testing.assert_close(gcn_norm(EDGE_INDEX, EDGE_WEIGHT, N_NODES).to_dense(), as_csr(index, weight).to_dense())
    twice = torch.cat([EDGE_INDEX, EDGE_INDEX], 1)
    torch.testing.assert_close(propagate(twice, X), sums(X, twice), msg="an edge that is there twice sends twice")


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: propagate(EDGE_INDEX.T, X), ValueError, rf"edge_index must have shape \[2, E\], got \[{A.nnz}, 2\]"),
        (lambda: propagate(EDGE_INDEX + 5, X), ValueError, rf"edge_index must name nodes in \[0, {N_NODES}\), got"),
        (lambda: propagate(EDGE_INDEX, X, EDGE_WEIGHT[1:]), ValueError, rf"edge_weight must have shape \[{A.nnz}\]"),
        (lambda: propagate(EDGE_INDEX, X, EDGE_WEIGHT.float()), TypeError, "x must be float32 as a is, got float64"),
        (lambda: propagate(A, X, EDGE_WEIGHT), ValueError, "edge_weight must come with an edge_index"),
        (lambda: propagate(EDGE_INDEX, X, WATCHED), ValueError, "weights of edges must not require a gradient"),
        (lambda: propagate(A.to_dense(), X), TypeError, r"edge_index must be int64, got float64 .* Csr.from_dense"),
        (lambda: gcn_norm([[0, 1], [1, 0]]), TypeError, "gcn_norm: the matrix must be a Csr, .* got list"),
        (lambda: propagate(A.to_dense().long().to_sparse_coo(), X), TypeError, "must be float32 or float64, got int64"),
        (lambda: propagate(A.to_dense().to_sparse_csc(), X), ValueError, "must be torch.sparse_csr or"),
    ],
)
def test_what_is_no_sparse_matrix_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_a_receptive_field_propagates_the_features_itself(sparse):
    a_hat, nodes = gcn_norm(A), torch.tensor([5, 0, 13])
    field = receptive_field(a_hat, Csr.from_dense(X) if sparse else X, nodes, 2)
    known = field_of_propagated(a_hat, propagate(a_hat, X), nodes, 2)
    torch.testing.assert_close(field.inputs.to_dense(), known.inputs)
    assert [rows.tolist() for rows in field.rows] == [rows.tolist() for rows in known.rows]
