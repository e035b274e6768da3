"""network_loss, dropout_factors and adam_step_ against plain formulas in float64, by kernels and by composition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from calirare_ext import (
    Csr,
    Factored,
    Inputs,
    ReceptiveField,
    as_dense,
    dropout_factors,
    gcn_forward,
    network_field,
    network_logits,
    network_loss,
)
from tests.helpers.problems import normal, random_matrix
from tests.helpers.tolerance import assert_within, unit_roundoff

ROWS = 700  # more than a chunk of the sums over rows
Layers = list[tuple[Tensor, Tensor]]


def field_of(kind: str, d: int, n_layers: int, dtype: torch.dtype, rows: int = ROWS) -> ReceptiveField:
    sizes = [rows, *[40, 12, 7][4 - n_layers :]] if n_layers > 1 else [rows]
    x: Inputs = random_matrix(rows, d, rows * d // 2, seed=1).to(dtype)
    if kind == "dense":
        x = as_dense(x)
    elif kind == "factors":
        x = Factored(random_matrix(rows, rows, 2 * rows, seed=2).to(dtype), x)
    pairs = zip(sizes[1:], sizes, strict=False)
    blocks = tuple(random_matrix(n, m, 3 * n, seed=3 + n).to(dtype) for n, m in pairs)
    return ReceptiveField(tuple(torch.arange(n) for n in sizes), x, blocks)


class Case:
    """Networks side by side with their labels, and what a step is to give, in float64."""

    def __init__(self, field: ReceptiveField, widths: list[tuple[int, int]], b: int, dtype: torch.dtype) -> None:
        m, k = field.nodes.numel(), widths[-1][1]
        self.field, self.widths = field, widths
        p = sum((d + 1) * h for d, h in widths)
        self.parameters = (0.4 * normal(b, p, seed=11)).to(dtype)
        self.targets = torch.arange(m) % k
        self.weights = normal(b, m, seed=12).abs().to(dtype)
        self.weights[:, ::5] = 0  # left out
        hidden = zip(field.rows, widths[:-1], strict=False)
        self.factors = [dropout_factors(r.numel(), h, 0.4, 9, dtype) for r, (_, h) in hidden]
        self.scale = 1 / 0.6

    def layers(self, row: Tensor) -> Layers:
        out, start = Layers(), 0
        for d, h in self.widths:
            middle = start + d * h
            out.append((row[start:middle].view(d, h), row[middle : middle + h]))
            start = middle + h
        return out

    def found(self, *, composed: bool, products: int = 0) -> tuple[Tensor, Tensor]:
        compiled = network_field(self.field, self.widths, self.parameters.shape[0], products)
        given: dict[str, Any] = {"factors": self.factors, "scale": self.scale, "composed": composed}
        return network_loss(compiled, self.parameters, self.targets, self.weights, **given)

    def wanted(self, change: Callable[[Case], None] = lambda case: None) -> tuple[Tensor, Tensor]:
        """Returns losses and gradients by automatic differentiation, one network after the other, in float64."""
        change(self)
        losses, gradients = [], []
        for row, weights in zip(self.parameters.double(), self.weights.double(), strict=True):
            row = row.clone().requires_grad_()
            factors = iter(self.factors)
            z = gcn_forward(doubled(self.field), self.layers(row), lambda h, f=factors: h * next(f).double())
            loss = (weights * torch.nn.functional.cross_entropy(z, self.targets, reduction="none")).sum()
            losses.append(loss.detach())
            gradients.append(torch.autograd.grad(loss, row)[0])
        return torch.stack(losses), torch.stack(gradients)

    def magnitudes(self) -> tuple[Tensor, Tensor]:
        """Returns what losses and gradients are of the same chain on absolute values."""
        losses, gradients, field = [], [], doubled(self.field)
        x = as_dense(field.features).abs()
        blocks = [block.to_dense().abs() for block in field.blocks]
        for row, weights in zip(self.parameters.double().abs(), self.weights.double(), strict=True):
            layers, hidden = self.layers(row), []
            z = x @ layers[0][0] + layers[0][1]
            for block, factors, (weight, bias) in zip(blocks, self.factors, layers[1:], strict=True):
                hidden.append(z * factors.double())
                z = block @ hidden[-1] @ weight + bias
            losses.append((weights[:, None] * (1 + 2 * z)).sum())
            delta, parts = weights[:, None] * (1 + z), []
            for level in range(len(blocks), 0, -1):
                back = blocks[level - 1].T @ delta
                parts = [(hidden[level - 1].T @ back).flatten(), delta.sum(0), *parts]
                delta = self.scale * back @ layers[level][0].T
            gradients.append(torch.cat([(x.T @ delta).flatten(), delta.sum(0), *parts]))
        return torch.stack(losses), torch.stack(gradients)


def doubled(field: ReceptiveField) -> ReceptiveField:
    x = field.features
    return ReceptiveField(field.rows, x.to(torch.float64), tuple(block.to(torch.float64) for block in field.blocks))


def matches(found: tuple[Tensor, Tensor], case: Case, wanted: tuple[Tensor, Tensor]) -> None:
    terms = ROWS * (len(case.widths) + 1) + sum(d + h for d, h in case.widths)
    bounds = [terms * unit_roundoff(case.parameters.dtype) * size for size in case.magnitudes()]
    for got, expected, bound, what in zip(found, wanted, bounds, ("losses", "gradients"), strict=True):
        assert_within(got, expected, bound, f"network_loss: {what}")


SHAPES = [  # kind of features, d, hidden, classes, layers, networks
    ("dense", 3, 1, 2, 2, 1),
    ("sparse", 9, 16, 2, 2, 1),
    ("factors", 5, 17, 2, 2, 3),
    ("dense", 4, 7, 3, 2, 2),
    ("sparse", 6, 33, 5, 2, 2),
    ("factors", 5, 8, 2, 3, 2),
    ("dense", 4, 20, 4, 3, 1),
    ("dense", 4, 3, 3, 1, 2),
]


def case_of(kind: str, d: int, h: int, k: int, n_layers: int, b: int, dtype: torch.dtype) -> Case:
    widths = list(zip([d, *[h] * (n_layers - 1)], [*[h] * (n_layers - 1), k], strict=True))
    return Case(field_of(kind, d, n_layers, dtype), widths, b, dtype)


@pytest.mark.parametrize("composed", [False, True])
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "-".join(map(str, shape)))
def test_is_the_loss_and_its_gradient(shape, composed, dtype):
    case = case_of(*shape, dtype)
    found = case.found(composed=composed)
    matches(found, case, case.wanted())
    assert (found[0].dtype, found[1].dtype) == (torch.float64, dtype)


@pytest.mark.parametrize("shape", SHAPES[2:6], ids=lambda shape: "-".join(map(str, shape)))
def test_is_the_same_on_a_gpu(shape, dtype, cuda_device):
    case = case_of(*shape, dtype)
    wanted = case.wanted()
    rows, x, blocks = case.field.rows, case.field.features, case.field.blocks
    moved = (tuple(part.to(cuda_device) for part in parts) for parts in (rows, blocks))
    case.field = ReceptiveField(next(moved), x.to(cuda_device), next(moved))
    for name in ("parameters", "targets", "weights"):
        setattr(case, name, getattr(case, name).to(cuda_device))
    case.factors = [factors.to(cuda_device) for factors in case.factors]
    losses, gradients = case.found(composed=False)
    assert losses.device == gradients.device == case.parameters.device
    matches((losses.cpu(), gradients.cpu()), case_of(*shape, dtype), wanted)


@pytest.mark.parametrize("n_networks", [1, 3])
def test_gradients_are_written_where_they_are_wanted(n_networks, dtype):
    case = case_of("factors", 5, 17, 2, 3, n_networks, dtype)
    compiled = network_field(case.field, case.widths, n_networks)
    given = (compiled, case.parameters, case.targets, case.weights)
    wanted, into = network_loss(*given)[1], torch.full_like(case.parameters, torch.nan)
    assert network_loss(*given, into=into)[1] is into
    assert torch.equal(into, wanted)
    with pytest.raises(ValueError, match="gradient must"):
        network_loss(*given, into=into[:, :-1].contiguous())


def test_layouts_and_threads_change_no_bit(dtype):
    case = case_of("factors", 5, 17, 2, 3, 3, dtype)
    found = case.found(composed=False)
    for matrix in (case.field.features.a, case.field.features.x, *case.field.blocks):
        assert not matrix._cache.get("layouts")
    laid = case.found(composed=False, products=10_000)
    assert case.field.blocks[0]._cache["layouts"]
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        threads = case.found(composed=False)
    finally:
        torch.set_num_threads(before)
    for other in (laid, threads):
        assert all(torch.equal(a, b) for a, b in zip(found, other, strict=True))


def _kept_twice(case: Case) -> None:
    case.factors = [f * 1.5 for f in case.factors]


def _nothing_dropped(case: Case) -> None:
    case.factors = [torch.ones_like(f) for f in case.factors]


def _all_count(case: Case) -> None:
    case.weights = torch.where(case.weights == 0, 1, case.weights)


def _no_bias(case: Case) -> None:
    d, h = case.widths[0]
    case.parameters = case.parameters.clone()
    case.parameters[:, d * h : (d + 1) * h] = 0


def _last_row_lost(case: Case) -> None:
    case.weights = case.weights.clone()
    case.weights[:, -1] = 0


def _other_targets(case: Case) -> None:
    case.targets = case.targets.roll(1)


@pytest.mark.parametrize("wrong", [_kept_twice, _nothing_dropped, _all_count, _no_bias, _last_row_lost, _other_targets])
def test_known_wrong_versions_are_rejected(wrong, dtype):
    case = case_of("sparse", 9, 16, 2, 2, 2, dtype)
    mutant = case_of("sparse", 9, 16, 2, 2, 2, dtype)
    wrong(mutant)
    with pytest.raises(AssertionError, match="network_loss"):
        matches(mutant.found(composed=False), case, case.wanted())


def test_kernels_that_scale_or_mask_wrongly_are_rejected(dtype):
    case = case_of("sparse", 9, 16, 2, 2, 2, dtype)
    wanted, scale = case.wanted(), case.scale
    case.scale = 1.0  # dropped units learn as if they had not been scaled
    wrong = case.found(composed=False)
    case.scale = scale
    with pytest.raises(AssertionError, match="gradients"):
        matches(wrong, case, wanted)


def test_logits_are_those_of_each_network(dtype):
    case = case_of("factors", 5, 17, 3, 3, 2, dtype)
    found = network_logits(network_field(case.field, case.widths, 2), case.parameters)
    for i, row in enumerate(case.parameters):
        wanted = gcn_forward(doubled(case.field), case.layers(row.double()))
        magnitude = gcn_forward(_absolute(case.field), case.layers(row.double().abs()))
        assert_within(found[:, i], wanted, 100 * unit_roundoff(dtype) * magnitude)


def _absolute(field: ReceptiveField) -> ReceptiveField:
    blocks = tuple(Csr.from_dense(block.to_dense().double().abs()) for block in field.blocks)
    return ReceptiveField(field.rows, as_dense(doubled(field).features).abs(), blocks)


@pytest.mark.parametrize("composed", [False, True])
def test_a_node_that_is_left_out_plays_no_part_whatever_its_logits_are(composed, dtype):
    case = case_of("dense", 3, 4, 2, 1, 1, dtype)
    wanted = case.found(composed=composed)
    assert case.weights[0, 0] == 0
    features = case.field.features.clone()
    features[0] = torch.finfo(dtype).max  # its logits are infinite, and their softmax is not a number
    case.field = ReceptiveField(case.field.rows, features, case.field.blocks)
    case.parameters *= 1e3
    losses, _ = case.found(composed=composed)
    assert losses.isfinite().all()
    assert not torch.equal(losses, wanted[0])


def test_no_labels_and_no_rows():
    for rows in (0, 3):
        block = Csr.from_dense(torch.zeros(0, rows, dtype=torch.float64))
        field = ReceptiveField((torch.arange(rows), torch.arange(0)), normal(rows, 3, seed=4), (block,))
        none, weights = torch.empty(0, dtype=torch.int64), torch.empty(2, 0, dtype=torch.float64)
        for composed in (False, True):
            compiled = network_field(field, [(3, 4), (4, 2)], 2)
            losses, gradients = network_loss(compiled, normal(2, 26, seed=1), none, weights, composed=composed)
            assert losses.tolist() == [0, 0]
            assert not gradients.any()


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"targets": torch.full((12,), 2)}, ValueError, r"targets must be in \[0, 2\)"),
        ({"targets": torch.zeros(3, dtype=torch.int64)}, ValueError, "one entry per row"),
        ({"weights": torch.ones(1, 12)}, ValueError, r"weights must be contiguous, \[2, 12\]"),
        ({"parameters": torch.ones(2, 5)}, ValueError, "parameters must be contiguous"),
        ({"factors": [torch.ones(5, 4)]}, ValueError, "factors must be"),
        ({"factors": [torch.ones(700, 4)] * 2}, ValueError, "one for each hidden layer"),
    ],
)
def test_what_does_not_fit_is_refused(change, error, message):
    field = field_of("dense", 3, 2, torch.float32)
    field = ReceptiveField(
        (field.rows[0], torch.arange(12)), field.features, (random_matrix(12, ROWS, 30, 1).to(torch.float32),)
    )
    given = {
        "parameters": torch.ones(2, 26),
        "targets": torch.zeros(12, dtype=torch.int64),
        "weights": torch.ones(2, 12),
    }
    given |= change
    with pytest.raises(error, match=message):
        network_loss(network_field(field, [(3, 4), (4, 2)], 2), **given)


def counted(key: int, row: int, unit: int) -> int:
    """The 32 bits of a unit, in whole numbers of Python."""
    wide, word = 2**64 - 1, 2**32 - 1

    def mixed(x: int) -> int:
        x = (x ^ (x >> 16)) * 0x7FEB352D & word
        x = (x ^ (x >> 15)) * 0x846CA68B & word
        return x ^ (x >> 16)

    x = key + (row + 1) * 0x9E3779B97F4A7C15 & wide
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & wide
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & wide
    x ^= x >> 31
    return mixed(mixed((x & word) + unit * 0x9E3779B9 & word) ^ (x >> 32))


def test_dropout_counts(dtype):
    key, probability = 2**63 + 12345, 0.3
    found = dropout_factors(9, 37, probability, key, dtype)
    kept = torch.tensor([[counted(key, r, u) >= int(probability * 2**32) for u in range(37)] for r in range(9)])
    assert torch.equal(found, kept.to(dtype) / (1 - probability))


def test_dropout_refuses_what_is_no_probability():
    with pytest.raises(ValueError, match="probability"):
        dropout_factors(2, 2, 1.0, 0)
    with pytest.raises(ValueError, match="key"):
        dropout_factors(2, 2, 0.5, -1)
