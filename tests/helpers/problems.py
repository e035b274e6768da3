"""Matrices, networks and samples that break operators: empty, isolated, looped, crowded, repeated, oddly laid out.

Everything is made in float64 on the CPU from a fixed seed and then cast, so all dtypes and devices see one problem.
"""

from __future__ import annotations

import functools
import itertools
import mmap
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from calirare_ext import Csr, Factored, GcnTape, Inputs, ReceptiveField, field_of_propagated, gcn_norm, record
from calirare_ext.reference import gcn
from calirare_ext.tape import Layer

# Around every vector width, tile and warp size in use, tiles of 1 to 8 registers, rows that are read from end to end
# (4 KB and more); 0 and the widest of the specification at the ends.
WIDTHS = (0, 1, 2, 3, 4, 7, 8, 15, 16, 17, 31, 32, 33, 64, 80, 100, 127, 129, 144, 272, 400, 1023, 1039, 2048)


MAP_NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)  # Linux; named by Python from 3.13 on


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normal(*shape: int, seed: int) -> Tensor:
    """Standard normal numbers, float64."""
    return torch.randn(*shape, generator=generator(seed), dtype=torch.float64)


def random_matrix(n_rows: int, n_cols: int, nnz: int, seed: int) -> Csr:
    """Signed weights at random places, without repetition."""
    place = torch.randperm(n_rows * n_cols, generator=generator(seed))[:nnz]
    return Csr.from_coo(place // n_cols, place % n_cols, normal(nnz, seed=seed + 1), (n_rows, n_cols))


def _hub(n: int) -> Csr:
    """Node 0 is joined to everyone: one row far longer than the prefetch distance, and one crowded column."""
    others = torch.arange(1, n)
    rows, cols = torch.cat([torch.zeros_like(others), others]), torch.cat([others, torch.zeros_like(others)])
    return Csr.from_coo(rows, cols, normal(rows.numel(), seed=5), (n, n))


def _repeated() -> Csr:
    """Entries at the same place side by side, and values that are all alike."""
    rows, cols = torch.tensor([0, 0, 0, 2, 2]), torch.tensor([1, 1, 1, 0, 0])
    return Csr.from_coo(rows, cols, torch.full((5,), 0.1, dtype=torch.float64), (3, 3))


def _staircase() -> Csr:
    """Rows of 0 to 25 entries: 0 to 4 batches of 8 entries."""
    rows, cols = torch.tril_indices(26, 26, -1)
    return Csr.from_coo(rows, cols, normal(rows.numel(), seed=3), (26, 26))


def _no_entries(n_rows: int, n_cols: int) -> Csr:
    none = torch.empty(0, dtype=torch.int64)
    return Csr.from_coo(none, none, none.double(), (n_rows, n_cols))


MATRICES: dict[str, Callable[[], Csr]] = {
    "no rows": lambda: _no_entries(0, 0),
    "no columns": lambda: _no_entries(4, 0),
    "isolated nodes": lambda: _no_entries(5, 5),
    "one node": lambda: Csr.from_dense(torch.full((1, 1), 0.7, dtype=torch.float64)),
    "self loops": lambda: Csr.from_dense(torch.diag(normal(6, seed=1))),
    "hub": lambda: _hub(300),
    "repeated entries": _repeated,
    "directed weights": lambda: random_matrix(23, 23, 120, seed=2),
    "wide": lambda: random_matrix(5, 70, 130, seed=3),
    "rows of every length": _staircase,
    "tall with empty rows": lambda: random_matrix(90, 4, 40, seed=4),
}


def matrix(name: str, dtype: torch.dtype, device: torch.device) -> Csr:
    return MATRICES[name]().to(dtype).to(device)


def _sliced(x: Tensor, rows: int, columns: int, offset: int) -> Tensor:
    """The same numbers as every `rows`-th row of a wider buffer, `offset` columns in."""
    buffer = x.new_full((x.shape[0] * rows, x.shape[1] + columns + offset), float("nan"))
    view = buffer[::rows, offset : offset + x.shape[1]]
    return view.copy_(x)


LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "contiguous": lambda x: x,
    "transposed": lambda x: x.T.contiguous().T,
    "every second row": lambda x: _sliced(x, 2, 0, 0),
    "columns of a wider matrix": lambda x: _sliced(x, 1, 3, 5),
    "misaligned by one element": lambda x: x.new_empty(x.numel() + 1)[1:].view(x.shape).copy_(x),
    "every second column": lambda x: torch.stack([x, torch.full_like(x, float("nan"))], 2).flatten(1)[:, ::2],
}


