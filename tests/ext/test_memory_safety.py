"""Whatever Python hands over is refused in one sentence or gives numbers: no kernel reads or writes elsewhere."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from calirare_ext import Csr, LayerFactors, LooDirections, NodeGradients, ReceptiveField, loo_messages, propagate
from tests.helpers.problems import normal, random_matrix

ODD = (-(2**63), -(2**31), -1, 0, 1, 2, 3, 4, 5, 7, 2**20, 2**31 - 1, 2**40, 2**63 - 1)


def factors(**changes: object) -> dict:
    """Two nodes, three entries, four rows of five sparse inputs, two hidden units."""
    parts = {
        "entry_ptr": torch.tensor([0, 1, 3]),
        "nodes": torch.tensor([0, 3, 1], dtype=torch.int32),
        "delta": normal(3, 1, 2, seed=1),
        "inputs": random_matrix(4, 5, 9, seed=2),
    }
    return parts | changes


def as_int32(*values: int) -> Tensor:
    return torch.tensor(values, dtype=torch.int32)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"nodes": as_int32(0, 4, 1)}, ValueError, r"nodes must be in \[0, 4\), got 0 to 4"),
        ({"nodes": as_int32(0, 1)}, ValueError, r"delta must have shape \[2, any, any\]"),
        ({"nodes": torch.tensor([0, 3, 1])}, TypeError, "nodes must be int32, got int64"),
        ({"entry_ptr": torch.tensor([0, 1, 4])}, ValueError, "entry_ptr must rise from 0 to 3"),
        ({"entry_ptr": torch.tensor([0, 9, 3])}, ValueError, "entry_ptr must rise from 0 to 3"),
        ({"entry_ptr": torch.tensor([0, 1, 3] * 2)[::2]}, ValueError, "entry_ptr must be a contiguous vector"),
        ({"entry_ptr": torch.empty(0, dtype=torch.int64)}, ValueError, "entry_ptr must rise from 0 to 3"),
        ({"delta": normal(3, 1, 2, seed=1).float()}, TypeError, "delta must be float64 as inputs is"),
        ({"inputs": "x"}, TypeError, "inputs must be a tensor, got str"),
    ],
)
def test_factors_that_do_not_fit_are_refused(changes, error, message):
    LayerFactors(**factors())
    with pytest.raises(error, match=f"LayerFactors: {message}"):
        LayerFactors(**factors(**changes))


def test_factors_changed_in_place_are_looked_at_again():
    layer = LayerFactors(**factors())
    NodeGradients((layer,)).dense()
    layer.nodes[1] = 2**30
    with pytest.raises(ValueError, match="LayerFactors: nodes must be in"):
        NodeGradients((layer,)).dense()
    directions = LooDirections(layer, normal(2, 2, seed=3), normal(2, seed=4))
    with pytest.raises(ValueError, match="LayerFactors: nodes must be in"):
        loo_messages(layer.inputs, normal(4, 2, seed=5), directions)


def test_layers_of_two_networks_are_refused():
    one = LayerFactors(**factors())
    other = LayerFactors(**factors(entry_ptr=torch.tensor([0, 1, 2, 3])))
    with pytest.raises(ValueError, match=r"NodeGradients: layers must have shape \[3\], got \[4\]"):
        NodeGradients((one, other))
    with pytest.raises(ValueError, match="NodeGradients: layers must hold at least one layer"):
        NodeGradients(())
    with pytest.raises(ValueError, match=r"loo_messages: first.entry_ptr must have shape \[3\], got \[4\]"):
        LooDirections(other, normal(2, 2, seed=3), normal(2, seed=4)).check()


def test_a_field_whose_parts_do_not_fit_is_refused():
    rows, block = torch.arange(3), random_matrix(2, 3, 4, seed=1)
    ReceptiveField((rows, rows[:2]), normal(3, 4, seed=2), (block,))
    for change, message in (
        ({"rows": (rows,)}, "blocks must be one fewer than layers"),
        ({"rows": ()}, "blocks must be one fewer than layers"),
        ({"features": normal(2, 4, seed=2)}, "inputs must have 3 rows"),
        ({"rows": (rows, rows)}, r"a block must be \(3, 3\)"),
    ):
        good = {"rows": (rows, rows[:2]), "features": normal(3, 4, seed=2), "blocks": (block,)}
        with pytest.raises(ValueError, match=f"ReceptiveField: {message}"):
            ReceptiveField(**(good | change))


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(st.data())
def test_odd_matrices_are_refused_or_right(data):
    numbers = st.lists(st.sampled_from(ODD), max_size=5)
    indptr, indices = data.draw(numbers), data.draw(numbers)
    wrapped = torch.tensor(indices, dtype=torch.int64).to(torch.int32)
    values = normal(data.draw(st.sampled_from([len(indices), 2])), seed=1)
    try:
        a = Csr(torch.tensor(indptr, dtype=torch.int64), wrapped, values, data.draw(st.sampled_from(ODD)))
    except ValueError:
        return
    if a.n_cols <= max(ODD[:8]) + 8:
        x = normal(a.n_cols, 2, seed=2)
        torch.testing.assert_close(propagate(a, x), a.to_dense() @ x)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(st.data())
def test_odd_factors_are_refused_or_right(data):
    entry_ptr = torch.tensor(data.draw(st.lists(st.sampled_from(ODD), max_size=4)), dtype=torch.int64)
    nodes = torch.tensor(data.draw(st.lists(st.sampled_from(ODD), max_size=4)), dtype=torch.int64).to(torch.int32)
    sparse = random_matrix(4, 5, 9, seed=2)
    inputs = data.draw(st.sampled_from([sparse, sparse.to_dense()]))
    delta = normal(data.draw(st.sampled_from([nodes.numel(), 3])), 1, 2, seed=1)
    try:
        layer = LayerFactors(entry_ptr, nodes, delta, inputs)
    except ValueError:
        return
    dense = NodeGradients((layer,)).dense()
    for i, (first, last) in enumerate(zip(entry_ptr[:-1].tolist(), entry_ptr[1:].tolist(), strict=True)):
        rows = sparse.to_dense()[nodes[first:last].long()]
        weight = rows.T @ delta[first:last, 0]
        expected = torch.cat([weight.flatten(), delta[first:last, 0].sum(0)])
        torch.testing.assert_close(dense[i], expected)
