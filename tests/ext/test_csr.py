"""Csr: what it accepts, what it refuses and how, and that its derived matrices are right."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import given
from hypothesis import strategies as st

from calirare_ext import Csr, propagate
from tests.helpers.problems import MATRICES, matrix, normal, random_matrix
from tests.helpers.tolerance import assert_identical


def scipy_csr(a: Csr) -> scipy.sparse.csr_array:
    return scipy.sparse.csr_array((a.values.cpu().numpy(), a.indices.cpu().numpy(), a.indptr.cpu().numpy()), a.shape)


@pytest.mark.parametrize("name", MATRICES)
def test_derived_matrices_agree_with_scipy(name, dtype, device):
    a = matrix(name, dtype, device)
    theirs = scipy_csr(a)
    assert (a.n_rows, a.n_cols, a.nnz, a.shape) == (*theirs.shape, theirs.nnz, theirs.shape)
    assert (a.dtype, a.device) == (dtype, a.values.device)
    assert a.rows().tolist() == theirs.tocoo().row.tolist()
    assert_identical(a.to_dense().cpu(), torch.from_numpy(theirs.toarray()), "dense")
    turned = a.transpose()
    assert_identical(turned.to_dense().cpu(), torch.from_numpy(theirs.T.toarray()), "transpose")
    assert turned.transpose() is a
    assert a.transpose() is turned


@pytest.mark.parametrize("name", sorted(set(MATRICES) - {"no rows"}))
def test_select_rows_takes_rows_in_the_order_given(name, dtype, device):
    a = matrix(name, dtype, device)
    rows = torch.tensor([a.n_rows - 1, 0, a.n_rows - 1], device=device)
    assert_identical(a.select_rows(rows).to_dense(), a.to_dense()[rows], "rows")
    assert a.select_rows(rows[:0]).shape == (0, a.n_cols)


@pytest.mark.slow
@given(st.data())
def test_from_coo_sorts_and_adds_like_scipy(data):
    n_rows, n_cols = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 6))
    place = data.draw(st.lists(st.integers(0, n_rows * n_cols - 1), max_size=12))
    rows, cols = np.divmod(np.array(place, dtype=np.int64), n_cols)
    values = np.arange(1.0, len(place) + 1)
    theirs = scipy.sparse.coo_array((values, (rows, cols)), (n_rows, n_cols))
    tensors = [torch.from_numpy(part) for part in (rows, cols, values)]
    kept = Csr.from_coo(*tensors, (n_rows, n_cols))
    added = Csr.from_coo(*tensors, (n_rows, n_cols), sum_duplicates=True)
    assert kept.nnz == len(place)
    assert added.nnz == len(set(place))
    added.check_structure()
    for a in (kept, added):
        assert_identical(a.to_dense(), torch.from_numpy(theirs.toarray()), "dense")
        assert bool((a.rows() * n_cols + a.indices).diff().ge(0).all())


def test_keys_of_a_matrix_with_more_than_2_to_the_31_places():
    """Rows and columns are sorted by one key, row * n_cols + column, that must not wrap."""
    rows, cols = torch.tensor([99_999, 70_000, 70_000]), torch.tensor([1, 2**31 - 2, 3])
    a = Csr.from_coo(rows, cols, torch.tensor([1.0, 2.0, 3.0]), (100_000, 2**31 - 1))
    a.check_structure()
    assert a.rows().tolist() == [70_000, 70_000, 99_999]
    assert a.indices.tolist() == [3, 2**31 - 2, 1]
    assert a.values.tolist() == [3.0, 2.0, 1.0]


COPIES = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda x: pickle.loads(pickle.dumps(x)),
}


@pytest.mark.parametrize("way", COPIES)
def test_a_used_matrix_is_copied_without_what_was_computed(way):
    a, x = random_matrix(5, 5, 9, seed=1), normal(5, 2, seed=2)
    y, turned = propagate(a, x), propagate(a.transpose(), x)
    copied = COPIES[way](a)
    assert a._cache
    assert not copied._cache
    assert_identical(propagate(copied, x), y, "propagate")
    assert_identical(propagate(copied.transpose(), x), turned, "transpose")


INDPTR, INDICES, VALUES = torch.tensor([0, 1, 2]), torch.tensor([1, 0], dtype=torch.int32), torch.tensor([1.0, 2.0])


@pytest.mark.parametrize(
    ("parts", "error", "message"),
    [
        ({"indptr": INDPTR.int()}, TypeError, "Csr: indptr must be int64, got int32"),
        ({"indices": INDICES.long()}, TypeError, "Csr: indices must be int32, got int64"),
        ({"values": VALUES.half()}, TypeError, "Csr: values must be float32 or float64, got float16"),
        ({"values": VALUES[:, None]}, ValueError, r"Csr: values must be a contiguous vector, got shape \(2, 1\)"),
        ({"values": VALUES[:1]}, ValueError, "Csr: values must have one entry per index, got 1 for 2"),
        ({"indptr": INDPTR[:0]}, ValueError, r"Csr: indptr must have n_rows \+ 1 entries, got none"),
        ({"n_cols": 2**31}, ValueError, r"Csr: n_cols must be in \[0, 2147483647\], got 2147483648"),
    ],
)
def test_constructor_refuses(parts, error, message):
    good = {"indptr": INDPTR, "indices": INDICES, "values": VALUES, "n_cols": 2}
    Csr(**good)
    with pytest.raises(error, match=message):
        Csr(**(good | parts))


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"indptr": torch.tensor([1, 1, 2])}, "a: indptr must run from 0 to 2, got 1 to 2"),
        (
            {"indices": torch.tensor([1, 2], dtype=torch.int32)},
            r"a: indices must be in \[0, 2\), got values from 1 to 2",
        ),
        ({"indptr": torch.tensor([0, 2, 2])}, "a: columns must be ascending and unique within a row, row 0 is not"),
        ({"values": torch.tensor([1.0, float("nan")])}, "a: values must be finite, got nan in row 1"),
    ],
)
def test_check_structure_refuses(parts, message):
    good = {"indptr": INDPTR, "indices": INDICES, "values": VALUES, "n_cols": 2}
    Csr(**good).check_structure("a")
    with pytest.raises(ValueError, match=message):
        Csr.unchecked(**(good | parts)).check_structure("a")


def broken_matrices() -> dict[str, dict]:
    """Indices that would make a product read or write elsewhere."""
    int32 = torch.int32
    return {
        "starts late": {"indptr": torch.tensor([1, 1, 2])},
        "ends beyond": {"indptr": torch.tensor([0, 1, 2**40])},
        "ends early": {"indptr": torch.tensor([0, 1, 1])},
        "falls": {"indptr": torch.tensor([0, 3, 2])},
        "below 0": {"indptr": torch.tensor([0, -(2**50), 2])},
        "negative column": {"indices": torch.tensor([-1, 0], dtype=int32)},
        "wrapped column": {"indices": torch.tensor([0, -(2**31)], dtype=int32)},
        "column n": {"indices": torch.tensor([1, 2], dtype=int32)},
        "memory gone": {"values": cut_short(VALUES.clone())},
    }


def cut_short(x: torch.Tensor) -> torch.Tensor:
    x.untyped_storage().resize_(4)
    return x


@pytest.mark.parametrize("fault", sorted(broken_matrices()))
def test_a_matrix_that_would_crash_a_product_is_never_made(fault):
    good = {"indptr": INDPTR, "indices": INDICES, "values": VALUES, "n_cols": 2}
    with pytest.raises(ValueError, match="Csr: "):
        Csr(**(good | broken_matrices()[fault]))


@pytest.mark.parametrize("name", ["indptr", "indices"])
@pytest.mark.parametrize("copied", [False, True])
def test_indices_changed_in_place_are_looked_at_again(name, copied):
    a = Csr(INDPTR.clone(), INDICES.clone(), VALUES, 2)
    if copied:
        a = copy.deepcopy(a)
    else:
        propagate(a, torch.ones(2, 3))
    getattr(a, name)[1] = 2**30
    with pytest.raises(ValueError, match="Csr: ind"):
        propagate(a, torch.ones(2, 3))


def test_a_shape_whose_places_have_no_number_is_refused():
    rows = torch.zeros(1, dtype=torch.int64)
    for shape in ((2**40, 2**30), (2, 2**62), (-1, 2)):
        with pytest.raises(ValueError, match="Csr: shape must be of sizes from 0"):
            Csr.from_coo(rows, rows, None, shape)


def test_repeated_row_of_columns_in_any_order(device):
    """Row 0 is empty, row 1 falls, row 2 starts with the column row 1 ends with, row 3 names 5 twice."""
    indptr, indices = torch.tensor([0, 0, 3, 5, 8]), torch.tensor([7, 4, 2, 2, 6, 5, 1, 5], dtype=torch.int32)
    for rows, expected in ((4, 3), (3, None), (1, None)):
        end = int(indptr[rows])
        a = Csr(indptr[: rows + 1], indices[:end], torch.ones(end), 9).to(device)
        assert a.repeated_row() == expected
        assert a.repeated_row() == expected, "kept"


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"rows": torch.tensor([0, 2])}, ValueError, r"Csr: rows must be in \[0, 2\), got values from 0 to 2"),
        ({"rows": torch.tensor([0])}, ValueError, "Csr: rows and cols must be vectors of one length"),
        ({"values": torch.ones(3)}, ValueError, r"Csr: values must have shape \(2,\), got \(3,\)"),
        ({"rows": torch.tensor([0.0, 1.5])}, TypeError, "Csr: rows must be integers, got float32"),
    ],
)
def test_from_coo_refuses(change, error, message):
    good = {"rows": torch.tensor([0, 1]), "cols": torch.tensor([2, 0]), "values": torch.ones(2), "shape": (2, 3)}
    Csr.from_coo(**good)
    with pytest.raises(error, match=message):
        Csr.from_coo(**(good | change))


def test_rows_to_select_are_numbers() -> None:
    a = Csr.from_dense(torch.eye(3))
    with pytest.raises(ValueError, match=r"rows must be in \[0, 3\), got -2"):
        a.select_rows(torch.tensor([-2]))
    with pytest.raises(TypeError, match=r"got a mask: take mask\.nonzero"):
        a.select_rows(torch.tensor([True, False, True]))