def far_apart(n_rows: int, n_cols: int, stride: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """A matrix whose rows start `stride` elements apart, zeros; only pages that are touched take memory on the CPU."""
    size = (n_rows - 1) * stride + n_cols
    if device.type == "cpu":
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE
        pages = mmap.mmap(-1, size * dtype.itemsize, flags=flags)
        flat = torch.frombuffer(pages, dtype=dtype)
    else:
        flat = torch.empty(size, dtype=dtype, device=device)
    return flat.as_strided((n_rows, n_cols), (stride, 1)).zero_()


@dataclass(frozen=True)
class Network:
    """A small network at random parameters, with its labelled nodes.

    Attributes:
        field: receptive field of the labelled nodes.
        layers: weight and bias of each layer.
        targets: class of each labelled node.
        sample_weights: weight of each labelled node.
    """

    field: ReceptiveField
    layers: tuple[Layer, ...]
    targets: Tensor
    sample_weights: Tensor

    @functools.cached_property
    def tape(self) -> GcnTape:
        return record(self.field, self.layers, self.targets, self.sample_weights)


@dataclass(frozen=True)
class NetworkSpec:
    n_layers: int = 2
    n_classes: int = 2
    sparse: bool = False
    factored: bool = False
    directed: bool = True
    n_hidden: int = 5
    nodes: tuple[int, ...] = (5, 0, 13, 2, 7)  # out of order; 0 is the hub, 2 has a self loop, 13 is isolated


NETWORKS = {
    "one layer": NetworkSpec(n_layers=1),
    "two layers": NetworkSpec(),
    "three classes": NetworkSpec(n_classes=3),
    "three layers, four classes": NetworkSpec(n_layers=3, n_classes=4),
    "four layers": NetworkSpec(n_layers=4),
    "sparse inputs": NetworkSpec(sparse=True, n_classes=3),
    "sparse inputs, one layer": NetworkSpec(sparse=True, n_layers=1, n_classes=3),
    "sparse inputs, one hidden unit": NetworkSpec(sparse=True, n_hidden=1),
    "inputs in factors": NetworkSpec(factored=True, n_classes=3),
    "inputs in factors, two classes": NetworkSpec(factored=True),
    "inputs in factors, one layer": NetworkSpec(factored=True, n_layers=1),
    "undirected": NetworkSpec(directed=False),
    "one labelled node": NetworkSpec(nodes=(4,), n_classes=3),
    "an isolated node alone": NetworkSpec(nodes=(13,)),
    "every node": NetworkSpec(nodes=tuple(range(14)), n_layers=3, n_classes=3),
}
N_NODES, N_FEATURES = 14, 6
KINK_MARGIN = 1e-3  # every |z| of a hidden unit is larger, so float32 and float64 agree on the side of the kink


def graph(directed: bool) -> Csr:
    """Weighted edges, a hub (0), a self loop (2) and an isolated node (13)."""
    dense = random_matrix(N_NODES, N_NODES, 40, seed=11).to_dense().abs()
    dense[0, 1:] = normal(N_NODES - 1, seed=12).abs()
    dense = dense if directed else dense + dense.T
    dense.fill_diagonal_(0.0)
    dense[2, 2] = 0.5
    dense[13, :] = dense[:, 13] = 0.0
    return Csr.from_dense(dense)


@functools.cache
def network(name: str, dtype: torch.dtype = torch.float64, device: torch.device | str = "cpu") -> Network:
    """Returns the network, with parameters from the first seed that keeps every hidden unit off its kink."""
    spec = NETWORKS[name]
    a_hat, x = gcn_norm(graph(spec.directed)), normal(N_NODES, N_FEATURES, seed=13)
    x = x * (normal(N_NODES, N_FEATURES, seed=14) > 0.3) if spec.sparse or spec.factored else x
    dense = a_hat.to_dense() @ x
    a_hat, dense, x = a_hat.to(dtype).to(device), dense.to(dtype).to(device), x.to(dtype).to(device)
    nodes = torch.tensor(spec.nodes, device=device)
    inputs: Inputs = Csr.from_dense(dense) if spec.sparse else dense
    if spec.factored:
        inputs = Factored(a_hat, Csr.from_dense(x))
    field = field_of_propagated(a_hat, inputs, nodes, spec.n_layers)
    sizes = [N_FEATURES, *[spec.n_hidden] * (spec.n_layers - 1), spec.n_classes]
    targets = torch.arange(nodes.numel(), device=device) % spec.n_classes
    weights = (0.5 + torch.rand(nodes.numel(), generator=generator(15), dtype=torch.float64)).to(dtype).to(device)
    for seed in range(100, 200):
        layers = tuple(
            ((normal(d, h, seed=10 * seed + i) / d**0.5).to(dense), (normal(h, seed=10 * seed + i + 5) / 4).to(dense))
            for i, (d, h) in enumerate(itertools.pairwise(sizes))
        )
        if _distance_to_kink(field, layers) > KINK_MARGIN:
            return Network(field, layers, targets, weights)
    raise AssertionError(f"no seed keeps {name} off the kinks")


def _distance_to_kink(field: ReceptiveField, layers: tuple[Layer, ...]) -> float:
    """Returns the smallest |z| of a hidden unit."""
    distance = float("inf")
    for level in range(1, len(layers)):
        below = ReceptiveField(field.rows[:level], field.inputs, field.blocks[: level - 1])
        distance = min(distance, float(gcn(below, layers[:level]).abs().min()))
    return distance


def with_spectrum(eigenvalues: Tensor, seed: int) -> Tensor:
    """Returns a dense symmetric float64 matrix with these eigenvalues and random eigenvectors."""
    q, _ = torch.linalg.qr(normal(eigenvalues.numel(), eigenvalues.numel(), seed=seed))
    product = q @ torch.diag(eigenvalues.double()) @ q.T
    return (product + product.T) / 2


def _ties(n: int, m: int, seed: int) -> Tensor:
    """Few distinct numbers, so most order statistics are shared; eighths, so sums stay exact."""
    return torch.randint(1, 4, (n, m), generator=generator(seed)).double() / 8


SAMPLES: dict[str, Callable[[], tuple[Tensor, Tensor]]] = {
    "one model": lambda: (normal(4, 1, seed=31), normal(1, seed=32).abs()),
    "two models": lambda: (normal(4, 2, seed=33), normal(2, seed=34).abs()),
    "three models": lambda: (normal(4, 3, seed=35), normal(3, seed=36).abs()),
    "no nodes": lambda: (normal(0, 5, seed=37), normal(5, seed=38).abs()),
    "random": lambda: (normal(17, 140, seed=39), normal(140, seed=40).abs()),
    "odd": lambda: (normal(9, 257, seed=41), normal(257, seed=42).abs()),
    "long": lambda: (normal(3, 2500, seed=43), normal(2500, seed=44).abs()),
    "ties": lambda: (_ties(20, 33, seed=45), _ties(1, 33, seed=46)[0]),
    "all alike": lambda: (torch.full((3, 12), 0.3, dtype=torch.float64), torch.full((12,), 0.1, dtype=torch.float64)),
    "wide range": lambda: (
        normal(6, 64, seed=47) * 10.0 ** normal(6, 64, seed=48).mul(6).clamp(-30, 30),
        torch.ones(64).double(),
    ),
}
