from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor

from calirare_ext import (
    Csr,
    LooDirections,
    field_of_propagated,
    loo_messages,
    node_gradients,
    record,
    reference,
)
from calirare_ext.node_gradients import LayerFactors
from tests.helpers.tolerance import assert_telling, assert_within, sum_bound


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed + sum(shape)))


def problem(
    r: int, d: int, s: int, h: int, dtype: torch.dtype, m: int = 0, device: torch.device | str = "cpu"
) -> tuple[Tensor, Tensor, LooDirections]:
    """Inputs with zeros, pre-activations with exact zeros and repeated patterns, directions."""
    inputs = draw(r, d) * (draw(r, d, seed=1) > 0.5)
    z = draw(r, h, seed=2)
    z[::3] = z[0].clone()  # rows that share a pattern
    z[1::7] = 0.0
    mix = draw(s, m, seed=6).to(dtype).to(device) if m else None
    parts = (draw(d + 1, s, h, seed=3), draw(h, s, seed=4), draw(h, seed=5))
    directions = LooDirections(*(part.to(dtype).to(device) for part in parts), mix)
    return inputs.to(dtype).to(device), z.to(dtype).to(device), directions


def expected(inputs: Tensor, z: Tensor, directions: LooDirections) -> tuple[Tensor, Tensor]:
    """The reference in float64, and the same on absolute values with the same active units."""
    assert isinstance(directions.first, Tensor)
    parts = [directions.first, directions.second, directions.contrast]
    parts = [part.double() for part in (*parts, *([] if directions.mix is None else [directions.mix]))]
    y = reference.loo_messages(inputs.double(), z.double(), *parts)
    return y, reference.loo_messages(inputs.abs().double(), z.double(), *(part.abs() for part in parts))


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("mixed", [0, 6])
@pytest.mark.parametrize(("r", "d", "s", "h"), [(1, 1, 1, 1), (40, 7, 5, 4), (300, 9, 33, 16), (130, 3, 65, 37)])
def test_messages_against_the_product_with_all_directions(dtype, sparse, mixed, r, d, s, h, device) -> None:
    inputs, z, directions = problem(r, d, s, h, dtype, mixed, device)
    got = loo_messages(Csr.from_dense(inputs) if sparse else inputs, z, directions)
    assert got.device == inputs.device
    inputs, z, directions = problem(r, d, s, h, dtype, mixed)
    y, magnitude = expected(inputs, z, directions)
    bound = sum_bound(y, (d + 2) * (h + 1) + h + (s if mixed else 0), magnitude, out=dtype)
    assert_within(got, y, bound)
    if r > 1 and dtype == torch.float64:
        assert_telling(y, bound)


@pytest.mark.parametrize("sparse", [False, True])
def test_more_rows_than_are_worked_on_together(sparse, device) -> None:
    """Rows are independent, so any of them alone must be what it is among many: 70,000 rows, blocks of 65,536."""
    inputs, z, directions = problem(70_000, 3, 40, 10, torch.float32, 7, device)
    some = torch.tensor([0, 1, 41_942, 41_943, 65_535, 65_536, 69_999], device=device)
    got = loo_messages(Csr.from_dense(inputs) if sparse else inputs, z, directions)
    inputs, z, directions = problem(70_000, 3, 40, 10, torch.float32, 7)
    y, magnitude = expected(inputs[some.cpu()], z[some.cpu()], directions)
    assert_within(got[some], y, sum_bound(y, 200, magnitude, out=torch.float32))


def network(r: int = 60, d: int = 30, h: int = 6):
    """A tape of ten labelled nodes with sparse inputs, all rows, and the dense directions of its gradients."""
    a = Csr.from_dense((draw(r, r, seed=8) > 1.3).double() + torch.eye(r, dtype=torch.float64))
    inputs = Csr.from_dense(draw(r, d) * (draw(r, d, seed=1) > 1.0))
    layers = [(draw(d, h, seed=1), draw(h, seed=2)), (draw(h, 2, seed=3), draw(2, seed=4))]
    nodes = torch.arange(0, r, 6)
    tape = record(field_of_propagated(a, inputs, nodes, 2), layers, torch.zeros(len(nodes), dtype=torch.int64))
    seeds = torch.tensor([[-1.0, 1.0]], dtype=torch.float64).expand(len(nodes), 1, 2)
    gradients = node_gradients(tape, seeds)
    rows = gradients.dense()[:, : (d + 1) * h].view(-1, d + 1, h).transpose(0, 1).contiguous()
    top = layers[1][0]
    dense = LooDirections(rows, 2 * tape.aggregated[0].T.contiguous(), top[:, 1] - top[:, 0])
    z = inputs.to_dense() @ layers[0][0] + layers[0][1]
    return inputs, z, dense, dataclasses.replace(dense, first=gradients.layers[0])


@pytest.mark.parametrize("copies", [1, 40])  # with many rows to a pattern it gets a matrix, else the Gram form
def test_factors_give_what_the_dense_directions_give(copies: int) -> None:
    inputs, z, dense, factored = network()
    inputs = inputs.select_rows(torch.arange(inputs.n_rows).repeat_interleave(copies))
    z = z.repeat_interleave(copies, 0)
    y, magnitude = expected(inputs.to_dense(), z, dense)
    bound = sum_bound(y, 2000, magnitude, out=torch.float64)
    assert_within(loo_messages(inputs, z, factored), y, bound)
    assert_telling(y, bound)


@pytest.mark.parametrize(("d", "s", "h", "m"), [(3, 0, 2, 0), (3, 0, 2, 4), (3, 2, 0, 0), (0, 2, 2, 0)])
def test_nothing_to_add_up_is_no_change(d, s, h, m, device) -> None:
    """A division by the number of directions or units would end the process."""
    inputs, z, directions = problem(5, d, s, h, torch.float64, m, device)
    got = loo_messages(inputs, z, directions)
    y, magnitude = expected(*problem(5, d, s, h, torch.float64, m))
    assert got.shape == (5, directions.n_models)
    assert_within(got, y, sum_bound(y, 9, magnitude, out=torch.float64))


def test_bad_arguments_name_themselves() -> None:
    inputs, z, directions = problem(4, 3, 2, 2, torch.float32)
    with pytest.raises(ValueError, match="inputs must have 3 columns, got 2"):
        loo_messages(inputs[:, :2], z, directions)
    with pytest.raises(ValueError, match="pre_activation must have shape"):
        loo_messages(inputs, z[:3], directions)
    with pytest.raises(TypeError, match="out must be float32"):
        loo_messages(inputs, z, directions, out=torch.empty(4, 2, dtype=torch.float64))
    with pytest.raises(ValueError, match="out must be a matrix with contiguous rows"):
        loo_messages(inputs, z, directions, out=torch.empty(2, 4).T)
    sparse, states, _, factored = network()
    with pytest.raises(ValueError, match="must come with sparse inputs"):
        loo_messages(sparse.to_dense(), states, factored)


def test_factors_are_refused_on_a_gpu(cuda_device) -> None:
    inputs, z, _, factored = network()
    assert isinstance(factored.first, LayerFactors)
    parts = [part.to(cuda_device) for part in (factored.second, factored.contrast)]
    names = ("entry_ptr", "nodes", "delta", "inputs")
    first = LayerFactors(*(getattr(factored.first, name).to(cuda_device) for name in names))
    with pytest.raises(ValueError, match="factors are for the CPU"):
        loo_messages(inputs.to(cuda_device), z.to(cuda_device), LooDirections(first, *parts))
